"""Every error PyroMQ raises. Catch `PyroMQError` for all of them.

PyroMQError
├── ProtocolError           bytes that break the protocol
│   ├── LocalProtocolError      we would have sent them: a bug in the caller
│   └── RemoteProtocolError     a peer sent them
│       └── MissingField            a header lacks a field that the request needs
├── ConnectionLost          the connection ended before the answer came; also a ConnectionError
│   └── ConnectFailed           it was never established
├── RequestTimeout          no answer in time; the request may have taken effect; also a TimeoutError
│   ├── SendTimeout             the time for a send ran out: `attempts` as in SendFailed
│   └── ReplyTimeout            a request() was sent, but nobody answered it
├── TooManyRequests         the limit of requests in flight is reached
├── StateError              not started, already closed, or inherited by a forked process
├── InvalidMessage          refused before anything was sent; also a ValueError
├── NoNameServer            no address of a name server is known
├── RouteNotFound           no name server knows a broker that has the topic, or the broker itself
├── SendFailed              every attempt to send failed: `attempts`, each a broker and its error
├── ReplyError              this message cannot be replied to
├── PartialFailure          some of several servers failed: `done`, `failures`, `partial`
├── InvalidFilter           a malformed SQL92 expression: `reason`, `column`; also a ValueError
├── ConfigError             a setting or its file is wrong; says which and where
├── NotDecided              a controller could not make a decision; nothing was changed, or nobody knows
├── BrokerError             the server refused: `code`, `remark`, `server`; each class knows if it is `retriable`
│   └── one class per response code: SystemBusy (2), TopicNotFound (17), …, see BY_CODE
└── StoreError              the files of a store
    ├── CorruptRecord           bytes that are not a record: `offset`, `reason`
    ├── OffsetOutOfRange        no message there, or no longer
    ├── MessageRefused          a message that the store cannot hold; nothing was written
    ├── NotSaved                a settings file could not be written; the change was undone
    └── StoreNotWritable        closed, disk full, or disk failure; says which
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class PyroMQError(Exception):
    """The root of all errors raised by PyroMQ. Every error has these attributes, set where known."""

    # RocketMQ's number: a server's response code, or one that the official clients use for their own errors.
    code: int = -1
    topic: str = ""
    address: str = ""
    # True if the same request may succeed on another broker, or later on this one.
    retriable: bool = False


class ProtocolError(PyroMQError):
    """Bytes or values that the remoting protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """We cannot send what the caller asked for. Nothing was written."""


class RemoteProtocolError(ProtocolError):
    """A peer sent something the protocol does not allow."""


class MissingField(RemoteProtocolError):
    """A header lacks a required field, or has a value that does not parse."""

    def __init__(self, header: str, field: str) -> None:
        super().__init__(f"{header} needs the field {field}")
        self.header = header
        self.field = field


class ConnectionLost(PyroMQError, ConnectionError):
    """The connection ended before the answer came; the request may have taken effect."""

    retriable = True

    def __init__(self, peer: str, reason: str = "connection closed") -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer = self.address = peer
        self.reason = reason


class ConnectFailed(ConnectionLost):
    """The peer could not be reached; nothing was sent."""

    code = 10001


class RequestTimeout(PyroMQError, TimeoutError):
    """No answer came in time; the request may have taken effect."""

    code = 10002
    retriable = True

    def __init__(self, peer: str, request_code: int, seconds: float) -> None:
        super().__init__(f"{peer}: no answer to request {request_code} within {seconds:g} s")
        self.peer = self.address = peer
        self.request_code = request_code
        self.seconds = seconds


class TooManyRequests(PyroMQError):
    """The limit of requests in flight is reached, and none finished in time."""

    retriable = True


class StateError(PyroMQError):
    """Used before it was started, after it was closed, in the wrong mode, or in a forked process."""


class InvalidMessage(PyroMQError, ValueError):
    """A message, topic or group that no broker would accept. Nothing was sent."""

    code = 13


class NoNameServer(PyroMQError):
    """No name server address: none was given, and the environment has none."""

    code = 10004


class RouteNotFound(PyroMQError):
    """No route: no broker has the topic (10005), or the broker has no known address (10003)."""

    code = 10005


