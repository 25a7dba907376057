"""PyroMQ: Apache RocketMQ written anew in Python, with Spark as its data pipeline.

Import the client's names from here: `from pyromq import Producer, Consumer, Message`. They load on first use, so that a
broker or a Spark executor does not pay for what it does not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyromq.client import (
        Ack,
        AckUpTo,
        AdminClient,
        Averagely,
        AveragelyByCircle,
        Client,
        Commit,
        Config,
        ConsistentHash,
        Consumer,
        Credentials,
        DeadLetter,
        Hook,
        LocalOffsetStore,
        MachineRoom,
        MachineRoomNearby,
        Message,
        MessageExt,
        MessageQueue,
        OffsetStore,
        Producer,
        PullConsumer,
        Pulled,
        ReadFrom,
        ReceivedMessage,
        Retry,
        Rollback,
        SendResult,
        SendStatus,
        Sql,
        StartAt,
        Strategy,
        Suspend,
        Transaction,
        TransactionProducer,
        TxSendResult,
        TxState,
    )

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "AckUpTo",
    "AdminClient",
    "Averagely",
    "AveragelyByCircle",
    "Client",
    "Commit",
    "Config",
    "ConsistentHash",
    "Consumer",
    "Credentials",
    "DeadLetter",
    "Hook",
    "LocalOffsetStore",
    "MachineRoom",
    "MachineRoomNearby",
    "Message",
    "MessageExt",
    "MessageQueue",
    "OffsetStore",
    "Producer",
    "PullConsumer",
    "Pulled",
    "ReadFrom",
    "ReceivedMessage",
    "Retry",
    "Rollback",
    "SendResult",
    "SendStatus",
    "Sql",
    "StartAt",
    "Strategy",
    "Suspend",
    "Transaction",
    "TransactionProducer",
    "TxSendResult",
    "TxState",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyromq.client

    return getattr(pyromq.client, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
