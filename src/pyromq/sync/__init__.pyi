# Made by scripts/sync_stubs.py; do not edit.
# ruff: noqa: A002
"""Blocking clients, for programs without an event loop: the same classes, with methods that wait.

    from pyromq.sync import Producer

    with Producer("orders", namesrv="localhost:9876") as producer:
        producer.send("TopicTest", b"hello")

Everything runs on one event loop in one thread of the process, started by the first call; any thread may use any
object. Use `for` instead of `async for`; `submit` returns a `concurrent.futures.Future`. In a thread that runs an event
loop, every call that would block it raises StateError.
"""

import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

from pyromq import client
from pyromq.client import (
    Credentials,
    Hook,
    Message,
    MessageExt,
    MessageQueue,
    OffsetStore,
    Pulled,
    SendResult,
    Sql,
    StartAt,
    Strategy,
    TxSendResult,
)
from pyromq.client.admin.acl import Account, AclVersion
from pyromq.client.admin.controllers import ControllerView, Elected
from pyromq.client.admin.fan_out import Answers
from pyromq.client.admin.offsets import ResetResult
from pyromq.client.admin.progress import GroupProgress
from pyromq.client.admin.tracks import MessageTrack
from pyromq.client.consumer.handlers import Handler, OnError, Predicate
from pyromq.client.consumer.pull_result import PullResult
from pyromq.client.consumer.push_consumer import H
from pyromq.client.consumer.subscriptions import Expression
from pyromq.client.consumer.topic_watch import QueuesListener
from pyromq.client.producer.selectors import Selector
from pyromq.client.producer.transactions import Check, Execute, HalfMessage
from pyromq.protocol.bodies import (
    AclConfig,
    AclInfo,
    BrokerStatsData,
    ClusterInfo,
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    EpochEntryCache,
    HARuntimeInfo,
    MessageRequestMode,
    ProducerInfo,
    QueryConsumeQueueResponseBody,
    QueueTimeSpan,
    ReplicasInfo,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicOffset,
    TopicRouteData,
    UserInfo,
)
from pyromq.remoting import TlsConfig

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

class ReceivedMessage(client.ReceivedMessage):
    """A delivered message, see `pyromq.ReceivedMessage`."""
    def reply(self, body: bytes, *, timeout: float = 3.0) -> SendResult:  # type: ignore[override]
        """Answer a message sent with `request()`. Raises ReplyError if no one waits for an answer."""

