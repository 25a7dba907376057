"""Every error PyroMQ raises. Catch `PyroMQError` for all of them.

PyroMQError
├── ProtocolError           bytes that break the protocol
│   ├── LocalProtocolError      we would have sent them: a bug in the caller
│   └── RemoteProtocolError     a peer sent them
│       └── MissingField            a header lacks a field that the request needs
├── ConnectionLost          the connection ended before the answer came
│   └── ConnectFailed           it never came to be
├── RequestTimeout          the answer did not come in time; the request may have taken effect
├── TooManyRequests         as many requests are under way as the limit allows
├── ConfigError             a setting or its file is wrong; says which and where
├── BrokerError             the server said no: `code`, `remark`, `server`; `retriable` is a fact of the class
│   └── one class per response code: SystemBusy (2), TopicNotFound (17), …, see BY_CODE
└── StoreError              the files of a store
    ├── CorruptRecord           bytes that are no record: `offset`, `reason`
    ├── OffsetOutOfRange        no message there, or not any more
    ├── MessageRefused          a message that no store may hold; nothing was written
    └── StoreNotWritable        closed, disk full, or a disk that failed; says which
"""

from __future__ import annotations

from typing import ClassVar


class PyroMQError(Exception):
    """The root of all errors raised by PyroMQ."""


class ProtocolError(PyroMQError):
    """Bytes or values that the remoting protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """What we were asked to send cannot be sent. Nothing was written."""


class RemoteProtocolError(ProtocolError):
    """A peer sent what the protocol does not allow."""


class MissingField(RemoteProtocolError):
    """A header lacks a field that is needed, or carries a value that does not parse."""

    def __init__(self, header: str, field: str) -> None:
        super().__init__(f"{header} needs the field {field}")
        self.header = header
        self.field = field


class ConnectionLost(PyroMQError):
    """The connection ended before the answer came; the request may have taken effect."""

    def __init__(self, peer: str, reason: str = "connection closed") -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer = peer
        self.reason = reason


class ConnectFailed(ConnectionLost):
    """The peer could not be reached; nothing was sent."""


class RequestTimeout(PyroMQError):
    """The answer did not come in time; the request may have taken effect."""

    def __init__(self, peer: str, code: int, seconds: float) -> None:
        super().__init__(f"{peer}: no answer to request {code} within {seconds:g} s")
        self.peer = peer
        self.code = code
        self.seconds = seconds


class TooManyRequests(PyroMQError):
    """As many requests are under way as the limit allows, and none ended in time."""


class ConfigError(PyroMQError):
    """A setting is wrong. `source` says where it came from: a file with its line, a variable, a flag."""

    def __init__(self, reason: str, source: str = "") -> None:
        super().__init__(f"{source}: {reason}" if source else reason)
        self.reason = reason
        self.source = source


class BrokerError(PyroMQError):
    """A broker or name server answered a request with an error code.

    A request processor raises one of the subclasses to give that answer.
    """

    code: int = 1
    # True when the same request may succeed on another broker, or later on this one.
    retriable: ClassVar[bool] = False

    def __init__(self, remark: str = "", server: str = "", code: int | None = None) -> None:
        super().__init__(remark, server)
        self.remark = remark
        self.server = server
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        said = self.remark.strip() or "no reason given"
        return f"{self.server}: {said} (code {self.code})" if self.server else f"{said} (code {self.code})"


class ServerError(BrokerError):
    """The server failed for a reason that has no code of its own."""

    code = 1
    retriable = True


class SystemBusy(BrokerError):
    """Flow control: the server refuses for a while."""

    code = 2
    retriable = True


class RequestCodeNotSupported(BrokerError):
    code = 3


class TransactionFailed(BrokerError):
    code = 4


class FlushDiskTimeout(BrokerError):
    """Stored, but not known to be on disk in time."""

    code = 10


class SlaveNotAvailable(BrokerError):
    """Stored, but no replica took it."""

    code = 11


class FlushSlaveTimeout(BrokerError):
    """Stored, but no replica confirmed it in time."""

    code = 12


class MessageIllegal(BrokerError):
    code = 13


class ServiceNotAvailable(BrokerError):
    """The store does not take writes: disk full, role changed, shutting down."""

    code = 14
    retriable = True


class VersionNotSupported(BrokerError):
    code = 15


class NoPermission(BrokerError):
    code = 16
    retriable = True


class TopicNotFound(BrokerError):
    code = 17
    retriable = True


class TopicExistsAlready(BrokerError):
    code = 18


class PullNotFound(BrokerError):
    """Nothing new at that offset."""

    code = 19


class PullRetryImmediately(BrokerError):
    code = 20


class PullOffsetMoved(BrokerError):
    """The offset is outside of the queue; the answer names the one to go on with."""

    code = 21


class QueryNotFound(BrokerError):
    code = 22


class SubscriptionParseFailed(BrokerError):
    code = 23


class SubscriptionNotExist(BrokerError):
    code = 24


class SubscriptionNotLatest(BrokerError):
    code = 25


class SubscriptionGroupNotExist(BrokerError):
    code = 26


class FilterDataNotExist(BrokerError):
    code = 27


class FilterDataNotLatest(BrokerError):
    code = 28


class InvalidParameter(BrokerError):
    code = 29


class NoBuyerId(BrokerError):
    code = 204
    retriable = True


class NotInCurrentUnit(BrokerError):
    code = 205
    retriable = True


class ConsumerNotOnline(BrokerError):
    code = 206


class ConsumeMessageTimeout(BrokerError):
    code = 207


class NoMessage(BrokerError):
    code = 208


class FlowControl(BrokerError):
    code = 215
    retriable = True


class GoAway(BrokerError):
    """A 5.x server is shutting down and asks to connect anew."""

    code = 1500
    retriable = True


BY_CODE: dict[int, type[BrokerError]] = {cls.code: cls for cls in BrokerError.__subclasses__()}


def broker_error(code: int, remark: str | None, server: str = "") -> BrokerError:
    """The error that stands for a response with `code`; an unknown code keeps its number."""
    cls = BY_CODE.get(code, BrokerError)
    return cls(remark or "", server, code)


class StoreError(PyroMQError):
    """Something is wrong with the files of a store."""


class CorruptRecord(StoreError):
    """The bytes at `offset` are not a record."""

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(f"corrupt record at {offset}: {reason}")
        self.reason = reason
        self.offset = offset


class OffsetOutOfRange(StoreError):
    """There is no message at that offset, or it has been cleaned up."""


class MessageRefused(StoreError):
    """A message that the store may not hold: too long, or with parts that a record has no room for."""


class StoreNotWritable(StoreError):
    """The store takes no messages now: it was closed, the disk is full, or writing to it failed."""
