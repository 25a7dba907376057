"""What the servers do at signals, and what they tell systemd, as processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import threading

import pytest
from tests.integration.broker.command_kit import children, line_with, started, stop, until
from tests.integration.broker.life_kit import Peer
from tests.integration.remoting.certificates import Authority
from tests.ports import free_port

from pyromq.errors import ConnectionLost
from pyromq.protocol.command import Command
from pyromq.remoting import RemotingClient, TlsConfig

pytestmark = pytest.mark.slow

PATIENCE = 30.0


def broker_settings(folder, port, *more):
    return [f"storePathRootDir={folder}", "brokerIP1=127.0.0.1", f"listenPort={port}", "drainSeconds=0", *more]


def name_server_settings(folder, port, *more):
    return [f"listenPort={port}", f"kvConfigPath={folder}/kv.json", *more]


SERVERS = {"broker": broker_settings, "namesrv": name_server_settings}


@pytest.fixture(params=SERVERS)
def server(request, tmp_path):
    """Start a broker, or a name server, with a settings file; gives the process and its port."""

    def starting(*options, file="", environ=None, settings=()):
        (tmp_path / "server.conf").write_text(file)
        port = free_port()
        arguments = SERVERS[request.param](tmp_path / "store", port, *settings)
        return started(
            tmp_path, request.param, "-c", "server.conf", *options, *arguments, environ=environ
        ), port  # fmt: skip

    return starting


def certificate_of(port):
    """The certificate that a server shows now."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain) as sock:
        return sock.getpeercert(binary_form=True)


def issue(authority, name, folder):
    """Put a certificate where the server looks for it."""
    cert, key = authority.issue(name)
    for source, target in ((cert, "cert.pem"), (key, "key.pem")):
        shutil.copy(source, folder / target)
    return [f"tls.server.certPath={folder}/cert.pem", f"tls.server.keyPath={folder}/key.pem"]


def line_of_log(process, words):
    """The next line on stderr that has these words."""
    seen = []
    hanging = threading.Timer(PATIENCE, process.kill)
    hanging.start()
    try:
        for line in process.stderr:
            seen.append(line)
            if words in line:
                return line
    finally:
        hanging.cancel()
    raise AssertionError("".join(seen))


def test_a_hang_up_signal_renews_the_certificate_and_keeps_the_old_one_if_there_is_no_new_one(tmp_path, server):
    authority = Authority(tmp_path, "authority")
    settings = issue(authority, "first", tmp_path)
    starting, port = server(settings=settings)
    with starting as process:
        line_with(process, "boot success")
        first = certificate_of(port)
        issue(authority, "second", tmp_path)
        assert certificate_of(port) == first
        process.send_signal(signal.SIGHUP)
        line_of_log(process, "reloaded")
        second = certificate_of(port)
        assert second != first
        (tmp_path / "cert.pem").write_text("no certificate")
        process.send_signal(signal.SIGHUP)
        assert "cert.pem" in line_of_log(process, "ERROR")
        assert certificate_of(port) == second
        assert stop(process, signal.SIGTERM)[0] == 0


@pytest.mark.scenario("admin 47")
async def test_an_enforcing_server_says_why_it_closes_and_shows_a_renewed_certificate(tmp_path, server):
    authority = Authority(tmp_path, "authority")
    settings = issue(authority, "first", tmp_path)
    starting, port = server(settings=[*settings, "tls.server.mode=enforcing"])
    tls = TlsConfig(client_enable=True, client_auth_server=True, client_trust=authority.trust)
    unknown = Command.request(9999)
    with starting as process:
        line_with(process, "boot success")
        async with RemotingClient() as plain, RemotingClient(tls=tls) as encrypted:
            with pytest.raises(ConnectionLost):
                await plain.invoke(f"127.0.0.1:{port}", unknown)
            line_of_log(process, "speaks plain text, which is refused here; closing")
            assert (await encrypted.invoke(f"127.0.0.1:{port}", unknown)).code == 3
            first = certificate_of(port)
            issue(authority, "second", tmp_path)
            process.send_signal(signal.SIGHUP)
            line_of_log(process, "reloaded")
            assert certificate_of(port) != first
            assert (await encrypted.invoke(f"127.0.0.1:{port}", unknown)).code == 3
        assert stop(process, signal.SIGTERM)[0] == 0


