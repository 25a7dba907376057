"""What can go wrong: each fault happens, lasts, and is undone."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.testing.proxy import Way

if TYPE_CHECKING:
    from random import Random

    from tests.chaos.group import Group, Member, Server
    from tests.chaos.tally import Tally

    from pyromq.testing import Proxy

LINES = ("client", "slave", "controller")
ROLES = ("master", "slave")

OF_A_BROKER = ("kill", "kill", "stop", "stop", "disk full", "clock jump")
OF_A_LINE = ("reset", "cut", "silence", "silence there", "silence back", "delay", "break in a message")
OF_THE_GROUP = ("kill of the controller", "stop of the controller", "rolling restart", "election by hand")
OF_OTHERS = ("kill of the name server",)
# After these a broker lacks what it had. So they come first, when all brokers have everything, and with nothing that
# could take away the brokers that still have it: who loses all copies at once has lost them.
LOSING = ("power failure", "replacement")
BESIDE_LOSING = ("delay", "clock", "kill of the controller", "stop of the controller")

KINDS = (
    *(f"{what} of the {role}" for what in OF_A_BROKER for role in ROLES),
    *(f"{what} on the {line} line of the {role}" for what in OF_A_LINE for line in LINES for role in ROLES),
    *(what for what in OF_THE_GROUP for _ in range(4)),
    *OF_OTHERS,
    *(f"{what} of the {role}" for what in LOSING for role in ROLES for _ in range(3)),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong `after` so many seconds of a round, and for how long."""

    kind: str
    after: float
    lasts: float
    seed: int  # of whatever else is left to chance


def faults_of_round(chance: Random, kinds: list[str]) -> list[Fault]:
    """One to three faults, at once or one after the other."""
    faults = []
    chosen = chance.sample(kinds, min(len(kinds), chance.choice((1, 1, 2, 2, 3))))
    losing = next((kind for kind in chosen if kind.startswith(LOSING)), None)
    if losing is not None:
        chosen = [losing, *(kind for kind in chosen if kind.startswith(BESIDE_LOSING))]
    for kind in dict.fromkeys(chosen):
        lasts = chance.uniform(0.2, 3.0)
        if kind.startswith("stop"):
            lasts = chance.uniform(1.0, 5.0) if chance.random() < 0.96 else chance.uniform(10.0, 40.0)
        elif kind.startswith("silence"):
            lasts = chance.uniform(0.3, 5.0)
        after = 0.2 if kind == losing else chance.uniform(0.2, 1.5)
        faults.append(Fault(kind, after, lasts, chance.randrange(1 << 30)))
    return faults


async def happen(fault: Fault, group: Group, master: Member, tally: Tally) -> None:
    """Let it happen and undo it. `master` is the one at the beginning of the round."""
    await asyncio.sleep(fault.after)
    tally.faults[fault.kind] += 1
    what, _, whom = fault.kind.partition(" of the ")
    what, _, line = what.partition(" on the ")
    slaves = [member for member in group.members if member is not master]
    slave = slaves[fault.seed % len(slaves)]
    member = slave if whom == "slave" else master
    servers: dict[str, Server] = {"controller": group.controllers[0], "name server": group.namesrv}
    victim = servers.get(whom, member)
    if line:
        await _on_line(what, getattr(member.lines, line.partition(" ")[0]), fault)
        return
    match what:
        case "kill":
            async with victim.alone:
                await victim.kill()
                await asyncio.sleep(fault.lasts)
                await victim.start()
        case "stop":
            async with victim.alone:
                victim.signal(signal.SIGSTOP)
                await asyncio.sleep(fault.lasts)
                victim.signal(signal.SIGCONT)
        case "disk full":
            member.order(f"full {fault.seed % 3000}")
            await asyncio.sleep(fault.lasts)
            member.order("free")
        case "clock jump":
            # Not far ahead: what is delayed meanwhile comes when that clock says so.
            member.order(f"clock {fault.seed % 4 + 2 if fault.seed & 64 else -(fault.seed % 3600)}")
            await asyncio.sleep(fault.lasts)
            member.order("clock 0")
        case "power failure":
            async with member.alone:
                await member.lose_power(fault.seed)
                await asyncio.sleep(fault.lasts / 3)
                await member.start()
        case "replacement":
            async with member.alone:
                await member.kill()
                await member.wipe()
                await asyncio.sleep(fault.lasts / 3)
                await member.start()
        case "rolling restart":
            for each in (*slaves, master):
                async with each.alone:
                    await each.stop()
                    await each.start()
        case "election by hand":
            if slave.id is not None:
                await group.elect(slave.id)
        case _:
            raise AssertionError(fault.kind)


async def _on_line(what: str, proxies: tuple[Proxy, ...], fault: Fault) -> None:
    for proxy in proxies:
        match what:
            case "reset":
                proxy.cut()
            case "cut":
                proxy.refuse()
                proxy.cut()
            case "silence":
                proxy.pause()
            case "silence there":
                proxy.pause(Way.THERE)
            case "silence back":
                proxy.pause(Way.BACK)
            case "delay":
                proxy.delay(0.02 + fault.seed % 100 / 300)
            case "break in a message":
                proxy.end_after(1 + fault.seed % 3000)
            case _:
                raise AssertionError(what)
    await asyncio.sleep(fault.lasts)
    for proxy in proxies:
        if what.startswith("silence") and fault.seed % 2:
            proxy.cut()  # what was held up is lost
        proxy.restore()
