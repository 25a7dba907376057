"""Producers, consumers and the admin client, asyncio first; `pyromq.sync` has the same for programs without a loop."""

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