class SendFailed(PyroMQError):
    """Every attempt to send a message failed. The cause is the last error, and so is the code."""

    retriable = True

    def __init__(self, topic: str, attempts: Sequence[tuple[str, PyroMQError]], reason: str = "") -> None:
        tried = "; ".join(f"{broker}: {error}" for broker, error in attempts)
        super().__init__(f"{topic}: not sent in {len(attempts)} attempts{reason and f', {reason}'}: {tried}")
        self.topic = topic
        self.attempts = tuple(attempts)
        if attempts:
            self.code = attempts[-1][1].code


class SendTimeout(RequestTimeout):
    """The time for a send, all attempts together, ran out. The message may have been stored."""

    def __init__(self, topic: str, attempts: Sequence[tuple[str, PyroMQError]], seconds: float) -> None:
        peer = attempts[-1][0] if attempts else "no broker"
        super().__init__(peer, 310, seconds)
        tried = "; ".join(f"{broker}: {error}" for broker, error in attempts) or "nothing was tried"
        self.args = (f"{topic}: not sent within {seconds:g} s in {len(attempts)} attempts: {tried}",)
        self.topic = topic
        self.attempts = tuple(attempts)


class ReplyTimeout(RequestTimeout):
    """A request() was stored, but nobody answered it in time."""

    code = 10006


class ReplyError(PyroMQError):
    """This message cannot be replied to: it does not say where a reply should go."""

    code = 10007


class PartialFailure(PyroMQError):
    """An operation on several servers failed on at least one. What the others did stays done.

    `done` names those that succeeded, `failures` the others, each with its error. `partial` is what a query found out
    nevertheless.
    """

    def __init__(
        self, what: str, done: Sequence[str], failures: Sequence[tuple[str, PyroMQError]], partial: Any = None
    ) -> None:
        failed = "; ".join(f"{name}: {error}" for name, error in failures)
        super().__init__(f"{what}: failed on {len(failures)} of {len(done) + len(failures)}: {failed}")
        self.what = what
        self.done = tuple(done)
        self.failures = tuple(failures)
        self.partial: Any = partial
        if failures:
            self.code = failures[0][1].code
            self.address = failures[0][1].address


class ConfigError(PyroMQError):
    """A setting is wrong. `source` says where it came from: a file with its line, a variable, a flag."""

    def __init__(self, reason: str, source: str = "") -> None:
        super().__init__(f"{source}: {reason}" if source else reason)
        self.reason = reason
        self.source = source


class NotDecided(PyroMQError):
    """A controller could not make a decision durable, or its ground changed meanwhile. Ask again."""

    retriable = True


class InvalidFilter(PyroMQError, ValueError):
    """A SQL92 expression that cannot be compiled; `column` says where, counted from 1."""

    code = 23

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(f"Invalid MessageSelector. column {column}: {reason}")
        self.reason = reason
        self.column = column


class BrokerError(PyroMQError):
    """A broker or name server answered a request with an error code.

    A request processor raises one of the subclasses to give that answer.
    """

    code = 1

    def __init__(self, remark: str = "", server: str = "", code: int | None = None) -> None:
        super().__init__(remark, server)
        self.remark = remark
        self.server = self.address = server
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        said = self.remark.strip() or "no reason given"
        return f"{self.server}: {said} (code {self.code})" if self.server else f"{said} (code {self.code})"


class ServerError(BrokerError):
    """The server failed for a reason without a code of its own."""

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
    """Stored, but not confirmed on disk in time."""

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
    """The offset is outside the queue; the answer says where to continue."""

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


class IllegalOperation(BrokerError):
    code = 604


class GoAway(BrokerError):
    """A 5.x server is shutting down and asks clients to reconnect."""

    code = 1500
    retriable = True


class NotLeader(BrokerError):
    """Another controller decides, or none does for the moment."""

    code = 2007
    retriable = True


BY_CODE: dict[int, type[BrokerError]] = {cls.code: cls for cls in BrokerError.__subclasses__()}


def broker_error(code: int, remark: str | None, server: str = "") -> BrokerError:
    """The error for a response with `code`; an unknown code keeps its number."""
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
    """A message that the store cannot hold: too long, or with parts that do not fit into a record."""


class NotSaved(StoreError):
    """A settings file could not be written, so the change was undone: `file`, `reason`."""

    def __init__(self, file: str, reason: object) -> None:
        said = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
        super().__init__(f"{file} could not be written: {said}; nothing was changed")
        self.file = file
        self.reason = reason


class StoreNotWritable(StoreError):
    """The store accepts no messages now: it was closed, the disk is full, or writing failed."""
