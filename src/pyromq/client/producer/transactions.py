"""Transactions: a message that consumers see only once the sender's own work is done.

The half message is stored where no one consumes it. The sender then does its local work and reports its decision; if
that gets lost, or the sender dies, the broker asks any producer of the group (`check`) until one knows.

    producer = TransactionProducer("payments", check=was_paid, namesrv="localhost:9876")
    async with producer, producer.transaction(Message("paid", b"...")) as tx:
        await charge(order, tx.id)
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

from pyromq.errors import ConfigError, PyroMQError, SendFailed, StateError, broker_error
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.headers import EndTransaction
from pyromq.protocol.ids import decode_offset_message_id
from pyromq.protocol.message import Message
from pyromq.protocol.message_queue import MessageQueue

from ..consumer.received_message import ReceivedMessage
from ..hooks import EndTransactionContext, MessageType
from .outgoing import as_message
from .producer import Producer
from .producer_settings import DEFAULT_RETRY_CODES, settings_among
from .send_result import DEFAULT_REGION, STATUS_BY_CODE, SendResult, SendStatus, TxSendResult, TxState

if TYPE_CHECKING:
    from pyromq.protocol.headers import CheckTransactionState
    from pyromq.protocol.message import MessageExt

    from ..client import Client
    from ..tasks import Supervised

logger = logging.getLogger(__name__)

_CHECK_ANSWER_TIMEOUT = 3.0
_CODE_BY_STATUS = {status: code for code, status in STATUS_BY_CODE.items()}


@dataclass(slots=True)
class HalfMessage(Message):
    """A copy of the sent message, with the transaction's id; a check will name the same id."""

    id: str = ""
    transaction_id: str | None = None


Execute = Callable[[HalfMessage], Awaitable[TxState] | TxState]
Check = Callable[[ReceivedMessage], Awaitable[TxState] | TxState]