class Client:
    """Connections, routes and timers for any number of producers and consumers, at most one of each per group.

    Making one needs no event loop and opens nothing. Once started, it belongs to its event loop and process: a forked
    child cannot use it and must make its own.

    `namesrv` is `"host:port;host:port"` or a list; without it, the environment's NAMESRV_ADDR is used, then, if given,
    the address server at `namesrv_domain`. `credentials` sign every request; `"env:PREFIX"` and `"file:PATH"` say where
    they are kept (`Credentials.look_up`). `tls=True` encrypts and trusts every server, as RocketMQ's own clients do by
    default; give a `TlsConfig` to check certificates, whose files are read again when they change, or an
    `ssl.SSLContext`. `trace` records what happens to messages, in RocketMQ's topic for it or the one that you name;
    `trace_context` makes messages part of traces, by the property `traceparent` (`client/trace_context.py`). `stream`
    marks the client of a pull consumer. Times are in seconds.
    """
    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        instance_name: str | None = None,
        client_ip: str | None = None,
        unit_name: str | None = None,
        namespace: str | None = None,
        namesrv_domain: str | None = None,
        credentials: Credentials | str | None = None,
        tls: ssl.SSLContext | TlsConfig | bool = False,
        vip_channel: bool = False,
        api_timeout: float = 3.0,
        route_interval: float = 30.0,
        heartbeat_interval: float = 30.0,
        offset_interval: float = 5.0,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        trace_context: bool = False,
        stream: bool = False,
    ) -> None: ...
    def start(self) -> Self:
        """Start it and keep it running until `close`, even without members. Does not need a server to be up."""
    def close(self) -> None:
        """Unregister all members, end all tasks and connections. Always ends; a closed client stays closed."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def is_encrypted(self) -> bool:
        """Whether it speaks TLS."""
    @property
    def versions(self) -> dict[str, int]: ...

class Producer:
    """Sends the messages of one group.

    `timeout` covers a whole send, all attempts together; without `attempt_timeout` a hanging broker uses it up, and
    retries help only against immediate failures. A message that was stored but not confirmed by disk or replica is a
    result with that status; `retry_not_stored` sends it to another broker too.

    `submit` keeps up to `window` messages and `window_bytes` bytes in flight, and waits when they are. With `linger`
    (seconds), submitted messages to one queue share a request; 0.005 is a good value if throughput matters.

    Making one opens nothing. Any number of threads may use it.
    """
    def __init__(
        self,
        group: str,
        *,
        client: Client | None = None,
        namesrv: str | Sequence[str] | None = None,
        timeout: float = 3.0,
        attempt_timeout: float | None = None,
        retries: int = 2,
        retry_not_stored: bool = False,
        retry_codes: Iterable[int] = ...,
        compress_over: int = 4096,
        compression: str = "zlib",
        max_size: int = 4 << 20,
        fault_tolerance: bool = False,
        window: int = 10000,
        window_bytes: int = 100 << 20,
        linger: float = 0.0,
        default_queues: int = 4,
    ) -> None: ...
    def start(self) -> Self:
        """Start it. Does not need a server to be up."""
    def close(self) -> None:
        """Wait for submitted messages, as long as a send may take, and unregister. Always ends."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def group(self) -> str: ...
    @property
    def client(self) -> Client: ...
    def send(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> SendResult:
        """Send a message, given whole or as topic, body and further fields of `Message`, and wait until it is stored.

        Unless you choose the queue, further attempts go to other brokers. `shard_key`, here or in the message, sends
        all messages with one key to one queue; `queue` names a queue, and `selector` chooses one.

        Raises InvalidMessage before anything is sent; RouteNotFound if no broker has the topic; a BrokerError for a
        refusal that retrying cannot cure; SendFailed after the last attempt; SendTimeout when the time is up. After
        the last two, and after ConnectionLost or RequestTimeout, the message may be stored.
        """
    def send_oneway(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> None:
        """Send a message without waiting for an answer: it may get lost. An error means that it was not sent."""
    def send_batch(
        self,
        msgs: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as their size allows; returns one result per request.

        The requests go one after the other, each within `timeout`. If one fails, those before it are stored.
        Delayed messages cannot be part of a batch, nor can messages that differ in `wait_store`.
        """
    def submit(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> Future[SendResult]:
        """Start sending a message; the future gets what `send` would have returned or raised.

        Waits only while the window is full or the broker does not read, at most `timeout`: then TooManyRequests.
        """
    def flush(self) -> None:
        """Wait until everything submitted so far is answered. Errors go to the futures."""
    def request(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float,
        **fields: Any,
    ) -> ReceivedMessage:
        """Send a message and wait for its consumer's reply (`ReceivedMessage.reply`).

        Raises ReplyTimeout if it was sent but no one replied in time; otherwise whatever `send` raises.
        """
    def recall(self, topic: str, handle: str) -> str:
        """Recall a delayed message; `handle` is its SendResult's `recall_handle`. Returns the message's id.

        Only 5.x brokers and PyroMQ's can do that, and only until the message is due.
        """
    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages to `topic` go to."""

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
        retry_codes: Iterable[int] = ...,
        compress_over: int = 4096,
        compression: str = "zlib",
        max_size: int = 4 << 20,
        fault_tolerance: bool = False,
        window: int = 10000,
        window_bytes: int = 100 << 20,
        linger: float = 0.0,
        default_queues: int = 4,
    ) -> None: ...
    def check(self, fn: Check) -> Check:
        """Decorator: `fn` answers the checks."""
    def send_in_transaction(
        self, msg: Message | str, execute: Execute, body: bytes | None = None, **fields: Any
    ) -> TxSendResult:
        """Store the half message, run `execute` with a copy of it, and let its answer decide.

        An error in `execute` is logged and leaves the decision to `check`. If the half message was stored but not
        confirmed, `execute` does not run and the message is rolled back.
        """
    def transaction(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        on_error: Literal["unknown", "rollback"] = "unknown",
        **fields: Any,
    ) -> Transaction:
        """`with` stores the half message on entry and commits it on exit.

        An error inside leaves the decision to `check`, or rolls back if `on_error` says so, and is raised again.
        Entering raises what `send` raises, and SendFailed if the half message was stored but not confirmed.
        """

class Transaction:
    """One transaction, for `with`. `id` names it, here and in checks."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def id(self) -> str: ...
    @property
    def message(self) -> HalfMessage:
        """The message as it was stored."""
    @property
    def result(self) -> TxSendResult:
        """The result of the half message and, after the end, the decision."""
    def rollback(self) -> None:
        """Roll the message back at the end of the block."""

class Consumer:
    """A member of a consumer group: it gets its share of the group's messages, each at least once.

    A handler is a coroutine function, or a plain one, which runs in a thread. It gets one message, or with `batch`
    above 1 a list. Returning None means done, raising means try again later; the other answers are in `results`. At
    most `max_concurrency` handlers run at once, in as many tasks, which they share: a handler may find context
    variables that another one set.

    | setting | |
    |---|---|
    | `broadcast` | every member gets every message; progress is kept in a file; failures are not retried |
    | `ordered` | consume the messages of a queue one by one; a failure stops the queue for `suspend` seconds |
    | `start_at` | where a group that never committed begins: `StartAt`, or a datetime |
    | `allocate` | how members share the queues; all must use the same strategy |
    | `max_cached`, `max_cached_mib`, `max_span` | how many messages, MiB and offsets of one queue to pull ahead |
    | `max_retries` | retries before a message becomes a dead letter; None: 16, forever if ordered |
    | `consume_timeout` | give a message back if its handler takes longer, and ignore the handler's answer |
    | `drain` | seconds that `close` waits for handlers before it cancels them |
    | `on_error` | called with errors that go nowhere else, and the message if there is one |

    A client you pass in may be shared; it keeps running while others use it.
    """
    def __init__(
        self,
        group: str,
        topics: Mapping[str, str | Sql] | None = None,
        *,
        client: Client | None = None,
        namesrv: str | Sequence[str] | None = None,
        broadcast: bool = False,
        ordered: bool = False,
        start_at: StartAt | datetime = StartAt.LAST,
        allocate: Strategy = ...,
        max_concurrency: int = 20,
        batch: int = 1,
        pull_batch: int = 32,
        max_cached: int = 1000,
        max_cached_mib: int = 100,
        max_span: int = 2000,
        max_retries: int | None = None,
        suspend: float = 1.0,
        consume_timeout: float = 900.0,
        drain: float = 10.0,
        on_error: OnError | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None: ...
    def start(self) -> Self:
        """Start consuming. If that fails, it raises the reason in bounded time and undoes everything.

        A topic need not exist yet: its messages come when it does.
        """
    def close(self) -> None:
        """Stop pulling, let handlers finish, commit their work, unregister. Always ends, after `drain` and 5 seconds.

        In a handler, which cannot wait for its own end, it returns at once and closing goes on.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages, one at a time, until the consumer is closed.

        A message is done when you ask for the next one or call its `ack()`. If you leave the loop by an exception or
        `break`, its message is delivered again. Several loops share the messages.
        """
    @property
    def group(self) -> str: ...
    @property
    def client(self) -> Client: ...
    def subscribe(
        self, topic: str, expr: str | Sql = "*", handler: Handler | None = None, *, where: Predicate | None = None
    ) -> None:
        """Consume messages of `topic` with `handler`; without one they come through `for`.

        `expr` filters at the broker: tags (`"paid || sent"`) or `Sql("amount > 100")`. `where` filters here: messages
        for which it returns False count as consumed. All members of a group must subscribe to the same.

        May be called while the consumer runs: it replaces the topic's earlier subscription.
        """
    def on(self, topic: str, expr: str | Sql = "*", *, where: Predicate | None = None) -> Callable[[H], H]:
        """Decorator: `subscribe` with this function as the handler."""
    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from `topic`. When this returns, its progress is committed and its queues are given up."""
    def run(self) -> None:
        """Start, consume until `close` is called or this is cancelled, and close."""
    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues it owns now; empty before the first rebalancing and after the end."""
    def pause(self) -> None:
        """Stop pulling and rebalancing. Messages already pulled are still consumed."""
    def resume(self) -> None:
        """Continue after `pause`."""

class PullConsumer:
    """Reads its share of the group's queues (`subscribe`), or the queues you name (`assign`).

    Polling, committing and seeking are for one thread at a time: with `auto_commit`, asking for the next batch means
    that the one before is done. `start_at` applies to queues the group never committed. Times are in seconds.

    Without `auto_commit` only `commit` commits. `commit_interval` is how often background commits go to the brokers.
    """
    def __init__(
        self,
        group: str,
        topics: Mapping[str, str | Sql] | None = None,
        *,
        client: Client | None = None,
        namesrv: str | Sequence[str] | None = None,
        broadcast: bool = False,
        start_at: StartAt | datetime = StartAt.LAST,
        allocate: Strategy | None = None,
        pull_batch: int = 32,
        broker_wait: float = 20.0,
        max_buffered: int = 10000,
        max_cached: int = 1000,
        max_cached_mib: int = 100,
        max_span: int = 2000,
        auto_commit: bool = True,
        commit_interval: float = 5.0,
        metadata_interval: float = 30.0,
        offset_store: OffsetStore | None = None,
    ) -> None: ...
    def start(self) -> Self:
        """Start reading. If that fails, it raises the reason and undoes everything.

        A topic need not exist yet: it is read as soon as it does.
        """
    def close(self) -> None:
        """Stop reading, commit pending offsets, unregister. Always ends; the last batch does not count as done.

        Call `commit` first if it should.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __iter__(self) -> Iterator[list[ReceivedMessage]]: ...
    @property
    def group(self) -> str: ...
    def subscribe(self, topic: str, expr: str | Sql = ...) -> None:
        """Share the queues of `topic` with the other members of the group; call it again to change the expression.

        All members must subscribe alike: a broker keeps only the last subscription it heard of.
        """
    def unsubscribe(self, topic: str) -> None:
        """Stop reading `topic`; its progress is committed."""
    def assign(self, queues: Iterable[MessageQueue], filters: Mapping[str, str | Sql] | None = None) -> None:
        """Read exactly these queues, whatever other members of the group read; call it again to read others.

        `filters` selects messages by topic; the default is all. Queues that stay keep their positions.
        """
    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues being read now."""
    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of `topic`, whoever reads them. Raises RouteNotFound if it does not exist."""
    def watch(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener(topic, queues)`, plain or async, when the queues of `topic` change.

        It is also called once with the current ones. Checked every `metadata_interval` seconds; useful with `assign`,
        to hear of new queues.
        """
    def poll(self, max: int | None = None, timeout: float = 5.0) -> list[ReceivedMessage]:
        """The next messages, in order within each queue: one pull's batch, or up to `max` from any queue.

        Empty if none came within `timeout`. With `auto_commit`, everything handed out before now counts as done.
        """
    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max: int = 32,
        *,
        expr: str | Sql = ...,
        wait: bool = False,
        timeout: float | None = None,
    ) -> Pulled:
        """Pull once from any queue, assigned or not, without buffering: the caller keeps track of the offset.

        With `wait` the broker waits for a message if there is none, up to `broker_wait` seconds.
        """
    def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Deliver `message` to the group again, through its retry topic; -1 makes it a dead letter."""
    def seek(self, queue: MessageQueue, to: int | StartAt | datetime) -> None:
        """Continue at an offset, at the beginning or end of the queue, or at the first message since a time.

        Messages pulled but not polled are dropped. Raises OffsetOutOfRange for an offset outside the queue.
        """
    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message of `queue` to hand out; None while unknown."""
    def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The offset of the first message in `queue`, and the one after the last."""
    def pause(self, *queues: MessageQueue) -> None:
        """Stop pulling these queues, or all assigned now; messages already pulled are still handed out."""
    def resume(self, *queues: MessageQueue) -> None:
        """Pull again."""
    def commit(self, offsets: Mapping[MessageQueue, int] | None = None, wait: bool = True) -> None:
        """Commit everything handed out; or, for each queue in `offsets`, everything before that offset.

        It is stored when this returns; if it raises, some queues may be committed. With `wait=False` it returns at
        once, and the brokers are told within `commit_interval`.
        """
    def committed(self, queue: MessageQueue) -> int | None:
        """The offset the group committed for `queue`; None if it never did. Raises if the broker cannot be asked.

        For a queue that still has its first message, a broker may answer 0 instead of None, see StartAt.
        """

class AdminClient:
    """Inspects and changes a cluster.

        with AdminClient("localhost:9876") as admin:
            await admin.topics.create("orders", write_queues=4, read_queues=4)
            print((await admin.groups.progress("billing")).lag)

    Something that does not exist raises. Several servers are asked at the same time; if some fail, the operation raises
    PartialFailure, which says who succeeded, who failed and why, and what was found out nevertheless. Names are used
    unchanged: a client's namespace is not added.

    `timeout` covers one request, in seconds. `client` may be shared with producers and consumers.
    """
    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        timeout: float = 5.0,
        group: str = ...,
    ) -> None: ...
    def start(self) -> Self:
        """Does not need a server to be up. StateError if the client already has an admin of this group."""
    def close(self) -> None:
        """Always ends. Requests in flight on its own client fail with ConnectionLost."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def client(self) -> Client:
        """The client it uses; producers and consumers may share it."""
    @property
    def topics(self) -> TopicAdmin: ...
    @property
    def groups(self) -> GroupAdmin: ...
    @property
    def offsets(self) -> OffsetAdmin: ...
    @property
    def messages(self) -> MessageAdmin: ...
    @property
    def brokers(self) -> BrokerAdmin: ...
    @property
    def namesrv(self) -> NameServerAdmin: ...
    @property
    def acl(self) -> AclAdmin: ...
    @property
    def clients(self) -> ClientAdmin: ...
    @property
    def controllers(self) -> ControllerAdmin: ...

class TopicAdmin:
    """Operations on topics. Names are the brokers' own: no namespace is added."""
    def create(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
        read_queues: int = 8,
        write_queues: int = 8,
        perm: int = ...,
        sys_flag: int = 0,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Create a topic on `brokers`, on the masters of a cluster, or on all masters; returns their addresses.

        If it exists, all its settings are replaced. A broker that is unreachable or busy is asked up to five times.
        With `order` the name servers learn how many queues each broker has, so that producers keep to them; entries of
        other brokers stay. `attributes` are for 5.x brokers, which keep those not mentioned; a key may begin with +,
        and a leading - removes the attribute.
        """
    def put(
        self, config: TopicConfig, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Like `create`, with the settings in one object."""
    def update(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
    ) -> list[str]:
        """Change only these settings of a topic on brokers that have it; returns their addresses.

        Raises TopicNotFound, with nothing changed, if one of them does not have it. Use `set_order` to change the
        number of queues that producers of an ordered topic use.
        """
    def delete(self, topic: str, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> None:
        """Delete a topic and its queues: from the brokers, then from the name servers. It need not exist.

        If a broker fails, the name servers keep it, since they would learn of it again from that broker. With `brokers`
        it is deleted only there, and the name servers keep it: others may still have it.
        """
    def names(self, cluster: str | None = None) -> list[str]:
        """The names of all topics, or a cluster's, sorted, including retry and system topics."""
    def system(self) -> list[str]:
        """RocketMQ's own topics, sorted, including those of clusters and brokers."""
    def route(self, topic: str) -> TopicRouteData:
        """Where the queues of a topic are. Raises TopicNotFound."""
    def clusters(self, topic: str) -> list[str]:
        """The clusters that have a topic, sorted. Raises TopicNotFound."""
    def config(self, topic: str) -> dict[str, TopicConfig]:
        """The settings of a topic on each broker that has it, by the broker's name. Raises TopicNotFound."""
    def configs(self, broker: str) -> dict[str, TopicConfig]:
        """All topics of one broker."""
    def stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Where each writable queue begins and ends. Raises TopicNotFound."""
    def groups(self, topic: str) -> list[str]:
        """The groups that subscribe to a topic or have offsets in it, sorted. Raises TopicNotFound."""
    def order(self, topic: str) -> dict[str, int]:
        """How many queues of an ordered topic each broker has. Raises QueryNotFound if the topic is not ordered."""
    def set_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Make a topic ordered, with exactly these queues."""
    def merge_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Change the queues of some brokers and keep those of the others."""
    def delete_order(self, topic: str) -> None:
        """Make a topic unordered again; it need not be ordered."""

class GroupAdmin:
    """Operations on groups. Names are the brokers' own: no namespace is added."""
    def create(
        self,
        config: SubscriptionGroupConfig | str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Create a group, or replace all its settings; on `brokers`, the masters of a cluster, or everywhere.

        Returns the addresses. A name alone means RocketMQ's defaults.
        """
    def delete(
        self,
        group: str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
        remove_offsets: bool = False,
    ) -> None:
        """Delete a group, and with `remove_offsets` its offsets. It need not exist.

        Without `brokers`, its retry and dead-letter topics are deleted too, with their messages.
        """
    def set_request_mode(
        self,
        group: str,
        topic: str,
        mode: MessageRequestMode,
        *,
        share_queues: int = 0,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Choose whether a group pulls or pops a topic (5.x, for members that let the broker decide).

        With pop, each member shares the queues of `share_queues` others; 0 means all. Returns the addresses.
        """
    def names(self, cluster: str | None = None) -> list[str]:
        """All groups known to any broker, sorted."""
    def config(self, group: str, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]:
        """The settings of a group by broker address. Raises SubscriptionGroupNotExist if no broker knows it.

        Fetches all groups: asked for one (352), a 5.x broker would create it.
        """
    def configs(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """All groups of one broker."""
    def progress(self, group: str, topic: str | None = None, *, clients: bool = False) -> GroupProgress:
        """The progress of a group in one topic or all. Raises ConsumerNotOnline if it has no offset anywhere.

        `clients` adds which consumer has which queue, and asks every one of them. If a broker does not answer,
        PartialFailure has the rows of the others in `partial`.
        """
    def stats_at(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """A group's progress on one broker; no rows if it has none there."""
    def time_span(self, group: str, topic: str) -> list[QueueTimeSpan]:
        """The times of the first, the last and the last consumed message of each queue. Raises TopicNotFound."""
    def owners(self, group: str) -> dict[MessageQueue, str]:
        """Which consumer has which queue. The queues of silent consumers stay unknown."""
    def running_infos(self, group: str, *, stacks: bool = False) -> dict[str, ConsumerRunningInfo]:
        """The running info of each consumer of a group, by id. Raises ConsumerNotOnline if there are none.

        If some do not answer, PartialFailure has the others' in `partial`.
        """
    def connections(self, group: str) -> ConsumerConnection:
        """The members of a group and their subscriptions. Raises ConsumerNotOnline if there are none.

        Consumers connect to all brokers; all are asked, to find those that some brokers lost.
        """
    def producers(self, group: str, topic: str) -> list[Connection]:
        """The members of a producer group connected to brokers of `topic`. Raises ServerError if there are none."""
    def all_producers(self, broker: str) -> dict[str, list[ProducerInfo]]:
        """All producers connected to one broker, by group."""

class OffsetAdmin:
    """Operations on offsets."""
    def minimum(self, queue: MessageQueue) -> int:
        """The offset of the oldest message in the queue."""
    def maximum(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
    def at_time(self, queue: MessageQueue, when: datetime) -> int:
        """The offset of the first message stored at this time or later, as exactly as brokers know it.

        4.9 brokers choose the nearest message, and the last one for any later time.
        """
    def earliest_store_time(self, queue: MessageQueue) -> datetime:
        """When the oldest message was stored. Raises NoMessage if there is none."""
    def committed(self, group: str, queue: MessageQueue) -> int:
        """The offset where `group` continues. Raises QueryNotFound if it has none.

        Brokers answer 0 for a group without one while the queue still has its first message in memory.
        """
    def set(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Set the offsets of an offline group. An online one overwrites them."""
    def reset(
        self, group: str, topic: str, to: datetime | None, *, force: bool = True, offline: bool = False
    ) -> ResetResult:
        """Move a group to the first message stored since `to`, or, with None, to the end.

        Each broker tells its consumers; where there are none, or everywhere with `offline`, the offsets are set.
        Without `force` the group only moves back, never forward. Consumers take a moment and may get messages twice. If
        a broker fails, PartialFailure has the results of the others in `partial`.
        """
    def clone(self, source: str, target: str, topic: str | None = None, *, offline: bool = False) -> list[str]:
        """Copy the offsets of one group to another, in one topic or all; returns the topics.

        If `source` is online, brokers skip topics it does not subscribe to, unless `offline` is set. Raises
        ConsumerNotOnline if `source` has no offsets.
        """

class MessageAdmin:
    """Operations on messages. A message that is not found raises NoMessage."""
    def by_offset_id(self, offset_id: str) -> MessageExt:
        """The message at the place in the id, from the broker whose address is in it."""
    def by_key(
        self, topic: str, key: str, *, limit: int = ..., begin: datetime | None = None, end: datetime | None = None
    ) -> list[MessageExt]:
        """The messages with this key, oldest first; at most `limit` per broker, and no more than 64.

        `begin` and `end` limit the store time. Raises TopicNotFound. If a broker does not answer, PartialFailure has
        what the others found in `partial`.
        """
    def by_uniq_key(self, topic: str, uniq_key: str) -> MessageExt:
        """The message with this id, set by its producer; of several copies, the one stored first.

        The id contains its time, so only younger messages are searched. That time may be wrong, by a time zone or a
        month; if nothing is found, all messages are searched.
        """
    def get(self, topic: str, message_id: str) -> MessageExt:
        """A message by either of its ids, which look the same.

        It is tried as an offset id only if it contains a broker's address: a UNIQ_KEY may have anything there.
        """
    def at(self, queue: MessageQueue, offset: int) -> MessageExt:
        """The message at an offset of a queue. Raises NoMessage if it is still to come, or gone."""
    def pull(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        count: int = 32,
        *,
        expression: Expression = ...,
        wait: float = 0.0,
    ) -> PullResult:
        """Pull messages from `offset` on, from the broker at `address`. Changes no offsets.

        With `wait` the broker waits that many seconds for a message if there is none.
        """
    def consume_queue(
        self, queue: MessageQueue, index: int, count: int = 32, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a consume queue from `index` on; `group` adds its subscription.

        Raises NoMessage if the queue ends before `index`, and ServerError if there is no such queue.
        """
    def track(self, message: MessageExt) -> list[MessageTrack]:
        """What each group of the message's topic has done with it, judging by offsets.

        A group that cannot be checked is UNKNOWN, with the reason: one group never makes this fail.
        """
    def consume_directly(
        self, group: str, message: MessageExt | str, client_id: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Make a consumer handle a message now, whatever the group's offsets. Changes no offsets.

        `message` may be an offset id. Without `client_id` any consumer of the group gets it. Raises NoMessage or
        ServerError if there is no such message or consumer, ConsumeMessageTimeout if it takes over ten seconds.
        """
    def resume_check(self, message: MessageExt | str, topic: str | None = None) -> None:
        """Make the broker resume checks of a half message it gave up on; `message` may be its offset id."""

class BrokerAdmin:
    """Operations on brokers. `broker` is an address, or a name, which means its master."""
    def cluster_info(self) -> ClusterInfo:
        """All brokers by name, and the broker names of each cluster. A name may be without addresses."""
    def of_topic(self, topic: str) -> dict[str, str]:
        """The brokers of a topic, by name: the master, or a slave while it is down. Raises TopicNotFound."""
    def config(self, broker: str) -> dict[str, str]:
        """All settings of a broker, by RocketMQ's keys."""
    def set_config(
        self, changes: Mapping[str, str], *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Change settings at once and in the brokers' files; `cluster` includes slaves. Returns the addresses.

        A broker that refuses one of the keys (NoPermission) changes nothing. Unknown keys are ignored.
        """
    def runtime(self, broker: str) -> dict[str, str]:
        """A broker's runtime figures, as text under RocketMQ's keys (docs/spec/broker.md 12.2)."""
    def ha_status(self, broker: str) -> HARuntimeInfo:
        """Who follows a master, or whom a slave follows. Raises RequestCodeNotSupported from a broker of 4.9."""
    def epochs(self, broker: str) -> EpochEntryCache:
        """The epochs of a broker's log, and its end. Raises BrokerError from one that is not in controller mode."""
    def stats(self, broker: str, name: str, key: str) -> BrokerStatsData:
        """A counter over the last minute, hour and day: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group`.

        Raises ServerError if there is no such counter, as is the case until something was counted.
        """
    def consume_stats(self, broker: str, *, ordered: bool = False) -> ConsumeStatsList:
        """The progress of all groups on one broker, in one answer; `ordered` limits it to ordered topics."""
    def clean_queues(self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> list[str]:
        """Delete consume queues whose messages have all left the log. Returns the addresses."""
    def clean_topics(self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> list[str]:
        """Delete consume queues of topics that do not exist. Returns the addresses."""
    def clean_log(self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> list[str]:
        """Delete expired log files now instead of at night. Returns the addresses."""
    def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Stop sends to a broker; consumers go on. Returns the number of its topics, by name server."""
    def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Undo `wipe_write_perm`: all topics of the broker become readable and writable, whatever was set before."""

class NameServerAdmin:
    """Operations on name servers. A change raises PartialFailure if it did not reach all of them."""
    def put_kv(self, namespace: str, key: str, value: str) -> None: ...
    def get_kv(self, namespace: str, key: str) -> str:
        """Raises QueryNotFound."""
    def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a key; it need not exist."""
    def list_kv(self, namespace: str) -> dict[str, str]:
        """All keys of a namespace. Raises QueryNotFound for one that never had any."""
    def config(self) -> dict[str, dict[str, str]]:
        """The settings of every name server, by its address."""
    def set_config(self, changes: Mapping[str, str]) -> None:
        """Change settings on every name server, at once and in its file. Keys are RocketMQ's."""

class AclAdmin:
    """Operations on accounts, users and policies."""
    def set_account(
        self, account: Account, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Create or replace an account; returns the addresses."""
    def delete_account(
        self, access_key: str, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]: ...
    def versions(
        self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> dict[str, AclVersion]:
        """The version of each broker's accounts, by address."""
    def accounts(
        self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> dict[str, AclConfig]:
        """The accounts and white addresses of each broker, by address. 4.9.8 and 5.2 do not tell (54)."""
    def set_white_addresses(
        self,
        addresses: Iterable[str],
        *,
        file: str | None = None,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Allow everything from these addresses. `file` names one of several that a broker reads."""
    def create_user(
        self, user: UserInfo, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]: ...
    def update_user(
        self, user: UserInfo, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Fields that are None stay unchanged."""
    def delete_user(
        self, username: str, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]: ...
    def user(self, broker: str, username: str) -> UserInfo:
        """Raises BrokerError with code 3001 if there is none."""
    def users(self, broker: str, filter: str | None = None) -> list[UserInfo]:
        """All users of a broker, or those whose name contains `filter`."""
    def create_acl(
        self, acl: AclInfo, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]: ...
    def update_acl(
        self, acl: AclInfo, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]: ...
    def delete_acl(
        self,
        subject: str,
        *,
        resource: str | None = None,
        policy_type: str | None = None,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Delete all policies of a subject, or those on one resource."""
    def acl(self, broker: str, subject: str) -> AclInfo:
        """Raises BrokerError with code 3002 if there is none."""
    def acls(self, broker: str, *, subject: str | None = None, resource: str | None = None) -> list[AclInfo]:
        """All policies of a broker, or those whose subject and resource contain these texts."""

class ClientAdmin:
    """Asks consumers. Any broker that knows one can pass a request on, so brokers are tried in turn."""
    def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The settings, queues and rates of one consumer; `stacks` adds its threads' stacks.

        Raises ServerError if no broker has it, and ConsumeMessageTimeout if it does not answer within ten seconds.
        """
    def consume_status(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """The offsets in the memory of one consumer or all, committed or not, by client id.

        Silent consumers are left out. Raises TopicNotFound, and ServerError if no one is online.
        """

class ControllerAdmin:
    """Operations on controllers. `controllers` are addresses, of which one that works is enough."""
    def view(self, controller: str) -> ControllerView:
        """What this controller says of its group, whether it leads or not."""
    def views(self, controllers: Iterable[str]) -> Answers[ControllerView]:
        """The same of several, and of the peers that they name."""
    def leader(self, controllers: Sequence[str]) -> ControllerView:
        """The first answer that names a leader. Raises BrokerError (2007) if nobody does."""
    def replicas(self, controllers: Sequence[str], brokers: Iterable[str]) -> dict[str, ReplicasInfo]:
        """Groups by broker name: the master, and who is in sync. Names that no controller knows are left out."""
    def elect(self, controllers: Sequence[str], cluster: str, broker: str, broker_id: int) -> Elected:
        """Make a broker the master of its group. Raises BrokerError: 2012 if it is not alive or not in sync."""
    def clean(
        self,
        controllers: Sequence[str],
        broker: str,
        ids: Sequence[int] = (),
        *,
        cluster: str | None = None,
        living: bool = False,
    ) -> None:
        """Forget stopped brokers of a group, or all of it. Raises BrokerError (2009) for one that lives.

        With `living` it is forgotten even while its brokers run: they lose their role and must be started afresh.
        Apache's controllers then forget the whole group, whatever `ids` says.
        """
    def config(self, controllers: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of each controller, by its address."""
    def set_config(self, controllers: Iterable[str], changes: Mapping[str, str]) -> list[str]:
        """Change settings at each of these controllers; they do not tell each other. Returns the addresses."""
