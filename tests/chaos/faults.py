"""What can go wrong: each fault happens, lasts, and is undone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.chaos.lines import Line

from pyromq.testing.proxy import Way

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.chaos.group import Group
    from tests.chaos.server import Member, Server
    from tests.chaos.tally import Tally

ROLES = ("master", "slave")
# What a broker's line leads to; "peer" is one other broker, "world" is everybody.
LINES = ("client", "slave", "peer", "controller", "name server", "world")

OF_A_BROKER = ("kill", "kill", "kill", "stop", "stop", "stop", "disk full", "disk full", "clock jump", "clock jump")
OF_A_LINE = ("reset", "cut", "silence", "silence there", "silence back", "delay", "loss", "break in a message")
OF_SERVERS = tuple(f"{what} of the {whom}" for what in ("kill", "stop") for whom in ("controller", "name server"))
OF_THE_GROUP = ("rolling restart", "election by hand")
# After these a broker lacks what it had: under ASYNC_FLUSH an acknowledged message is in the memory of the in-sync set
# only, and who is replaced has nothing. Then another broker of the set must still have it, so there is only one such
# fault in a round, and what befalls other brokers does so from that moment on: before, it could leave the broker alone
# in the set, and what it acknowledged alone would be lost, as ASYNC_FLUSH allows. Those who decide may be gone at any
# time: without them nobody leaves the set.
LOSING = ("power failure", "replacement")

# With one controller; "the controller" is the one that leads.
KINDS = (
    *(f"{what} of the {role}" for what in OF_A_BROKER for role in ROLES),
    *(f"{what} on the {line} line of the {role}" for what in OF_A_LINE for line in LINES for role in ROLES),
    *(f"{what} on the name server line of the client" for what in OF_A_LINE),
    *(what for what in (*OF_SERVERS, *OF_THE_GROUP) for _ in range(5)),
    *(f"{what} of the {role}" for what in LOSING for role in ROLES for _ in range(6)),
)

IN_ETCD = ("etcd leader", "etcd follower")
# With three controllers and etcd.
ETCD_KINDS = (
    *KINDS,
    *(f"kill of the {whom}" for whom in ("other controller", *IN_ETCD) for _ in range(5)),
    *(f"stop of the {whom}" for whom in ("other controller", *IN_ETCD) for _ in range(5)),
    *(f"rolling restart of the {whom}" for whom in ("controllers", "etcd members") for _ in range(3)),
    *("kill of the etcd majority" for _ in range(3)),
    *(f"{what} on the etcd line of the controller" for what in OF_A_LINE for _ in range(2)),
    *(f"{what} on the peer line of the {whom}" for what in OF_A_LINE for whom in IN_ETCD),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong `after` so many seconds of a round, and for how long."""

    kind: str
    after: float
    lasts: float
    seed: int  # of whatever else is left to chance

    def __str__(self) -> str:
        return f"{self.kind} (after {self.after:.1f} s, for {self.lasts:.1f} s)"


def faults_of_round(chance: Random, kinds: list[str]) -> list[Fault]:
    """One to three faults, at once or one after the other, at most one of which loses something."""
    chosen = chance.sample(kinds, min(len(kinds), chance.choice((1, 1, 2, 2, 3))))
    losing = next((kind for kind in chosen if kind.startswith(LOSING)), None)
    if losing is not None and chance.random() < 0.8:
        chosen += chance.sample(kinds, min(len(kinds), 5))  # a loss alone is seldom of interest
    others = [kind for kind in dict.fromkeys(chosen) if not kind.startswith(LOSING)]
    faults: list[Fault] = []
    for kind in others if losing is None else [losing, *others[: chance.choice((1, 1, 2))]]:
        lasts = chance.uniform(0.2, 3.0)
        if kind.startswith("stop"):
            lasts = 40 ** chance.random() ** 4  # 1 to 40 s, and one of ten longer than 10
        elif kind.startswith("silence"):
            lasts = chance.uniform(0.3, 5.0)
        after = chance.uniform(0.2, 1.5)
        if losing is not None and kind != losing and chance.random() < 0.5:
            after = faults[0].after  # in the same moment
        faults.append(Fault(kind, after, lasts, chance.randrange(1 << 30)))
    return faults


def decides(kind: str) -> bool:
    """Whether it befalls only those who decide about the group."""
    return kind.endswith(("controller", "controllers", *IN_ETCD, "etcd members", "etcd majority"))


def lost(faults: list[Fault], *, on_disk: bool) -> asyncio.Event:
    """Set once a broker has lost something, or if no other fault has to wait for that."""
    event = asyncio.Event()
    if not any(fault.kind.startswith("replacement" if on_disk else LOSING) for fault in faults):
        event.set()
    return event


