"""The clients for programs without an event loop: the same classes, with methods that wait.

    from pyromq.sync import Producer

    with Producer("orders", namesrv="localhost:9876") as producer:
        producer.send("TopicTest", b"hello")

Everything happens on one event loop in one thread of the process, which starts with the first call; any thread may use
any object. `for` loops take the place of `async for`, `submit` gives a `concurrent.futures.Future`. In a thread that
runs an event loop every call that would block it raises StateError.
"""

from .facade import (
    AclAdmin,
    AdminClient,
    BrokerAdmin,
    Client,
    ClientAdmin,
    Consumer,
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
