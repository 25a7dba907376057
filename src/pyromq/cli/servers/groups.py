"""Broker groups that fail over, on one machine (`pyromq up --failover`).

Each member is a process. The controller in this process decides which of them is master.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.controller.replicas import Group
from pyromq.errors import ConfigError
from pyromq.remoting.service import Service

from . import serving
from .fleet import Fleet, Member

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

IDENTITY_FILE = "brokerIdentity"

_FIRST_MASTER = 30.0  # seconds for the first broker of a new group to become master
_IN_SYNC = 15.0  # and for the others to catch up, before the command says that it is ready
_LOOK_AGAIN = 0.05


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A broker of a group: the process, and where its data is."""

    group: str
    folder: Path
    process: Member

    @property
    def broker_id(self) -> int | None:
        """The id that the controller gave it; None before that."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / IDENTITY_FILE).read_text().rpartition("#")[2])
        return None


class Groups(Service):
    """Runs the members that were added until cancelled. `groups` gives what the controller has decided, by group name.

    `report`, if set, gets a line for people whenever a group has a new master. `rest` is called when masters need no
    successors any more.
    """

    def __init__(self, groups: Callable[[], Mapping[str, Group]], rest: Callable[[], None]) -> None:
        self._members: list[GroupMember] = []
        self._groups = groups
        self._rest = rest
        self._fleets: list[Fleet] = []
        self.report: Callable[[str], None] | None = None

    def add(self, members: Sequence[GroupMember]) -> None:
        """Before it runs."""
        self._members += members

    def elected(self, group: Group) -> None:
        """The controller elected a master."""
        if self.report is not None:
            self.report(f"{group.name}: {self._master_of(group)} is master now, epoch {group.master_epoch}")

    def reload(self) -> None:
        for fleet in self._fleets:
            fleet.reload()

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on to every member."""
        for fleet in self._fleets:
            fleet.send(number)

    async def run(self, listening: Callable[[], None] | None = None) -> None:
        # The first broker of a new group may have messages from the time before it was one; the others are empty, and
        # whoever comes first becomes master.
        seen = set(self._groups())
        first: list[GroupMember] = []
        for member in self._members:
            if member.group not in seen:
                seen.add(member.group)
                first.append(member)
        async with contextlib.AsyncExitStack() as life:
            for members in (first, [each for each in self._members if each not in first]):
                if not members:
                    continue
                fleet = Fleet([each.process for each in members])
                self._fleets.append(await life.enter_async_context(fleet))
                if members is first:
                    await self._have_masters([each.group for each in first])
            life.push_async_callback(self._stop_masters)
            await self._are_in_sync()
            if listening is not None:
                listening()
            await serving.first_ended(self._fleets)

    async def _have_masters(self, names: list[str]) -> None:
        if not await _until(lambda: all(self._group(name).master is not None for name in names), _FIRST_MASTER):
            raise ConfigError(f"{names[0]} has no master after {_FIRST_MASTER:g} s")

    async def _are_in_sync(self) -> None:
        """Wait for that, but not for ever: a broker that has much to copy joins later."""
        await _until(lambda: not any(missing for _, missing in self._standings()), _IN_SYNC)

    def lines(self) -> list[str]:
        """Who is master of which group, for people."""
        lines = []
        for group, missing in self._standings():
            if group.master is None:
                lines.append(f"{group.name}: no master yet")
                continue
            slaves = len(group.sync_state_set) - 1
            text = f"{group.name}: master {self._master_of(group)}, {slaves} slave{'' if slaves == 1 else 's'} in sync"
            lines.append(text + (f", {missing} not yet" if missing else ""))
        return lines

    def _master_of(self, group: Group) -> str:
        """Its address, and its process, which people may want to kill."""
        address = group.address_of(group.master) or "unknown"
        pids = {name: pid for fleet in self._fleets for name, pid in fleet.pids().items()}
        for member in self._members:
            if (member.group, member.broker_id) == (group.name, group.master) and member.process.name in pids:
                return f"{address} (process {pids[member.process.name]})"
        return address

    def _standings(self) -> list[tuple[Group, int]]:
        """Each group, and how many of its members are not in sync."""
        sizes: dict[str, int] = {}
        for member in self._members:
            sizes[member.group] = sizes.get(member.group, 0) + 1
        groups = [(self._group(name), size) for name, size in sizes.items()]
        return [
            (group, size if group.master is None else max(size - len(group.sync_state_set), 0))
            for group, size in groups
        ]

    def _group(self, name: str) -> Group:
        return self._groups().get(name) or Group(cluster="", name=name)

    async def _stop_masters(self) -> None:
        """Masters end before their slaves, which get the rest first."""
        self.report = None
        masters = {(group.name, group.master) for group, _ in self._standings()}
        names = {each.process.name for each in self._members if (each.group, each.broker_id) in masters}
        await asyncio.gather(*(fleet.stop(names) for fleet in self._fleets))
        self._rest()


async def _until(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait for what the controller decides; returns False if that takes too long."""
    for _ in range(int(seconds / _LOOK_AGAIN)):
        if holds():
            return True
        await asyncio.sleep(_LOOK_AGAIN)
    return holds()
