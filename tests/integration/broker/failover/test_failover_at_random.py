"""Three brokers that lead, follow, crash and lose each other at random, while messages come: what must hold.

Sockets have their own time, so the same seed may not lead to the same end; a failure says what was done before it.
`PYROMQ_ROUNDS=300` runs more rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random

import pytest
from tests.integration.broker.failover.replica_kit import Controllers, Line, Replica, assert_equal, eventually, same
from tests.unit.store.kit import bodies

STEPS = 40
WEIGHTS = {"send": 8, "send_to_any": 4, "wait": 5, "catch_up": 3, "follow": 6, "elect": 3, "crash": 2, "rest": 2}


class Group:
    """What was acknowledged, or seen by a consumer, is in the log of every later master, at its place.

    An old master is told late that it is none any more, and has no lease that would stop it: that every member of the
    set must have a message is all that protects it.
    """

    def __init__(self, folder, seed):
        self.random = random.Random(seed)
        self.trace: list[object] = [seed]
        self.controllers = Controllers()
        self.replicas = {number: Replica(folder, number, self.controllers) for number in (1, 2, 3)}
        self.lines: dict[int, Line] = {}
        self.count = 0
        self.acknowledged: dict[int, bytes] = {}  # by the end of the record
        self.seen: dict[int, bytes] = {}  # by offset in the queue
        self.confirmed = {1: 0, 2: 0, 3: 0}

    async def live(self):
        self.controllers.elect(1)
        await self.replicas[1].lead()
        for number in (2, 3):
            await self.follow(number)
        for _ in range(STEPS):
            (what,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
            await getattr(self, what)()
            await self.check()
        await self.heal()

    async def close(self):
        for number, replica in self.replicas.items():
            await self._hang_up(number)
            await replica.close()

    def note(self, *what):
        self.trace.append(what)

    def any(self):
        return self.random.randint(1, 3)

    @property
    def master(self):
        assert self.controllers.master is not None
        return self.replicas[self.controllers.master]

    # What may happen

    async def send(self):
        self._send_to(self.master)

    async def send_to_any(self):
        """Also to one that was master and does not know better."""
        self._send_to(self.replicas[self.any()])

    def _send_to(self, replica):
        if replica.leading is None:
            return
        count, size = self.random.randint(1, 20), self.random.choice([1, 300])
        self.note("send", replica.id, count, size)
        for _ in range(count):
            self.count += 1
            self._store(replica, b"%d " % self.count + b"x" * size)

    def _store(self, replica, body):
        end = replica.append(body)

        def acknowledged():
            assert end not in self.acknowledged, self.trace
            self.acknowledged[end] = body

        replica.keeper.when_had(end, acknowledged)

    async def wait(self):
        seconds = self.random.choice([0.0, 0.001, 0.01, 0.05])
        self.note("wait", seconds)
        await asyncio.sleep(seconds)

    async def catch_up(self):
        """All that follow the master have its log and belong to the set, unless a line breaks."""
        if self.master.leading is None:
            return
        self.note("catch up")
        wanted = [each.id for each in self.replicas.values() if each.following and each.master == self.master.address]
        with contextlib.suppress(TimeoutError):
            await eventually(lambda: self.controllers.in_sync.members.issuperset(wanted), patience=2)

    async def follow(self, number=None):
        """Follow the master, over a line that may break anywhere."""
        number = number or self.any()
        if self.master.leading is None or number == self.master.id:
            return
        await self._hang_up(number)
        address = self.master.address
        budget = self.random.choice([None, None, self.random.randint(0, 3000)])
        self.note("follow", number, budget)
        if budget is not None:
            line = self.lines[number] = Line(address, budget)
            address = await line.open()
        await self.replicas[number].follow(address)

    async def _hang_up(self, number):
        await self.replicas[number].rest()
        line = self.lines.pop(number, None)
        if line is not None:
            await line.close()

    async def elect(self):
        """Make a member of the set the master. The old one goes on as if nothing had happened."""
        members = sorted(self.controllers.in_sync.members - {self.master.id}) or [self.master.id]
        number = self.random.choice(members)
        self.note("elect", number, self.controllers.epoch + 1)
        self.controllers.elect(number)
        await self._hang_up(number)
        await self.replicas[number].lead()

    async def crash(self):
        """Killed, and started again; it neither follows nor leads until it is told."""
        number = self.any()
        self.note("crash", number)
        self.confirmed[number] = 0
        await self._hang_up(number)
        await self.replicas[number].crash()

    async def rest(self):
        number = self.any()
        self.note("rest", number)
        await self._hang_up(number)

    # What must hold

    async def check(self):
        for replica in self.replicas.values():
            while replica.busy:
                await asyncio.wait(replica.busy)
            assert replica.store.confirmed >= self.confirmed[replica.id], self.trace
            self.confirmed[replica.id] = replica.store.confirmed
            for offset, body in enumerate(bodies(replica.store)):
                assert self.seen.setdefault(offset, body) == body, self.trace

    async def heal(self):
        """In the end all have the same log, and everything that was promised is in it."""
        self.note("heal")
        master = self.master
        for number in self.replicas.keys() - {master.id}:
            await self._hang_up(number)
        if master.leading is None:
            self.controllers.elect(master.id)
            await master.lead()
        others = [each for each in self.replicas.values() if each is not master]
        for each in others:
            await each.follow(master.address)
        try:
            await eventually(lambda: len(self.controllers.in_sync.members) == 3)
            self._store(master, b"last")
            await eventually(lambda: b"last" in self.acknowledged.values())
            await eventually(lambda: same(*self.replicas.values()))
            await eventually(lambda: all(each.store.confirmed == master.end for each in others))
        except TimeoutError:
            problems = [each.following and each.following.problem for each in others]
            raise AssertionError((self.trace, problems, self.controllers.in_sync)) from None
        found = {}
        queue = master.store.queue("T", 0)
        for offset, body in enumerate(bodies(master.store)):
            physical, size, _ = queue.entry(offset)
            found[physical + size] = body
            assert self.seen.get(offset, body) == body, self.trace
        assert len(self.seen) <= len(found), self.trace
        for end, body in self.acknowledged.items():
            assert found.get(end) == body, (body, self.trace)
        assert_equal(*self.replicas.values())
        for each in self.replicas.values():
            assert bodies(each.store) == list(found.values()), self.trace


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("PYROMQ_ROUNDS", "12"))))
async def test_nothing_acknowledged_or_seen_is_lost(tmp_path, seed):
    group = Group(tmp_path, seed)
    try:
        await group.live()
    finally:
        await group.close()
