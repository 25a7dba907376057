"""`pyromq up --failover`: groups on one machine, whose master may die."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import contextmanager

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.command_kit import children, is_running, line_with, run, started, stop, until
from tests.ports import free_port

from pyromq import Consumer, Producer, StartAt

pytestmark = pytest.mark.slow

READY = re.compile(r"PyroMQ \S+ is ready: name server (\S+), (\d) broker groups? of (\d), data in (.+)")
MASTER = re.compile(r"(\S+): master \S+ \(process (\d+)\), (\d) slaves? in sync")
NEW_MASTER = re.compile(r"(\S+): \S+ \(process (\d+)\) is master now, epoch \d+")
DATA = ".pyromq"


@contextmanager
def up(home, *arguments, replicas=1):
    """Gives the process, the address of its name server, and the process of the master of each group."""
    options = ("--failover", "--replicas", str(replicas), "--namesrv-port", "0", *arguments)
    with started(home, "up", *options) as process:
        ready = READY.fullmatch(line_with(process, "is ready"))
        assert ready
        lines = [process.stdout.readline().rstrip("\n") for _ in range(int(ready[2]))]
        masters = [line.groups() for line in map(MASTER.fullmatch, lines) if line is not None]
        assert [slaves for _, _, slaves in masters] == [str(replicas)] * int(ready[2]), lines
        where = process.stdout.readline()
        assert re.match(r"Listening on 127\.0\.0\.1:\d+, open to this machine only; nothing is authenticated", where)
        yield process, ready[1], {group: int(master) for group, master, _ in masters}


async def consumed(namesrv, count):
    found = []
    async with (
        asyncio.timeout(TOO_LONG),
        Consumer("readers", {"orders": "*"}, namesrv=namesrv, start_at=StartAt.FIRST) as consumer,
    ):
        async for message in consumer:
            found.append(int(message.body))
            if len(set(found)) == count:
                break
    return found


def log_of(folder):
    return b"".join(path.read_bytes() for path in sorted((folder / "commitlog").iterdir())).rstrip(b"\0")


async def test_a_producer_with_default_settings_survives_the_death_of_a_master(tmp_path):
    ports = ("--broker-port", str(free_port(2)))
    with up(tmp_path, *ports) as (process, namesrv, masters):
        victim = masters["broker-a"]
        assert victim in children(process)
        async with Producer("makers", namesrv=namesrv, timeout=TOO_LONG) as producer:
            for number in range(100):
                if number == 50:
                    os.kill(victim, signal.SIGKILL)
                assert (await producer.send("orders", b"%d" % number)).status.name == "SEND_OK"
        new = NEW_MASTER.fullmatch(line_with(process, "is master now"))
        assert new is not None
        assert new[1] == "broker-a"
        assert int(new[2]) in set(children(process)) - {victim}
        until(lambda: len(others := children(process)) == 2 and victim not in others)
        assert sorted(set(await consumed(namesrv, 100))) == list(range(100))
        code, _, err = stop(process)
        assert code == 0, err
        assert "ended with exit code -9; starting it again" in err
    data = tmp_path / DATA
    assert {path.name for path in data.iterdir()} - {"dashboard"} == {"broker-a", "broker-a-2", "controller"}


async def test_a_send_to_a_frozen_master_is_taken_by_the_next_one(tmp_path):
    """The connection stays open, and nobody answers on it."""
    with up(tmp_path, "--broker-port", str(free_port(2))) as (process, namesrv, masters):
        async with Producer("makers", namesrv=namesrv, timeout=3 * TOO_LONG) as producer:
            await producer.send("orders", b"0")
            frozen = masters["broker-a"]
            os.kill(frozen, signal.SIGSTOP)
            try:
                sent = await asyncio.wait_for(producer.send("orders", b"1"), 2 * TOO_LONG)
                assert sent.status.name == "SEND_OK"
            finally:
                os.kill(frozen, signal.SIGCONT)
        assert sorted(set(await consumed(namesrv, 2))) == [0, 1]
        code, _, err = stop(process)
        assert code == 0, err


async def test_a_restart_finds_everything_and_a_group_again(tmp_path):
    with up(tmp_path, "--brokers", "2", "--broker-port", "0") as (process, namesrv, masters):
        assert masters.keys() == {"broker-a", "broker-b"}
        async with Producer("makers", namesrv=namesrv, timeout=TOO_LONG) as producer:
            for number in range(20):
                await producer.send("orders", b"%d" % number)
        pids = children(process)
        code, _, err = stop(process)
        assert (code, err) == (0, ""), "it stops without a word"
        assert not any(map(is_running, pids))
    assert [path.name for path in (tmp_path / DATA).glob("*/abort")] == []
    assert log_of(tmp_path / DATA / "broker-b") == log_of(tmp_path / DATA / "broker-b-2")
    with up(tmp_path, "--brokers", "2", "--broker-port", "0") as (process, namesrv, masters):
        assert masters.keys() == {"broker-a", "broker-b"}
        assert sorted(set(await consumed(namesrv, 20))) == list(range(20))
        stop(process)


async def test_messages_from_before_are_still_there(tmp_path):
    """The broker that has them becomes master, not an empty one."""
    with started(tmp_path, "up", "--namesrv-port", "0", "--broker-port", "0") as process:
        namesrv = line_with(process, "is ready").partition("name server ")[2].partition(",")[0]
        async with Producer("makers", namesrv=namesrv, timeout=TOO_LONG) as producer:
            await producer.send("orders", b"7")
        stop(process)
    with up(tmp_path, "--broker-port", "0") as (process, namesrv, _):
        assert await consumed(namesrv, 1) == [7]
        stop(process)
    assert b"7" in log_of(tmp_path / DATA / "broker-a-2")
    code, _, err = run(tmp_path, "up", "--namesrv-port", "0", "--broker-port", "0")
    assert code == 1
    assert "add --failover, with --replicas as before" in err


def test_it_needs_a_slave(tmp_path):
    code, out, err = run(tmp_path, "up", "--failover")
    assert (code, out) == (1, "")
    assert err == "pyromq up: --failover needs a slave that can take over: add --replicas 1 or more\n"
