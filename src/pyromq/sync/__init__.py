"""Blocking clients, for programs without an event loop: the same classes, with methods that wait.

    from pyromq.sync import Producer

    with Producer("orders", namesrv="localhost:9876") as producer:
        producer.send("TopicTest", b"hello")

Everything runs on one event loop in one thread of the process, started by the first call; any thread may use any
object. Use `for` instead of `async for`; `submit` returns a `concurrent.futures.Future`. In a thread that runs an event
loop, every call that would block it raises StateError.
"""

from .facade import (
    AclAdmin,
    AdminClient,
    BrokerAdmin,
    Client,
    ClientAdmin,
    Consumer,
    ControllerAdmin,
    GroupAdmin,
    MessageAdmin,
    NameServerAdmin,
    OffsetAdmin,
    Producer,
    PullConsumer,
    TopicAdmin,
    Transaction,
    TransactionProducer,
)
from .received import ReceivedMessage

__all__ = [
    "AclAdmin",
    "AdminClient",
    "BrokerAdmin",
    "Client",
    "ClientAdmin",
    "Consumer",
    "ControllerAdmin",
    "GroupAdmin",
    "MessageAdmin",
    "NameServerAdmin",
    "OffsetAdmin",
    "Producer",
    "PullConsumer",
    "ReceivedMessage",
    "TopicAdmin",
    "Transaction",
    "TransactionProducer",
]
