"""Certificates that change or expire while somebody uses them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pyromq.errors import ConfigError
from pyromq.remoting import TlsConfig
from pyromq.remoting.certificates import client_files, expiry_problem, server_files
from pyromq.remoting.issuing import Authority

NOW = datetime(2030, 6, 1, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path, "authority")


@pytest.fixture
def tls(tmp_path: Path, authority: Authority) -> TlsConfig:
    authority.issue(tmp_path, "server", days=90, server=True)
    return TlsConfig(server_cert=str(tmp_path / "server.pem"), server_key=str(tmp_path / "server.key"))


def fingerprint(file: Path) -> bytes:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read_text())).digest()


def test_files_that_do_not_change_are_read_once(tls: TlsConfig):
    files = server_files(tls)
    files.load()
    context = files.context
    files.renew()
    assert files.context is context


def test_new_files_make_a_new_context(tmp_path: Path, tls: TlsConfig, authority: Authority, caplog):
    caplog.set_level(logging.INFO)
    files = server_files(tls)
    files.load()
    context, shown = files.context, files.current.fingerprint
    assert shown == fingerprint(tmp_path / "server.pem")
    authority.issue(tmp_path, "server", days=90, server=True)
    files.renew()
    assert files.context is not context
    assert files.current.fingerprint == fingerprint(tmp_path / "server.pem") != shown
    assert "the server's certificate changed and was read again" in caplog.text


def test_a_half_replaced_pair_waits_in_silence_for_its_other_half(
    tmp_path: Path, tls: TlsConfig, authority: Authority, caplog
):
    files = server_files(tls)
    files.load()
    context = files.context
    authority.issue(tmp_path, "next", days=90, server=True)
    shutil.copy(tmp_path / "next.pem", tls.server_cert)
    files.renew()
    assert (files.context, caplog.text) == (context, "")
    shutil.copy(tmp_path / "next.key", tls.server_key)
    files.renew()
    assert files.context is not context
    assert caplog.text == ""


def test_what_stays_unusable_is_said_once_and_the_old_certificate_stays(tls: TlsConfig, caplog):
    files = server_files(tls)
    files.load()
    context = files.context
    Path(tls.server_cert).write_text("no certificate")
    for _ in range(5):
        files.renew()
    assert files.context is context
    assert caplog.text.count("cannot be used; the old one stays") == 1
    Path(tls.server_cert).unlink()
    for _ in range(5):
        files.renew()
    assert files.context is context
    assert caplog.text.count("cannot be used; the old one stays") == 2
    with pytest.raises(ConfigError, match=r"server\.pem"):
        files.load()
    assert files.context is context


async def test_files_are_read_anew_in_a_thread_if_somebody_asks_for_it(tmp_path: Path, tls: TlsConfig, monkeypatch):
    """A slow disk, or a key that takes its time, must not keep the event loop waiting."""
    files = server_files(tls)
    files.load()
    context = files.context
    readers: list[int] = []
    make = files._make

    def noted() -> ssl.SSLContext | None:
        readers.append(threading.get_ident())
        return make()

    monkeypatch.setattr(files, "_make", noted)
    done: asyncio.Queue[ConfigError | None] = asyncio.Queue()
    following = asyncio.create_task(files.follow())
    async with asyncio.timeout(10):
        files.load_soon(done.put_nowait)
        assert await done.get() is None
        assert files.context is not context
        context = files.context
        (tmp_path / "server.pem").write_text("no certificate")
        files.load_soon(done.put_nowait)
        assert "server.pem" in str(await done.get())
    assert files.context is context
    assert len(readers) == 2
    assert threading.get_ident() not in readers
    following.cancel()
    await asyncio.wait([following])


async def test_without_files_there_is_nothing_to_read_and_that_is_said():
    files = server_files(TlsConfig())
    following = asyncio.create_task(files.follow())
    done: asyncio.Future[ConfigError | None] = asyncio.get_running_loop().create_future()
    files.load_soon(done.set_result)
    async with asyncio.timeout(10):
        assert await done is None
    following.cancel()
    await asyncio.wait([following])


def test_a_client_follows_its_trust_too(tmp_path: Path, authority: Authority):
    trust = tmp_path / "trust.pem"
    shutil.copy(tmp_path / "ca.pem", trust)
    files = client_files(TlsConfig(client_enable=True, client_auth_server=True, client_trust=str(trust)))
    files.load()
    context = files.context
    (other := tmp_path / "other").mkdir()
    Authority.create(other, "other")
    shutil.copy(other / "ca.pem", trust)
    files.renew()
    assert files.context is not context
    assert files.context is not None
    [trusted] = files.context.get_ca_certs()
    assert (("commonName", "other"),) in trusted["subject"]


@pytest.mark.parametrize(
    ("left", "problem"),
    [
        (timedelta(days=31), None),
        (timedelta(days=29, hours=1), "expires on 2030-06-30, in 29 days"),
        (timedelta(hours=5), "expires on 2030-06-01"),
        (timedelta(0), "expired on 2030-06-01"),
        (timedelta(days=-40), "expired on 2030-04-22"),
    ],
)
def test_a_certificate_is_announced_from_thirty_days_before_its_end(left: timedelta, problem: str | None):
    assert expiry_problem(NOW + left, NOW) == problem


def test_the_announcement_comes_once_a_day(tmp_path: Path, tls: TlsConfig, authority: Authority, caplog):
    authority.issue(tmp_path, "server", days=10, server=True)
    files = server_files(tls)
    files.load()
    assert caplog.text.count("the server's certificate, ") == 1
    now = datetime.now(UTC)
    files.announce(now + timedelta(hours=23))
    assert caplog.text.count("expires on") == 1
    files.announce(now + timedelta(hours=25))
    assert caplog.text.count("expires on") == 2
    files.announce(now + timedelta(days=11, hours=2))
    assert "expired on" in caplog.text
    authority.issue(tmp_path, "server", days=90, server=True)
    files.renew()
    caplog.clear()
    files.announce(now + timedelta(days=13))
    assert caplog.text == ""


def test_both_ends_refuse_what_is_older_than_tls_1_2(tls: TlsConfig):
    for files in (server_files(tls), client_files(TlsConfig(client_enable=True))):
        files.load()
        assert files.context is not None
        assert files.context.minimum_version is ssl.TLSVersion.TLSv1_2
