"""Producers, consumers and the admin client, asyncio first; `pyromq.sync` has the same for programs without a loop.

Each name is imported when it is first asked for: the command line needs only the admin client, and all of them together
take longer to import than its commands to run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyromq.protocol.message import Message, MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from .admin import AdminClient
    from .client import Client
    from .consumer import Consumer
    from .credentials import Credentials
    from .hooks import Hook
    from .offset_store import LocalOffsetStore, OffsetStore, ReadFrom
    from .producer import Producer
    from .pull_consumer import PullConsumer, Pulled
    from .received import ReceivedMessage
    from .results import Ack, AckUpTo, Commit, DeadLetter, Retry, Rollback, Suspend
    from .send_result import SendResult, SendStatus, TxSendResult, TxState
    from .start_offset import StartAt
    from .strategies import (
        Averagely,
        AveragelyByCircle,
        Config,
        ConsistentHash,
        MachineRoom,
        MachineRoomNearby,
        Strategy,
    )
    from .subscriptions import Sql
    from .transactions import Transaction, TransactionProducer

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
]

_PLACES = {
    "Ack": ".results",
    "AckUpTo": ".results",
    "AdminClient": ".admin",
    "Averagely": ".strategies",
    "AveragelyByCircle": ".strategies",
    "Client": ".client",
    "Commit": ".results",
    "Config": ".strategies",
    "ConsistentHash": ".strategies",
    "Consumer": ".consumer",
    "Credentials": ".credentials",
    "DeadLetter": ".results",
    "Hook": ".hooks",
    "LocalOffsetStore": ".offset_store",
    "MachineRoom": ".strategies",
    "MachineRoomNearby": ".strategies",
    "Message": "pyromq.protocol.message",
    "MessageExt": "pyromq.protocol.message",
    "MessageQueue": "pyromq.protocol.message_queue",
    "OffsetStore": ".offset_store",
    "Producer": ".producer",
    "PullConsumer": ".pull_consumer",
    "Pulled": ".pull_consumer",
    "ReadFrom": ".offset_store",
    "ReceivedMessage": ".received",
    "Retry": ".results",
    "Rollback": ".results",
    "SendResult": ".send_result",
    "SendStatus": ".send_result",
    "Sql": ".subscriptions",
    "StartAt": ".start_offset",
    "Strategy": ".strategies",
    "Suspend": ".results",
    "Transaction": ".transactions",
    "TransactionProducer": ".transactions",
    "TxSendResult": ".send_result",
    "TxState": ".send_result",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_PLACES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
