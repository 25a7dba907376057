"""Producers, consumers and the admin client on asyncio; `pyromq.sync` has the same for programs without a loop.

Each name loads on first use: the command line needs only the admin client, and importing all of them takes longer than
a command runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyromq.protocol.message import Message, MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from .admin import AdminClient
    from .client import Client
    from .consumer.allocation import (
        Averagely,
        AveragelyByCircle,
        Config,
        ConsistentHash,
        MachineRoom,
        MachineRoomNearby,
        Strategy,
    )
    from .consumer.offset_store import LocalOffsetStore, OffsetStore, ReadFrom
    from .consumer.outcomes import Ack, AckUpTo, Commit, DeadLetter, Retry, Rollback, Suspend
    from .consumer.pull_consumer import PullConsumer, Pulled
    from .consumer.push_consumer import Consumer
    from .consumer.received_message import ReceivedMessage
    from .consumer.start_offset import StartAt
    from .consumer.subscriptions import Sql
    from .hooks import Hook
    from .identity import Credentials
    from .producer.producer import Producer
    from .producer.send_result import SendResult, SendStatus, TxSendResult, TxState
    from .producer.transactions import Transaction, TransactionProducer

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
    "Ack": ".consumer.outcomes",
    "AckUpTo": ".consumer.outcomes",
    "AdminClient": ".admin",
    "Averagely": ".consumer.allocation",
    "AveragelyByCircle": ".consumer.allocation",
    "Client": ".client",
    "Commit": ".consumer.outcomes",
    "Config": ".consumer.allocation",
    "ConsistentHash": ".consumer.allocation",
    "Consumer": ".consumer.push_consumer",
    "Credentials": ".identity",
    "DeadLetter": ".consumer.outcomes",
    "Hook": ".hooks",
    "LocalOffsetStore": ".consumer.offset_store",
    "MachineRoom": ".consumer.allocation",
    "MachineRoomNearby": ".consumer.allocation",
    "Message": "pyromq.protocol.message",
    "MessageExt": "pyromq.protocol.message",
    "MessageQueue": "pyromq.protocol.message_queue",
    "OffsetStore": ".consumer.offset_store",
    "Producer": ".producer.producer",
    "PullConsumer": ".consumer.pull_consumer",
    "Pulled": ".consumer.pull_consumer",
    "ReadFrom": ".consumer.offset_store",
    "ReceivedMessage": ".consumer.received_message",
    "Retry": ".consumer.outcomes",
    "Rollback": ".consumer.outcomes",
    "SendResult": ".producer.send_result",
    "SendStatus": ".producer.send_result",
    "Sql": ".consumer.subscriptions",
    "StartAt": ".consumer.start_offset",
    "Strategy": ".consumer.allocation",
    "Suspend": ".consumer.outcomes",
    "Transaction": ".producer.transactions",
    "TransactionProducer": ".producer.transactions",
    "TxSendResult": ".producer.send_result",
    "TxState": ".producer.send_result",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_PLACES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
