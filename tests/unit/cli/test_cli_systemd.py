"""What systemd is told, and the unit that is printed for it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from pathlib import Path

import pytest

from pyromq.cli.main import main
from pyromq.cli.servers.install_unit import Server, unit
from pyromq.cli.servers.systemd import Systemd


@pytest.fixture
def listening(tmp_path):
    """systemd: gives the address, and a function for what arrived."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(5)
        yield path, lambda: sock.recv(4096).decode()


def test_it_is_told_what_happens(listening):
    address, heard = listening
    environ = {"NOTIFY_SOCKET": address, "PATH": "/bin"}
    systemd = Systemd.of(environ)
    assert environ == {"PATH": "/bin"}  # others must not speak for us
    systemd.status("opening the store")
    systemd.reloading()  # not yet
    systemd.reloaded()
    systemd.ready("serving")
    systemd.reloading()
    systemd.reloaded()
    systemd.stopping()
    assert heard() == "STATUS=opening the store"
    assert heard() == "READY=1\nSTATUS=serving"
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", heard())
    assert heard() == "READY=1\nSTATUS=serving"
    assert heard() == "STOPPING=1\nSTATUS=stopping"


def test_an_address_may_have_no_file():
    name = f"pyromq-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name)
        Systemd.of({"NOTIFY_SOCKET": "@" + name}).ready("serving")
        assert sock.recv(100) == b"READY=1\nSTATUS=serving"


@pytest.mark.parametrize("address", [None, "", "/nowhere/notify", "@nobody-listens-here", "x" * 500])
def test_nobody_who_listens_is_no_trouble(address):
    Systemd(address).ready("serving")


async def test_the_watchdog_hears_from_a_loop_that_turns(listening):
    address, heard = listening
    systemd = Systemd.of({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "2000", "WATCHDOG_PID": str(os.getpid())})
    alive = asyncio.create_task(systemd.keep_alive())
    for _ in range(3):
        assert await asyncio.to_thread(heard) == "WATCHDOG=1"
    alive.cancel()
    await asyncio.wait([alive])


@pytest.mark.parametrize("said", [{}, {"WATCHDOG_USEC": "2000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
async def test_without_a_watchdog_of_ours_nothing_is_said(listening, said):
    async with asyncio.timeout(5):
        await Systemd.of({"NOTIFY_SOCKET": listening[0]} | said).keep_alive()


def test_a_unit_is_printed(capsys):
    with pytest.raises(SystemExit) as done:
        main(["install-unit", "broker", "-c", "broker.conf", "--user", "mq"])
    assert done.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    for line in (
        "Type=notify",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "KillSignal=SIGTERM",
        "TimeoutStopSec=120",
        "LimitNOFILE=655350",
        "User=mq",
        "NoNewPrivileges=yes",
    ):
        assert line in lines
    [start] = [line for line in lines if line.startswith("ExecStart=")]
    assert start.endswith(f" broker -c {Path.cwd()}/broker.conf")


def test_what_systemd_would_read_as_its_own_is_kept_from_it():
    text = unit(Server.namesrv, Path("/etc/100%/$x.conf"), "mq")
    assert "namesrv -c '/etc/100%%/$$x.conf'" in text
    assert "Description=PyroMQ name server" in text
