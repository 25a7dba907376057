"""The properties file for TLS that settings may name, and certificates made on the spot."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from pyromq.errors import ConfigError
from pyromq.remoting import TlsConfig, TlsMode
from pyromq.remoting.issuing import self_signed
from pyromq.remoting.tls import client_context, server_context, with_tls_file
from pyromq.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tls_file(tmp_path: Path) -> Path:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.mode=enforcing\ntls.server.keyPassword=secret\nsomething.else=7\n")
    return file


def test_the_file_counts_where_nothing_else_is_set(tls_file: Path):
    sets = [f"tls.config.file={tls_file}", "tls.server.keyPassword=chosen"]
    tls = with_tls_file(Settings.load(TlsConfig, sets=sets))[TlsConfig]
    assert tls.mode is TlsMode.ENFORCING
    assert tls.server_key_password == "chosen"


def test_a_default_that_was_chosen_wins_over_the_file(tls_file: Path):
    sets = [f"tls.config.file={tls_file}", "tls.server.mode=permissive"]
    assert with_tls_file(Settings.load(TlsConfig, sets=sets))[TlsConfig].mode is TlsMode.PERMISSIVE


def test_the_default_file_may_be_missing_and_a_chosen_one_may_not(tmp_path: Path):
    settings = Settings.load(TlsConfig)
    assert with_tls_file(settings)[TlsConfig] == settings[TlsConfig]
    missing = Settings.load(TlsConfig, sets=[f"tls.config.file={tmp_path / 'missing'}"])
    with pytest.raises(ConfigError, match="missing"):
        with_tls_file(missing)


def test_a_self_signed_certificate_is_valid_for_years_and_new_each_time():
    now = datetime(2030, 1, 1, tzinfo=UTC)
    first, second = (x509.load_pem_x509_certificate(self_signed(now)) for _ in range(2))
    assert first.not_valid_before_utc < now
    assert first.not_valid_after_utc.year >= 2039
    assert first.serial_number != second.serial_number


def test_without_certificate_and_test_mode_there_is_no_tls():
    assert server_context(TlsConfig()) is None
    assert server_context(TlsConfig(test_mode=True)) is not None


def test_who_is_asked_for_a_certificate():
    def mode(**settings: object) -> ssl.VerifyMode:
        context = server_context(TlsConfig(test_mode=True, **settings))  # type: ignore[arg-type]  # settings of several types
        assert context is not None
        return context.verify_mode

    assert mode() is ssl.CERT_NONE
    assert mode(server_auth_client=True) is ssl.CERT_OPTIONAL
    assert mode(server_need_client_auth="optional") is ssl.CERT_OPTIONAL
    assert mode(server_need_client_auth="require") is ssl.CERT_REQUIRED
    assert client_context(TlsConfig()).verify_mode is ssl.CERT_NONE
    assert client_context(TlsConfig(client_auth_server=True)).verify_mode is ssl.CERT_REQUIRED