async def happen(fault: Fault, group: Group, master: Member, lost: asyncio.Event, tally: Tally) -> None:
    """Let it happen and undo it. `master` is the one at the beginning of the round."""
    await asyncio.sleep(fault.after)
    if not fault.kind.startswith(LOSING) and not decides(fault.kind):
        await lost.wait()
    tally.faults[fault.kind] += 1
    what, _, whom = fault.kind.partition(" of the ")
    what, _, line = what.partition(" on the ")
    slaves = [member for member in group.members if member is not master]
    slave = slaves[fault.seed % len(slaves)]
    member = slave if whom == "slave" else master
    if line:
        await _on_line(what, await _line(line.removesuffix(" line"), whom, member, group, fault), fault)
        return
    match what:
        case "kill" if whom == "etcd majority":
            assert group.etcd is not None
            await asyncio.gather(*(_kill(each, fault.lasts) for each in group.etcd.members[fault.seed % 2 :][:2]))
        case "kill":
            await _kill(await _server(whom, member, group, fault), fault.lasts)
        case "stop":
            await _stop(await _server(whom, member, group, fault), fault.lasts)
        case "disk full":
            member.order(f"full {fault.seed % 3000}")
            await asyncio.sleep(fault.lasts)
            member.order("free")
        case "clock jump":
            # Not far ahead: what is delayed meanwhile comes when that clock says so.
            member.order(f"clock {fault.seed % 4 + 2 if fault.seed & 64 else -(fault.seed % 3600)}")
            await asyncio.sleep(fault.lasts)
            member.order("clock 0")
        case "power failure" | "replacement":
            async with member.alone:
                async with _in_one_moment(member, group, fault):
                    if what == "power failure":
                        await member.lose_power(fault.seed)
                    else:
                        await member.kill()
                        await member.wipe()
                    lost.set()
                await asyncio.sleep(fault.lasts / 3)
                await member.start()
        case "rolling restart":
            servers: list[Server] = [*slaves, master]
            if whom == "controllers":
                servers = [*group.controllers]
            elif whom:
                assert group.etcd is not None
                servers = [*group.etcd.members]
            for each in servers:
                async with each.alone:
                    await each.stop()
                    await each.start()
        case "election by hand":
            if slave.id is not None:
                await group.elect(slave.id)
        case _:
            raise AssertionError(fault.kind)


@contextlib.asynccontextmanager
async def _in_one_moment(member: Member, group: Group, fault: Fault) -> AsyncIterator[None]:
    """Half of the time the other brokers notice nothing of what befalls this one until something befalls them, too."""
    others = [each for each in group.members if each is not member and not each.alone.locked() and each.is_running]
    if fault.seed & 1 << 20:
        others = []
    for each in others:
        each.signal(signal.SIGSTOP)
    try:
        yield
        await asyncio.sleep(fault.seed % 3 * 0.05)
    finally:
        for each in others:
            if each.is_running and not each.stands_still:
                each.signal(signal.SIGCONT)


async def _kill(server: Server, lasts: float) -> None:
    async with server.alone:
        await server.kill()
        await asyncio.sleep(lasts)
        await server.start()


async def _stop(server: Server, lasts: float) -> None:
    async with server.alone:
        server.stands_still = True
        server.signal(signal.SIGSTOP)
        await asyncio.sleep(lasts)
        server.signal(signal.SIGCONT)
        server.stands_still = False


async def _server(whom: str, member: Member, group: Group, fault: Fault) -> Server:
    """Whom a fault befalls. If it is unknown who leads, chance decides."""
    servers: list[Server]
    leader: Server | None
    match whom:
        case "name server":
            return group.namesrv
        case "controller" | "other controller":
            servers, leader = [*group.controllers], await group.leader()
        case "etcd leader" | "etcd follower":
            assert group.etcd is not None
            servers, leader = [*group.etcd.members], await group.etcd.leader()
        case _:
            return member
    leads = leader or servers[fault.seed % len(servers)]
    others = [server for server in servers if server is not leads]
    return others[fault.seed % len(others)] if whom in ("other controller", "etcd follower") else leads


async def _line(line: str, whom: str, member: Member, group: Group, fault: Fault) -> Line:
    """The line, by the name of its other end, of whom it is."""
    others = [each.lines for each in group.members if each is not member]
    match line, whom:
        case "name server", "client":
            return group.client_line
        case "etcd", "controller":
            server = await _server(whom, member, group, fault)
            return next(each.etcd for each in group.controllers if each is server)
        case "peer", "etcd leader" | "etcd follower":
            assert group.etcd is not None
            server = await _server(whom, member, group, fault)
            return Line(to=tuple(each.peers for each in group.etcd.members if each is server))
        case "client", _:
            return member.lines.with_clients()
        case "slave", _:
            return member.lines.with_slaves()
        case "peer", _:
            return member.lines.with_broker(others[fault.seed % len(others)])
        case "controller", _:
            return member.lines.with_controllers()
        case "name server", _:
            return member.lines.with_name_server()
        case "world", _:
            return member.lines.with_all(others)
        case _:
            raise AssertionError(fault.kind)


async def _on_line(what: str, line: Line, fault: Fault) -> None:
    match what:
        case "reset":
            line.cut()
        case "cut":
            line.refuse()
            line.cut()
        case "silence":
            line.pause()
        case "silence there":
            line.pause(Way.THERE)
        case "silence back":
            line.pause(Way.BACK)
        case "delay":
            line.delay(0.02 + fault.seed % 100 / 300)
        case "loss":
            await line.lose(fault.lasts, Random(fault.seed))
            return
        case "break in a message":
            line.end_after(1 + fault.seed % 3000)
        case _:
            raise AssertionError(what)
    await asyncio.sleep(fault.lasts)
    if what.startswith("silence") and fault.seed % 2:
        line.cut()  # what was held up is lost
    line.restore()