class TransactionProducer(Producer):
    """A producer whose messages may depend on local work.

    Brokers call `check` about undecided transactions of any producer of this group. It answers COMMIT, ROLLBACK or, to
    be asked again later, UNKNOWN; an error counts as UNKNOWN. Checks run one after the other; if more than `max_checks`
    wait, further ones are dropped, and the broker asks again. Plain functions run in a thread.

    Takes all settings of `Producer` too.
    """

    def __init__(
        self,
        group: str,
        *,
        check: Check | None = None,
        max_checks: int = 2000,
        client: Client | None = None,
        namesrv: str | Sequence[str] | None = None,
        timeout: float = 3.0,
        attempt_timeout: float | None = None,
        retries: int = 2,
        retry_not_stored: bool = False,
        retry_codes: Iterable[int] = DEFAULT_RETRY_CODES,
        compress_over: int = 4096,
        compression: str = "zlib",
        max_size: int = 4 << 20,
        fault_tolerance: bool = False,
        window: int = 10000,
        window_bytes: int = 100 << 20,
        linger: float = 0.0,
        default_queues: int = 4,
    ) -> None:
        super().__init__(group, client=client, namesrv=namesrv, **settings_among(locals()))
        if max_checks < 1:
            raise ConfigError(f"max_checks must be 1 or more, not {max_checks}")
        self._check = check
        self._checks: asyncio.Queue[tuple[str, CheckTransactionState, MessageExt]] = asyncio.Queue(max_checks)
        self._checking: Supervised | None = None

    def check(self, fn: Check) -> Check:
        """Decorator: `fn` answers the checks."""
        self._check = fn
        return fn

    async def start(self) -> Self:
        await super().start()
        self._checking = self._client.tasks.spawn(f"transaction checks of {self.group}", self._answer_checks)
        return self

    async def close(self) -> None:
        checking, self._checking = self._checking, None
        if checking is not None:
            await checking.stop()
        await super().close()

    async def send_in_transaction(
        self, msg: Message | str, execute: Execute, body: bytes | None = None, **fields: Any
    ) -> TxSendResult:
        """Store the half message, run `execute` with a copy of it, and let its answer decide.

        An error in `execute` is logged and leaves the decision to `check`. If the half message was stored but not
        confirmed, `execute` does not run and the message is rolled back.
        """
        transaction = await self._store(as_message(msg, body, fields))
        if transaction.result.status is not SendStatus.SEND_OK:
            await transaction.end(TxState.ROLLBACK)
            return transaction.tx_result
        state, remark = await _decision(execute, transaction.message, f"transaction {transaction.id}")
        await transaction.end(state, remark)
        return transaction.tx_result

    def transaction(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        on_error: Literal["unknown", "rollback"] = "unknown",
        **fields: Any,
    ) -> Transaction:
        """`async with` stores the half message on entry and commits it on exit.

        An error inside leaves the decision to `check`, or rolls back if `on_error` says so, and is raised again.
        Entering raises what `send` raises, and SendFailed if the half message was stored but not confirmed.
        """
        return Transaction(self, as_message(msg, body, fields), on_error)

    # As a member of the client

    def check_transaction(self, address: str, header: CheckTransactionState, message: MessageExt) -> None:
        try:
            self._checks.put_nowait((address, header, message))
        except asyncio.QueueFull:
            logger.warning("%s: too many transaction checks waiting; dropping that of %s", self.group, message.msg_id)

    # Inside

    async def _store(self, message: Message) -> _Half:
        """Store `message` as a half message."""
        if self._check is None:
            raise StateError(
                f"producer {self.group} has no check: no one could tell the broker how a transaction ended"
            )
        sender = self._running()
        plain = _without_delay(message)
        extra = f"\x02{props.TRAN_MSG}\x01true\x02{props.PGROUP}\x01{sender.group}"
        timeout = self._settings.timeout
        outgoing, target, only, left = await self._ready(sender, plain, None, None, None, timeout, extra=extra)
        outgoing.sys_flag |= sysflag.PREPARED
        outgoing.kind = MessageType.HALF
        result = await sender.send(outgoing, target, only, left)
        return _Half(self, plain, target.topic, result)

    async def _end(
        self,
        half: _Half,
        state: TxState,
        remark: str | None,
    ) -> None:
        """Tell the broker; if that gets lost, it asks."""
        result = half.result
        try:
            commit_log_offset = decode_offset_message_id(result.offset_id or result.id).physical_offset
            header = EndTransaction(
                producer_group=self._running().group,
                tran_state_table_offset=result.offset,
                commit_log_offset=commit_log_offset,
                commit_or_rollback=state.value,
                msg_id=result.id,
                transaction_id=result.transaction_id,
                topic=half.wire_topic,
            )
            broker = result.queue.broker_name
            queue = MessageQueue(broker_name=broker, queue_id=result.queue.queue_id, topic=half.wire_topic)
            address = await self._client.routes.master_or_refresh(queue)
            await self._tell(
                address, header, remark, _facts(half.message), from_check=False, timeout=self._settings.timeout
            )
        except PyroMQError as exc:
            logger.warning("transaction %s: %s not delivered: %s; the broker will ask", result.id, state.name, exc)

    async def _answer_checks(self) -> None:
        while True:
            address, header, message = await self._checks.get()
            try:
                await self._answer(address, header, message)
            except PyroMQError as exc:
                logger.warning(
                    "transaction check of %s not answered: %s; the broker will ask again", message.msg_id, exc
                )

    async def _answer(self, address: str, asked: CheckTransactionState, message: MessageExt) -> None:
        if self._check is None:
            logger.warning("%s: no check is set; transaction %s stays undecided", self.group, message.msg_id)
            return
        received = ReceivedMessage(message, self._client.namespace.unwrap(message.topic))
        state, remark = await _decision(self._check, received, f"check of transaction {message.msg_id}")
        header = EndTransaction(
            producer_group=self._running().group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=state.value,
            msg_id=message.msg_id,
            from_transaction_check=True,
            transaction_id=asked.transaction_id,
            topic=message.topic,
        )
        keys = props.KEY_SEPARATOR.join(message.keys) or None
        region = message.properties.get(props.MSG_REGION, DEFAULT_REGION)
        facts = (received.topic, message.tags, keys, region)
        await self._tell(address, header, remark, facts, from_check=True, timeout=_CHECK_ANSWER_TIMEOUT)

    async def _tell(
        self,
        address: str,
        header: EndTransaction,
        remark: str | None,
        facts: tuple[str, str | None, str | None, str],
        *,
        from_check: bool,
        timeout: float,
    ) -> None:
        await self._client.calls.end_transaction(address, header, remark, timeout)
        if not self._hooks:
            return
        topic, tags, keys, region = facts
        await self._hooks.end_transaction(
            EndTransactionContext(
                group=self.group,
                topic=topic,
                tags=tags,
                keys=keys,
                region=region,
                message_id=header.msg_id,
                transaction_id=header.transaction_id,
                address=address,
                state=TxState(header.commit_or_rollback),
                from_check=from_check,
            )
        )


