"""The result of a send, and of the transaction that the message was part of."""

from __future__ import annotations

from enum import Enum

import msgspec

from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_queue import MessageQueue  # noqa: TC001  # msgspec reads the annotations

DEFAULT_REGION = "DefaultRegion"


class SendStatus(Enum):
    """In all these cases the message is stored. All but the first say what the broker could not confirm."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_BY_CODE: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(msgspec.Struct, frozen=True):
    """Where a message was stored.

    `id` is the id that consumers see; for a batch, all ids joined by commas. The same goes for `offset_id`, which says
    where the broker keeps the message. `offset` is its number in `queue`, for a batch that of the first message.
    `recall_handle` is for `recall`, if the broker gave one.
    """

    status: SendStatus
    id: str
    offset_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str | None = None
    region: str = DEFAULT_REGION
    recall_handle: str | None = None


class TxState(Enum):
    """The decision on a half message. The values are those of END_TRANSACTION's commitOrRollback."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0  # the broker will ask

    @property
    def wire_name(self) -> str:
        """Java's name of it, which trace records carry."""
        return _WIRE_NAMES[self]


_WIRE_NAMES = {
    TxState.COMMIT: "COMMIT_MESSAGE",
    TxState.ROLLBACK: "ROLLBACK_MESSAGE",
    TxState.UNKNOWN: "UNKNOW",  # sic
}


class TxSendResult(SendResult, frozen=True, kw_only=True):
    """The result of the half message, and the local transaction's decision."""

    state: TxState
