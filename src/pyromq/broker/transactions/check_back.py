"""Check-back (39): asks producers about open transactions, repeatedly, and finally gives up.

Every `transactionCheckInterval` the half messages are examined from the first that is not done. A `Round`
decides and writes, a little at a time, and yields questions; `CheckBack` asks them, and lets other work
run in between (docs/spec/broker.md 5.3, 5.4).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from pyromq.errors import PyroMQError, StoreError
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import CheckTransactionState
from pyromq.protocol.names import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC
from pyromq.protocol.record import encode_record
from pyromq.protocol.rights import Action, on_topic
from pyromq.store import PutStatus

from ..staying import log_stays
from .half_messages import Verdict, as_sent, check_times, given_up, renewed, verdict
from .op_records import Decided

if TYPE_CHECKING:
    from pyromq.protocol.record import MessageRecord
    from pyromq.remoting import Connection

    from ..context import Context, Tables
    from ..topics import TopicTable
    from .half_queue import HalfQueue

logger = logging.getLogger(__name__)

_HOUR = 3_600_000
# A round that takes longer ends, and the next continues where it stopped.
_LONGEST = 60_000
# Work per step: op records read, with half messages, which cost more, counted as several. About 0.5 ms.
_AT_ONCE = 64
_COST = 8
# Producers to try until one takes the question, and seconds that each gets to do so.
_CANDIDATES = 3
_ASK_TIMEOUT = 0.01

_SENDS = frozenset((Action.PUB,))
_TOO_LONG = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class Question(NamedTuple):
    """A half message to ask a producer of `group` about, at the place of its newest copy."""

    group: str
    half: MessageRecord


class Round:
    """One pass over the current half messages. It can be abandoned at any time without undoing anything:

    what follows a half message is written before it is passed, and for everything passed there is an op record.
    """

    def __init__(
        self,
        halves: HalfQueue,
        topics: TopicTable,
        store_host: bytes,
        *,
        timeout: int,
        check_max: int,
        kept: int,
    ) -> None:
        """`timeout` and `kept` are milliseconds: see `verdict`."""
        self._halves = halves
        self._topics = topics
        self._store_host = store_host
        self._timeout = timeout
        self._check_max = check_max
        self._kept = kept
        self._offset, op_offset = halves.position()
        self._end = halves.end
        self._decided = Decided(self._offset, self._end, op_offset)
        self.given_up = 0
        for offset in tuple(halves.owed):
            halves.close(offset)

    @property
    def position(self) -> tuple[int, int]:
        """The first half message and op record that are not done."""
        return self._offset, self._decided.op_offset_for(self._offset)

    def step(self, now: int) -> list[Question] | None:
        """Continue for a little while. Returns the questions to ask; None at the end of the round."""
        questions: list[Question] = []
        spent = 0
        while spent < _AT_ONCE:
            self._offset = self._decided.next_open(self._offset)
            if self._offset >= self._end or self._offset in self._halves.owed:
                return questions or None
            spent += _COST
            half = self._halves.at(self._offset)
            if half is None:
                self._offset += 1
                continue
            what = verdict(half, now, timeout=self._timeout, check_max=self._check_max, kept=self._kept)
            if what is Verdict.WAIT:
                return questions or None
            # A decision is somewhere in the op queue, so read all of that first.
            read = self._halves.read_ops(self._decided, _AT_ONCE)
            if read:
                spent += read
            elif not self._follow(half, what, questions):
                return questions or None
        return questions

    def _follow(self, half: MessageRecord, what: Verdict, questions: list[Question]) -> bool:
        """Store what follows `half`, and move past it; False if that could not be stored."""
        if what is Verdict.GIVE_UP:
            return self._give_up(half)
        times = check_times(half) + (1 if what is Verdict.ASK else 0)
        copy = renewed(half, self._store_host, times)
        result = self._halves.put(copy)
        if result.status in _TOO_LONG:  # its properties leave no room for those of a copy
            return self._give_up(half)
        if result.status is not PutStatus.PUT_OK:
            logger.error("cannot renew half message %d: %s; trying again later", self._offset, result.error)
            return False
        self._halves.was_renewed(half, result.queue_offset)
        if what is Verdict.ASK:
            stored = replace(
                copy,
                queue_offset=result.queue_offset,
                physical_offset=result.physical_offset,
                store_timestamp=result.store_timestamp,
            )
            questions.append(Question(half.find_property(props.PGROUP) or "", stored))
        self._done()
        return True

    def _give_up(self, half: MessageRecord) -> bool:
        self._topics.ensure(CHECKED_TOO_OFTEN_TOPIC, 1)
        result = self._halves.put(given_up(half, self._store_host))
        if result.status is not PutStatus.PUT_OK and result.status not in _TOO_LONG:
            logger.error("cannot give up half message %d: %s; trying again later", self._offset, result.error)
            return False
        self.given_up += 1
        self._done()
        return True

    def _done(self) -> None:
        self._halves.close(self._offset)
        self._offset += 1


class CheckBack:
    """Asks. `clock` gives epoch milliseconds, `store_host` stands for this broker in records."""

    def __init__(self, context: Context, tables: Tables, halves: HalfQueue) -> None:
        self._store = context.store
        self._appends = context.appends
        self._halves = halves
        self._topics = tables.topics
        self._clients = tables.clients
        self._live = context.live
        self._clock = context.clock
        self._monotonic = context.monotonic
        self._store_host = context.store_host
        self._guard = context.access.guard
        self._turn = 0  # the next producer to ask in each group

    async def run(self) -> None:
        """Run a round every interval, until cancelled."""
        while True:
            await asyncio.sleep(self._live.config.transaction_check_interval / 1000)
            try:
                await self.round()
            except StoreError as exc:
                logger.error("cannot read half messages: %s; trying again later", exc)

    async def round(self) -> None:
        """Examine all half messages once, and remember up to where all are done."""
        if not self._halves.end:
            return
        self._topics.ensure(HALF_TOPIC, 1)
        began = self._monotonic()
        config = self._live.config
        walk = Round(
            self._halves,
            self._topics,
            self._store_host,
            timeout=config.transaction_timeout,
            check_max=config.transaction_check_max,
            kept=self._store.config.reserved_hours * _HOUR,
        )
        nobody: set[str] = set()
        while self._monotonic() - began < _LONGEST:
            # Decisions of this turn of the event loop must be readable.
            self._appends.flush()
            questions = walk.step(self._clock())
            if questions is None:
                break
            for question in questions:
                if not await self._ask(question):
                    nobody.add(question.group)
            await asyncio.sleep(0)
        if nobody:
            logger.warning("no producer of %s answers transaction checks; asking again later", sorted(nobody)[:5])
        if walk.given_up:
            logger.warning("%d transactions given up, see topic %s", walk.given_up, CHECKED_TOO_OFTEN_TOPIC)
        # If offsets were saved before the log, a power failure could take copies whose originals were passed.
        await log_stays(self._store)
        self._halves.move_on(*walk.position)

    async def _ask(self, question: Question) -> bool:
        """Ask one producer of the group, the next in turn that accepts; False if none does."""
        members = self._members(question)
        for _ in range(min(len(members), _CANDIDATES)):
            connection = members[self._turn % len(members)]
            self._turn += 1
            if await _sent(connection, question.half):
                return True
        return False

    def _members(self, question: Question) -> tuple[Connection, ...]:
        """The producers of the group; with access control those who may send to the topic, since they see the message.

        Anybody may say to be one.
        """
        members = self._clients.producer_group(question.group) or {}
        if self._guard.is_open:
            return tuple(members)
        needs = [on_topic(as_sent(question.half).topic, _SENDS)]
        code = RequestCode.SEND_MESSAGE_V2
        return tuple(
            connection
            for connection, info in members.items()
            if self._guard.would_allow(info.account, connection.peer, code, needs)
        )


async def _sent(connection: Connection, half: MessageRecord) -> bool:
    unique = half.find_property(props.UNIQ_KEY)
    header = CheckTransactionState(
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        msg_id=unique,
        transaction_id=unique,
        offset_msg_id=half.offset_msg_id,
    )
    body = encode_record(as_sent(half))
    request = Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True)
    try:
        await connection.oneway(request, _ASK_TIMEOUT)
    except PyroMQError as exc:
        logger.info("cannot ask %s about a transaction: %s", connection.peer, exc)
        return False
    return True
