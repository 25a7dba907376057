"""The durability gate: every acknowledgement passes here, once what it promises is true.

What a broker acknowledges may need

    the log on disk       messages, under SYNC_FLUSH, unless their sender does not want to wait (WAIT)
    the log on slaves     messages, of a SYNC_MASTER, unless their sender does not want to wait
    a file of settings    a topic or a group that is new or changed, and the messages to a topic that is new
    the name servers      a topic that is new: clients ask for its route as soon as they hear of it
    a permit              messages, of a master that controllers may have replaced without its knowledge

Those who wait for the same thing are answered together: one fsync, one write of topics.json, one registration. The gate
alone turns "not yet" and "failed" into the statuses that clients know: a message that is stored, but perhaps not on
disk, is FLUSH_DISK_TIMEOUT (10), one that no slave can be waited for SLAVE_NOT_AVAILABLE (11), one that slaves did not
take in time FLUSH_SLAVE_TIMEOUT (12), one that must not be stored since too few brokers would have it
IN_SYNC_REPLICAS_NOT_ENOUGH (1); a setting that cannot be saved is NotSaved, and has been taken back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pyromq.errors import NotSaved, PyroMQError
from pyromq.store import PutResult, PutStatus
from pyromq.store.config import FlushDiskType
from pyromq.store.put import results_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable
    from concurrent.futures import Future

    from pyromq.protocol.command import Command
    from pyromq.store import MessageStore
    from pyromq.store.put import Run, Unit

    from .groups import GroupTable
    from .kept_files import BrokerState
    from .topics import TopicTable

logger = logging.getLogger(__name__)

_OK = PutStatus.PUT_OK

# Called once with a result for each message of the unit.
Stored = Callable[[Sequence[PutResult]], None]
# Called once, with None when a topic is known for good, or with why it is not.
Settled = Callable[[PyroMQError | None], None]


class Acknowledged(Protocol):
    """Gives `response` when the topics and groups that it speaks of are there to stay."""

    def __call__(
        self, response: Command, *, topics: Iterable[str] = (), groups: Iterable[str] = ()
    ) -> Command | Awaitable[Command]: ...


class Permit(Protocol):
    """What a master needs to take messages, where another may take its place."""

    def is_valid(self) -> bool: ...

    @property
    def why(self) -> str | None:
        """Why it is not valid; None if it is."""
        ...


class Copies(Protocol):
    """The copies of the log on other brokers, and who waits for them."""

    @property
    def timeout(self) -> float:
        """Seconds to wait for them."""
        ...

    def too_few(self) -> str | None:
        """Why messages that wait for copies are not even stored at present; None if they are."""
        ...

    def out_of_reach(self, end: int) -> str | None:
        """Why there is no use in waiting until others have the log up to `end`; None if there is."""
        ...

    def when_had(self, end: int, told: Callable[[], None]) -> None:
        """Call `told` once enough others have the log up to `end`. The log has grown to `end` just now."""
        ...

    def forget(self, told: Callable[[], None]) -> None:
        """Somebody does not wait any more."""
        ...


# Seconds that name servers get to hear of a new topic before its first senders are answered. One that is slower, or
# away, hears of it later: it must not keep this broker from taking messages.
_HEARD = 1.0


class DurabilityGate:
    """Holds acknowledgements until they are true. Belongs to one event loop.

    `announce` tells the name servers what they lack of the topics, and returns when they have it or failed to take it.
    `copies` are what a SYNC_MASTER waits for, `permit` is what it needs where controllers choose masters.
    """

    def __init__(
        self,
        store: MessageStore,
        state: BrokerState,
        topics: TopicTable,
        groups: GroupTable,
        announce: Callable[[], Awaitable[None]],
        *,
        copies: Copies | None = None,
        permit: Permit | None = None,
    ) -> None:
        self._permit = permit
        self._store = store
        self._state = state
        self._topics = topics
        self._groups = groups
        self._announce = announce
        self._loop = asyncio.get_running_loop()
        self._sync_flush = store.config.flush is FlushDiskType.SYNC_FLUSH
        self._sync_flush_timeout = store.config.sync_flush_timeout / 1000
        self._copies = copies
        # Senders that wait, for whatever it is.
        self.waiting = 0
        self._turns: set[_Turn] = set()
        # Topics that are new, with those who wait for them in the order in which they came.
        self._new_topics: dict[str, list[Settled]] = {}
        self._changes: list[asyncio.Future[None]] = []
        self._topics_changed = False
        self._settling: asyncio.Task[None] | None = None
        self._announcing: set[asyncio.Future[None]] = set()

    # Messages

    def refusal(self) -> str | None:
        """Why no message is to be stored at present; None if nothing keeps this broker from it."""
        return None if self._permit is None or self._permit.is_valid() else self._permit.why

    def too_few_copies(self) -> str | None:
        """Why messages whose senders wait are not to be stored at present; None if they are."""
        return None if self._copies is None else self._copies.too_few()

    def stored(
        self, units: Sequence[Unit | Run], told: Sequence[tuple[Stored, bool]], results: Sequence[PutResult]
    ) -> None:
        """Messages were stored together. Tell each sender its results, those who wait for the disk when it has them."""
        if self._permit is not None and not self._permit.is_valid():
            results = [self._refused(result) for result in results]
        waits = self._sync_flush or self._copies is not None
        turn: list[tuple[Stored, Sequence[PutResult]]] = []
        at = messages = 0
        for (tell, wait), unit in zip(told, units, strict=True):
            count = results_of(unit)
            part = results[at : at + count]
            at += count
            if waits and wait and part[0].status is _OK:
                turn.append((tell, part))
                messages += count if isinstance(unit, tuple) else unit.count
            else:
                tell(part)
        if turn:
            self._hold(_Turn(turn, messages))

    def _refused(self, result: PutResult) -> PutResult:
        """It is stored, but another broker may be master by now, and then it will be cut off."""
        assert self._permit is not None
        return (
            result.with_status(PutStatus.SERVICE_NOT_AVAILABLE, self._permit.why or "")
            if result.status is _OK
            else result
        )

    def _hold(self, turn: _Turn) -> None:
        self._turns.add(turn)
        self.waiting += turn.messages
        turn.waits = self._sync_flush + (self._copies is not None)
        if self._sync_flush:
            self._wait_for_disk(turn)
        if self._copies is not None:
            self._wait_for_copies(turn, self._copies)

    def _wait_for_copies(self, turn: _Turn, copies: Copies) -> None:
        end = int(self._store.log.end)
        timer: asyncio.TimerHandle | None = None

        def had() -> None:
            if timer is not None:
                timer.cancel()
            self._came(turn)

        def late() -> None:
            copies.forget(had)
            self._came(turn, PutStatus.FLUSH_SLAVE_TIMEOUT, f"no slave has taken it within {seconds:g} s")

        reason = copies.out_of_reach(end)
        if reason is not None:
            self._came(turn, PutStatus.SLAVE_NOT_AVAILABLE, reason)
            return
        seconds = copies.timeout
        timer = self._loop.call_later(seconds, late)
        copies.when_had(end, had)

    def _came(self, turn: _Turn, status: PutStatus = _OK, reason: str = "") -> None:
        """One of the things that a turn waits for has come, or will not. What slaves say counts more than the disk."""
        if status is not _OK and (turn.status is _OK or status is not PutStatus.FLUSH_DISK_TIMEOUT):
            turn.status, turn.reason = status, reason
        turn.waits -= 1
        if not turn.waits and not turn.is_over:
            self._answer(turn)

    def _wait_for_disk(self, turn: _Turn) -> None:
        is_over = False
        seconds = self._sync_flush_timeout
        late = f"the disk has not taken it within {seconds:g} s"

        def done(failure: str | None) -> None:
            nonlocal is_over
            timer.cancel()
            if not is_over:
                is_over = True
                self._came(turn, _OK if failure is None else PutStatus.FLUSH_DISK_TIMEOUT, failure or "")

        timer = self._loop.call_later(seconds, done, late)

        def flushed(future: Future[None]) -> None:
            # In the flush thread, or here if the disk was faster.
            error = future.exception()
            self._loop.call_soon_threadsafe(done, None if error is None else str(error))

        self._store.flushed().add_done_callback(flushed)

    def _answer(self, turn: _Turn) -> None:
        self._turns.discard(turn)
        self.waiting -= turn.messages
        if self._permit is not None and turn.status is _OK and not self._permit.is_valid():
            turn.status, turn.reason = PutStatus.SERVICE_NOT_AVAILABLE, self._permit.why or ""
        for tell, results in turn.senders:
            if turn.status is _OK:
                tell(results)
            else:
                # It is stored and can be read; whether it survives is unknown. Sent again, it would be there twice.
                tell([result.with_status(turn.status, turn.reason) for result in results])

    # Topics and groups

    def topic_changed(self, topic: str | None) -> None:
        """To be called after each change of the topics: has it saved, and then told to the name servers."""
        if topic is not None and self._topics.is_new(topic):
            self._new_topics.setdefault(topic, [])
        self._topics_changed = True
        if self._settling is None:
            self._settling = self._loop.create_task(self._settle(), name="settle topics")

    def group_changed(self, group: str | None) -> None:
        """To be called after each change of the groups: has it saved, with all other changes of this turn."""
        self._loop.call_soon(self._state.groups.save_soon)

    def holds(self, topic: str) -> bool:
        """Whether messages to `topic` have to wait, since it is new."""
        return topic in self._new_topics

    def when_settled(self, topic: str, settled: Settled) -> None:
        """Call `settled` once a topic that `holds` is known for good, after all who asked before."""
        self.waiting += 1

        def release(error: PyroMQError | None) -> None:
            self.waiting -= 1
            settled(error)

        self._new_topics[topic].append(release)

    async def topics_settled(self) -> None:
        """Return once all changes of topics until now are saved and told. NotSaved if they were taken back."""
        if self._settling is None:
            return
        settled: asyncio.Future[None] = self._loop.create_future()
        self._changes.append(settled)
        self._topics_changed = True
        await settled

    async def groups_saved(self) -> None:
        """Return once all changes of groups until now are saved. NotSaved if they were taken back."""
        await self._state.groups.saved()

    def acknowledged(
        self, response: Command, *, topics: Iterable[str] = (), groups: Iterable[str] = ()
    ) -> Command | Awaitable[Command]:
        """`response` of a request that may have made these topics and groups, once they are there to stay."""
        new_topics = any(map(self.holds, topics))
        new_groups = any(map(self._groups.is_new, groups))
        return self._answer_later(response, new_topics, new_groups) if new_topics or new_groups else response

    async def _answer_later(self, response: Command, new_topics: bool, new_groups: bool) -> Command:
        if new_groups:
            await self.groups_saved()
        if new_topics:
            await self.topics_settled()
        return response

    async def _settle(self) -> None:
        """Save and announce, again and again, until there is nothing new."""
        try:
            while self._topics_changed:
                await asyncio.sleep(0)  # whatever else this turn changes is served by the same write
                self._topics_changed = False
                names = list(self._new_topics)
                changes, self._changes = self._changes, []
                error: NotSaved | None = None
                try:
                    await self._state.topics.saved()
                except NotSaved as exc:
                    error = exc
                else:
                    await self._heard()
                self._release(names, changes, error)
        finally:
            self._settling = None
            self._release(list(self._new_topics), self._changes, NotSaved("topics.json", "the broker is stopping"))

    async def _heard(self) -> None:
        # A task of its own: a name server that is slow is told all the same, while nobody waits for it any more.
        announcing = asyncio.ensure_future(self._announce())
        self._announcing.add(announcing)
        announcing.add_done_callback(self._announcing.discard)
        await asyncio.wait([announcing], timeout=_HEARD)

    def _release(self, names: Iterable[str], changes: Iterable[asyncio.Future[None]], error: NotSaved | None) -> None:
        for name in names:
            held = self._new_topics.pop(name, [])
            if self._topics.is_new(name):
                # It was taken back and made once more meanwhile, and has yet to be saved.
                self._new_topics[name] = []
                self._topics_changed = True
            for settled in held:
                settled(error)
        for change in changes:
            if change.done():
                continue
            if error is None:
                change.set_result(None)
            else:
                change.set_exception(error)

    def give_up(self, reason: str) -> None:
        """Answer all who wait for messages: this broker will never know whether they survive."""
        for turn in list(self._turns):
            turn.status, turn.reason = PutStatus.SERVICE_NOT_AVAILABLE, reason
            turn.is_over = True
            self._answer(turn)

    async def finish(self, timeout: float) -> None:
        """Wait until all who wait now are answered, at most `timeout` seconds."""
        waits: list[asyncio.Future[None]] = []
        if self._settling is not None:
            waits.append(self._settling)
        if self._turns:
            # Those who were first to wait are the first to be answered.
            waits.append(asyncio.wrap_future(self._store.flushed()))
        if waits:
            await asyncio.wait(waits, timeout=timeout)

    async def close(self) -> None:
        """Nobody is answered any more."""
        tasks = [*self._announcing, *filter(None, [self._settling])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Turn:
    """Senders that wait for the same flush."""

    __slots__ = ("is_over", "messages", "reason", "senders", "status", "waits")

    def __init__(self, senders: list[tuple[Stored, Sequence[PutResult]]], messages: int) -> None:
        self.senders = senders
        self.messages = messages
        self.waits = 0
        self.is_over = False
        self.status = _OK
        self.reason = ""
