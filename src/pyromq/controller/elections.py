"""Elections that the controller starts by itself, when a master is gone (docs/spec/controller.md 3.2).

After a start, nobody has beaten yet, and every master would seem gone. So groups that were known before have no
election for one heartbeat time-out of their master; by then everybody who lives has been heard.

A controller that begins to lead waits as long, even for a master that it has heard and that is gone now. The lease of
such a master is from the leader before, and counts on the connection to that one: it may go on although the connection
to this controller has ended. But it is shorter than the time-out, and began before this controller led.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from pyromq.errors import NotDecided, NotLeader

from .liveness import LONGEST_GAP, BrokerKey
from .replicas import ElectMasterEvent
from .verdicts import NOBODY, Refusal, elect_master

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from .config import LiveSettings
    from .decisions import Decisions, Turns
    from .election import Standing
    from .liveness import Liveness
    from .replicas import Group

logger = logging.getLogger(__name__)

# Seconds.
_PAUSE = 0.1
_LONGEST_SLEEP = LONGEST_GAP / 2
_JUST_AFTER = 0.001


class Elections:
    """Watches masters and replaces those that are gone. `elected` is told of every new master."""

    def __init__(
        self,
        decisions: Decisions,
        turns: Turns,
        liveness: Liveness,
        settings: LiveSettings,
        *,
        clock: Callable[[], float],
        elected: Callable[[Group], None],
    ) -> None:
        self._decisions = decisions
        self._turns = turns
        self._liveness = liveness
        self._settings = settings
        self._clock = clock
        self._elected = elected
        self._known_before: frozenset[str] = frozenset()
        self._began = clock()
        self._is_resting = False
        self._under_way: set[str] = set()
        self._wanted: asyncio.Queue[str] = asyncio.Queue()
        self._look = asyncio.Event()

    def started(self) -> None:
        """The groups are known; from now on everybody has a time-out to be heard."""
        self._known_before = frozenset(self._decisions.groups)
        self._began = self._clock()

    def led(self) -> None:
        """This controller began or ceased to lead. A new leader may not have heard everybody yet, as after a start."""
        if self._decisions.is_leader:
            self.started()
        self.look_now()

    def rest(self) -> None:
        """Elect nobody any more."""
        self._is_resting = True

    def look_now(self) -> None:
        """Check all groups now: intervals changed, or who leads."""
        self._look.set()

    def inactive(self, keys: Iterable[BrokerKey], why: str) -> None:
        """These brokers are gone. A master needs a successor; the master itself drops others from the set."""
        for key in keys:
            logger.info("broker gone name=%s id=%d cluster=%s: %s", key.name, key.id, key.cluster, why)
            group = self._decisions.groups.get(key.name)
            if group is not None and (group.cluster, group.master) == (key.cluster, key.id):
                self._want(key.name)

    def standings(self, group: Group | None) -> dict[int, Standing]:
        """The live members of a group."""
        return {} if group is None else self._liveness.standings(group.cluster, group.name, self._clock())

    def is_alive(self, cluster: str, name: str, broker_id: int) -> bool:
        return self._liveness.is_alive(BrokerKey(cluster, name, broker_id), self._clock())

    async def run(self, close: Callable[[Hashable], None]) -> None:
        """Watch until cancelled. `close` ends the connection of a silent broker."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_silent(close), name="drop silent brokers")
            tasks.create_task(self._watch_masters(), name="look for masters")
            while True:
                name = await self._wanted.get()
                tasks.create_task(self._elect(name), name=f"elect {name}")

    def _want(self, name: str) -> None:
        if not self._decisions.is_leader or self._is_resting or name in self._under_way:
            return
        if self._clock() < self._waits_until(name):
            return  # `_watch_masters` looks again
        self._under_way.add(name)
        self._wanted.put_nowait(name)

    def _waits_until(self, name: str) -> float:
        """When a group may have its first election."""
        group = self._decisions.groups.get(name)
        if name not in self._known_before or group is None or group.master is None:
            return self._began
        return self._began + self._liveness.timeout(BrokerKey(group.cluster, name, group.master))

    async def _watch_silent(self, close: Callable[[Hashable], None]) -> None:
        while True:
            now = self._clock()
            keys, connections = self._liveness.expire(now)
            self.inactive(keys, "silent for too long")
            for connection in connections:
                close(connection)
            interval = self._settings.config.scan_not_active_broker_interval / 1000
            end = self._liveness.next_end()
            until_end = interval if end is None else max(end - now, 0) + _JUST_AFTER
            await asyncio.sleep(min(interval, until_end, _LONGEST_SLEEP))

    async def _watch_masters(self) -> None:
        while True:
            if self._decisions.is_leader:
                for name, group in tuple(self._decisions.groups.items()):
                    alive = self.standings(group)
                    if alive and group.master is not None and group.master not in alive:
                        self._want(name)
            interval = self._settings.config.scan_inactive_master_interval / 1000
            now = self._clock()
            waits = [until - now + _JUST_AFTER for until in map(self._waits_until, self._known_before) if until >= now]
            self._look.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min([interval, *waits])):
                    await self._look.wait()

    async def _elect(self, name: str) -> None:
        try:
            for _ in range(self._settings.config.elect_master_max_retry_count):
                try:
                    await self._elect_once(name)
                except NotDecided as exc:
                    logger.error("no master elected for %s: %s", name, exc)
                    await asyncio.sleep(_PAUSE)
                except NotLeader:
                    return
                else:
                    return
        finally:
            self._under_way.discard(name)

    async def _elect_once(self, name: str) -> None:
        unclean = self._settings.config.enable_elect_unclean_master
        verdict, group = await self._turns.decide(
            name, lambda group: elect_master(group, NOBODY, self.standings(group), unclean=unclean)
        )
        if isinstance(verdict, ElectMasterEvent) and group is not None:
            self.told(verdict, group)
        elif isinstance(verdict, Refusal):
            logger.info("no election for %s: %s", name, verdict.remark)

    def told(self, event: ElectMasterEvent, group: Group) -> None:
        """Log an election and pass it on."""
        if event.new_master_elected:
            logger.info(
                "master elected name=%s id=%s addr=%s epoch=%d",
                group.name,
                group.master,
                group.address_of(group.master),
                group.master_epoch,
            )
            self._elected(group)
        else:
            doubtful = [broker_id for broker_id in group.in_sync if broker_id in self.standings(group)]
            logger.warning(
                "%s has no master now: none of its in-sync set %s is alive%s epoch=%d",
                group.name,
                group.in_sync,
                f" but for {doubtful}, which may lack acknowledged messages" if doubtful else "",
                group.master_epoch,
            )