class _Half:
    """A stored half message."""

    __slots__ = ("_producer", "message", "result", "state", "wire_topic")

    def __init__(self, producer: TransactionProducer, message: Message, wire_topic: str, result: SendResult) -> None:
        self._producer = producer
        self.wire_topic = wire_topic
        self.result = result
        self.state = TxState.UNKNOWN
        parts = {field.name: getattr(message, field.name) for field in fields(Message)}
        parts["properties"] = dict(message.properties)
        if result.transaction_id:
            parts["properties"][props.TRANSACTION_ID] = result.transaction_id
        self.message = HalfMessage(**parts, id=result.id, transaction_id=result.id)

    @property
    def id(self) -> str:
        return self.result.id

    @property
    def tx_result(self) -> TxSendResult:
        known = {name: getattr(self.result, name) for name in SendResult.__struct_fields__}
        return TxSendResult(**known, state=self.state)

    async def end(self, state: TxState, remark: str | None = None) -> None:
        self.state = state
        await self._producer._end(self, state, remark)


class Transaction:
    """One transaction, for `async with`. `id` names it, here and in checks."""

    def __init__(
        self, producer: TransactionProducer, message: Message, on_error: Literal["unknown", "rollback"]
    ) -> None:
        if on_error not in ("unknown", "rollback"):
            raise ConfigError(f"on_error must be 'unknown' or 'rollback', not {on_error!r}")
        self._producer = producer
        self._sent = message
        self._on_error = on_error
        self._half: _Half | None = None
        self._rolled_back = False

    @property
    def id(self) -> str:
        return self._stored.id

    @property
    def message(self) -> HalfMessage:
        """The message as it was stored."""
        return self._stored.message

    @property
    def result(self) -> TxSendResult:
        """The result of the half message and, after the end, the decision."""
        return self._stored.tx_result

    def rollback(self) -> None:
        """Roll the message back at the end of the block."""
        self._rolled_back = True

    async def __aenter__(self) -> Self:
        if self._half is not None:
            raise StateError(f"transaction {self.id} was already entered")
        half = await self._producer._store(self._sent)
        self._half = half
        if half.result.status is not SendStatus.SEND_OK:
            await half.end(TxState.ROLLBACK)
            broker = half.result.queue.broker_name
            error = broker_error(_CODE_BY_STATUS[half.result.status], "half message stored, not confirmed", broker)
            raise SendFailed(self._sent.topic, [(broker, error)], "rolled back") from error
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        if self._rolled_back:
            state = TxState.ROLLBACK
        elif exc is None:
            state = TxState.COMMIT
        else:
            state = TxState.ROLLBACK if self._on_error == "rollback" else TxState.UNKNOWN
        # Even if this task is being cancelled: it is one write, and saves the broker from asking.
        await self._stored.end(state, None if exc is None else repr(exc))

    @property
    def _stored(self) -> _Half:
        if self._half is None:
            raise StateError("the transaction has not begun: use `async with`")
        return self._half


async def _decision(decide: Callable[[Any], Any], argument: object, what: str) -> tuple[TxState, str | None]:
    """The answer of the user's function. An error, or anything but a TxState, leaves it open."""
    try:
        if inspect.iscoroutinefunction(decide):
            answer = await decide(argument)
        else:
            answer = await asyncio.to_thread(decide, argument)
            if inspect.isawaitable(answer):
                answer = await answer
    except Exception as exc:  # an error in user code: the broker will ask again
        logger.warning("%s failed; it stays undecided", what, exc_info=True)
        return TxState.UNKNOWN, repr(exc)
    if isinstance(answer, TxState):
        return answer, None
    return TxState.UNKNOWN, f"{what} returned {answer!r}, which is not a TxState"


def _without_delay(message: Message) -> Message:
    """A half message becomes visible when committed, so it cannot be delayed."""
    if not message.delay_level and message.delay is None and message.deliver_at is None:
        return message
    parts = {field.name: getattr(message, field.name) for field in fields(Message)}
    return Message(**{**parts, "delay_level": 0, "delay": None, "deliver_at": None})


def _facts(message: Message) -> tuple[str, str | None, str | None, str]:
    keys = message.keys if isinstance(message.keys, str) else props.KEY_SEPARATOR.join(message.keys)
    return message.topic, message.tags, keys or None, DEFAULT_REGION
