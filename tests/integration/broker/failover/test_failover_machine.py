"""Three brokers that lead, follow, crash and lose each other at random, while messages come: what must hold."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.integration.broker.failover.replica_kit import Controllers, Line, Replica, assert_equal, eventually, same
from tests.unit.store.kit import bodies

IDS = st.integers(1, 3)


class Group(RuleBasedStateMachine):
    """What was acknowledged, or seen by a consumer, is in the log of every later master, at its place.

    An old master is told late that it is none any more, and has no lease that would stop it: that every member of the
    set must have a message is all that protects it.
    """

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="pyromq-group-"))
        self.lines: dict[int, Line] = {}
        self.controllers = Controllers()
        self.count = 0
        self.trace: list[object] = []
        self.acknowledged: dict[int, bytes] = {}  # by the end of the record
        self.seen: dict[int, bytes] = {}  # by offset in the queue
        self.confirmed = {1: 0, 2: 0, 3: 0}
        self.run(self._start())

    def run(self, coroutine):
        # Sockets have their own time, so a failure may not come again; this is what led to it.
        self.trace.append(coroutine.__qualname__)
        return self.runner.run(coroutine)

    async def _start(self):
        self.replicas = {number: Replica(self.folder, number, self.controllers) for number in (1, 2, 3)}
        self.controllers.elect(1)
        await self.replicas[1].lead()

    @property
    def master(self):
        assert self.controllers.master is not None
        return self.replicas[self.controllers.master]

    @rule(count=st.integers(1, 20), size=st.sampled_from([1, 300]), by=st.none() | IDS)
    def send(self, count, size, by):
        """To the master, or to one that was."""
        self.trace.append(("send", count, size, by))
        replica = self.master if by is None else self.replicas[by]
        if replica.leading is None:
            return

        async def send():
            for _ in range(count):
                self.count += 1
                self._send(replica, b"%d " % self.count + b"x" * size)

        self.run(send())

    def _send(self, replica, body):
        end = replica.append(body)

        def acknowledged():
            assert end not in self.acknowledged
            self.acknowledged[end] = body

        replica.keeper.when_had(end, acknowledged)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.01, 0.05]))
    def wait(self, seconds):
        self.trace.append(("wait", seconds))
        self.run(asyncio.sleep(seconds))

    @rule()
    def catch_up(self):
        """All that follow the master have its log and belong to the set."""
        if self.master.leading is None:
            return
        wanted = [each.id for each in self.replicas.values() if each.following and each.master == self.master.address]

        async def wait():
            with contextlib.suppress(TimeoutError):  # if a line broke
                await eventually(lambda: self.controllers.in_sync.members.issuperset(wanted), patience=2)

        self.run(wait())

    @rule(number=IDS, budget=st.none() | st.integers(0, 3000))
    def follow(self, number, budget):
        """Follow the master, over a line that may break anywhere."""
        self.trace.append(("follow", number, budget))
        replica = self.replicas[number]
        if self.master.leading is None or replica is self.master:
            return

        async def follow():
            await self._hang_up(number)
            address = self.master.address
            if budget is not None:
                line = self.lines[number] = Line(address, budget)
                address = await line.open()
            await replica.follow(address)

        self.run(follow())

    async def _hang_up(self, number):
        line = self.lines.pop(number, None)
        if line is not None:
            await line.close()

    @rule(number=IDS)
    def elect(self, number):
        """Make a member of the set the master. The old one goes on as if nothing had happened."""
        self.trace.append(("elect", number))
        if number not in self.controllers.in_sync.members:
            return
        self.controllers.elect(number)

        async def lead():
            await self._hang_up(number)
            await self.replicas[number].lead()

        self.run(lead())

    @rule(number=IDS)
    def crash(self, number):
        """Killed, and started again; nobody follows or leads until it is told."""
        self.trace.append(("crash", number))
        replica = self.replicas[number]
        self.confirmed[number] = 0

        async def crash():
            await self._hang_up(number)
            await replica.crash()

        self.run(crash())

    @rule(number=IDS)
    def rest(self, number):
        self.trace.append(("rest", number))
        self.run(self._rest(number))

    async def _rest(self, number):
        await self._hang_up(number)
        await self.replicas[number].rest()

    @precondition(lambda self: hasattr(self, "replicas"))
    @invariant()
    def what_is_seen_stays(self):
        for replica in self.replicas.values():
            assert replica.store.confirmed >= self.confirmed[replica.id], str(self.trace)
            self.confirmed[replica.id] = replica.store.confirmed
            for offset, body in enumerate(bodies(replica.store)):
                assert self.seen.setdefault(offset, body) == body, str(self.trace)

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            if hasattr(self, "replicas"):
                self.run(self._heal())
        finally:
            self.runner.close()
            shutil.rmtree(self.folder)

    async def _heal(self):
        """In the end all have the same log, and everything that was promised is in it."""
        for number in self.replicas:
            await self._hang_up(number)
        master = self.master
        if master.leading is None:
            self.controllers.elect(master.id)
            await master.lead()
        others = [each for each in self.replicas.values() if each is not master]
        for each in others:
            await each.follow(master.address)
        await eventually(lambda: len(self.controllers.in_sync.members) == 3)
        self._send(master, b"last")
        await eventually(lambda: b"last" in self.acknowledged.values())
        await eventually(lambda: same(*self.replicas.values()))
        await eventually(lambda: all(each.store.confirmed == master.end for each in others))
        found = {}
        queue = master.store.queue("T", 0)
        for offset, body in enumerate(bodies(master.store)):
            physical, size, _ = queue.entry(offset)
            found[physical + size] = body
            assert self.seen.get(offset, body) == body, str(self.trace)
        assert len(self.seen) <= len(found), str(self.trace)
        for end, body in self.acknowledged.items():
            assert found.get(end) == body, str((body, self.trace))
        assert_equal(*self.replicas.values())
        for each in self.replicas.values():
            assert bodies(each.store) == list(found.values())
            await each.close()


Group.TestCase.settings = settings(
    max_examples=int(os.environ.get("PYROMQ_ROUNDS", "25")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestGroup = pytest.mark.slow(Group.TestCase)