def test_a_hang_up_signal_takes_over_the_log_levels_of_the_file(tmp_path, server):
    starting, _ = server("--log-level", "error")
    with starting as process:
        line_with(process, "boot success")
        (tmp_path / "server.conf").write_text("logLevel=info\n")
        process.send_signal(signal.SIGHUP)
        line_of_log(process, "INFO")
        (tmp_path / "server.conf").write_text("logLevel: debug\n")
        process.send_signal(signal.SIGHUP)
        line_of_log(process, "reloaded")
        (tmp_path / "server.conf").write_text("logLevel=nonsense\n")
        process.send_signal(signal.SIGHUP)
        assert "logLevel must be one of" in line_of_log(process, "ERROR")
        assert stop(process, signal.SIGTERM)[0] == 0


def test_log_files_are_opened_anew_when_that_is_asked(tmp_path, server):
    starting, _ = server("--log-dir", "logs")
    with starting as process:
        line_with(process, "boot success")
        [file] = (tmp_path / "logs").iterdir()
        moved = file.rename(tmp_path / "moved.log")
        process.send_signal(signal.SIGUSR1)
        until(lambda: file.exists() and "log files reopened" in file.read_text())
        code, _, err = stop(process, signal.SIGTERM)
        assert (code, err) == (0, "")
    assert "stopping on SIGTERM" in file.read_text()
    assert "stopping on SIGTERM" not in moved.read_text()


def test_all_stacks_are_written_when_that_is_asked(server):
    starting, _ = server()
    with starting as process:
        line_with(process, "boot success")
        process.send_signal(signal.SIGUSR2)
        thread = line_of_log(process, "hread 0x")
        assert "most recent call first" in thread
        line_of_log(process, " tasks")
        line_of_log(process, "in run")
        assert stop(process, signal.SIGTERM)[0] == 0


def test_systemd_hears_that_it_is_ready_alive_and_stopping(tmp_path, server):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(20)
        heard = iter(lambda: sock.recv(4096).decode(), None)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
        starting, port = server(environ=environ)
        with starting as process:
            line_with(process, "boot success")
            ready = next(said for said in heard if "READY=1" in said)
            assert f":{port}" in ready
            assert "WATCHDOG=1" in (next(heard), next(heard))
            process.send_signal(signal.SIGHUP)
            assert next(said for said in heard if "RELOADING=1" in said)
            assert next(said for said in heard if "READY=1" in said)
            assert stop(process, signal.SIGTERM)[0] == 0
            assert next(said for said in heard if "STOPPING=1" in said)


async def test_the_log_level_of_a_package_can_be_changed_by_a_request(tmp_path):
    port = free_port()
    with started(tmp_path, "broker", *broker_settings(tmp_path / "store", port), "--log-level", "error") as process:
        line_with(process, "boot success")
        async with Peer() as peer:
            address = f"127.0.0.1:{port}"
            await peer.create_topic(address, "silent")
            await peer.configure(address, "logLevel.broker=info")
            await peer.create_topic(address, "told")
            await peer.configure(address, "logLevel.broker=")
            await peer.create_topic(address, "hushed")
        _, _, err = stop(process, signal.SIGTERM)
    assert "topic told set by" in err
    assert "silent" not in err
    assert "hushed" not in err


def test_signals_reach_the_further_brokers_of_up(tmp_path):
    port = free_port(2)
    options = ["--namesrv-port", "0", "--broker-port", str(port), "--brokers", "2", "--log-dir", "logs"]
    with started(tmp_path, "up", *options, "--log-level", "info") as process:
        line_with(process, "is ready")
        logs = tmp_path / "logs"
        assert sorted(path.name for path in logs.iterdir()) == ["broker-b.log", "up.log"]
        for path in list(logs.iterdir()):
            path.unlink()
        os.kill(process.pid, signal.SIGUSR1)
        for name in ("up.log", "broker-b.log"):
            until(lambda name=name: (logs / name).exists())
        os.kill(process.pid, signal.SIGHUP)
        for name in ("up.log", "broker-b.log"):
            until(lambda name=name: "log levels reloaded" in (logs / name).read_text())
        assert len(children(process)) == 1
        code, _, err = stop(process)
        assert (code, err) == (0, "")
