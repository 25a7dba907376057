# Made by scripts/sync_stubs.py; do not edit.
# ruff: noqa: A002
"""The clients for programs without an event loop: the same classes, with methods that wait.

    from pyromq.sync import Producer

    with Producer("orders", namesrv="localhost:9876") as producer:
        producer.send("TopicTest", b"hello")

Everything happens on one event loop in one thread of the process, which starts with the first call; any thread may use
any object. `for` loops take the place of `async for`, `submit` gives a `concurrent.futures.Future`. In a thread that
runs an event loop every call that would block it raises StateError.
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
from pyromq.client.admin.acl import Account, Acl, AclVersion, User
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
    BrokerStatsData,
    ClusterInfo,
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    MessageRequestMode,
    ProducerInfo,
    QueryConsumeQueueResponseBody,
    QueueTimeSpan,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicOffset,
    TopicRouteData,
)

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

class ReceivedMessage(client.ReceivedMessage):
    """A delivered message, see `pyromq.ReceivedMessage`."""
    def reply(self, body: bytes, *, timeout: float = 3.0) -> SendResult:  # type: ignore[override]
        """Answer a message that was sent with `request()`. Raises ReplyError when nobody waits for an answer."""

class Client:
    """Connections, routes and timers for any number of producers and consumers, at most one for each group.

    Making one needs no event loop and opens nothing. Started, it belongs to the loop that it was started in, and to
    the process: a forked child cannot use it and must make its own.

    `namesrv` is `"host:port;host:port"` or a list; without it the environment's NAMESRV_ADDR counts, then, if given,
    the address server at `namesrv_domain`. `tls=True` encrypts and trusts every server, as RocketMQ's own clients do
    by default; give an `ssl.SSLContext` to check certificates. `stream` marks the client of a pull consumer. Times are
    in seconds.
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
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | bool = False,
        vip_channel: bool = False,
        api_timeout: float = 3.0,
        route_interval: float = 30.0,
        heartbeat_interval: float = 30.0,
        offset_interval: float = 5.0,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        stream: bool = False,
    ) -> None: ...
    def start(self) -> Self:
        """Start it and keep it running until `close`, whatever members come and go. Needs no server to be there."""
    def close(self) -> None:
        """Say goodbye for all members, end all tasks and connections. Always ends; a closed client stays closed."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def versions(self) -> dict[str, int]: ...

class Producer:
    """Sends the messages of one group.

    `timeout` is for a whole send, all attempts together; without `attempt_timeout` a broker that hangs takes all of it,
    and retries help only against failures that show at once. A message that was stored but not confirmed by disk or
    replica is a result with that status; `retry_not_stored` has it sent to another broker too.

    `submit` keeps up to `window` messages and `window_bytes` bytes under way and suspends when they are. With `linger`
    (seconds) submitted messages to one queue leave together in one request; 0.005 is a good value where that matters.

    Making one opens nothing. It may be used by any number of threads.
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
        """Take up work. Needs no server to be there."""
    def close(self) -> None:
        """Wait for what was submitted, as long as a send may take, and say goodbye. Always ends."""
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

        Where the queue is not the caller's choice, further attempts go to other brokers. `shard_key`, here or in the
        message, sends all messages with one key to one queue; so does `queue`, and `selector` chooses from the queues.

        Raises InvalidMessage before anything is sent; RouteNotFound when no broker has the topic; a BrokerError for a
        refusal that no other broker would answer differently; SendFailed after the last attempt; SendTimeout when the
        time is over. After the last two, and after ConnectionLost or RequestTimeout, the message may be stored.
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
        """Send a message and do not wait for an answer: it may get lost. An error means that it was not sent."""
    def send_batch(
        self,
        msgs: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as their size allows; gives one result for each request.

        The requests are made one after the other, each within `timeout`. When one fails, those before it are stored.
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
        """Start sending a message; the future ends with what `send` would have given or raised.

        Waits only while the window is full or the broker does not read, at most for `timeout`: then TooManyRequests.
        """
    def flush(self) -> None:
        """Wait until all that was submitted so far is answered. Errors are those of the futures."""
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
        """Send a message and wait for the reply of whoever consumes it (`ReceivedMessage.reply`).

        Raises ReplyTimeout when it was sent and nobody answered in time; otherwise what `send` raises.
        """
    def recall(self, topic: str, handle: str) -> str:
        """Have a delayed message not delivered; `handle` is its SendResult's `recall_handle`. Gives the message's id.

        Only 5.x brokers can do that, and only until the message is due.
        """
    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages to `topic` go to."""

class TransactionProducer(Producer):
    """A producer whose messages may depend on local work.

    `check` is asked by brokers about transactions whose end they do not know, of any producer of this group. It answers
    COMMIT, ROLLBACK or, to be asked again later, UNKNOWN; so does raising. Checks are made one after the other; of more
    than `max_checks` that wait the broker's later ones are dropped: it asks again. Plain functions run in a thread.

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

        What `execute` raises is logged, and leaves the decision to `check`. It does not run when the half message was
        stored without being confirmed: then the message is rolled back.
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
        Entering raises what `send` raises, and SendFailed when the half message was stored without being confirmed.
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
        """How the half message was stored, and, after the end, what was decided."""
    def rollback(self) -> None:
        """At the end of the block nobody shall see the message."""

class Consumer:
    """A member of a consumer group: it gets its share of the group's messages, each at least once.

    A handler is a coroutine function or a plain one, which runs in a thread. It gets one message, or with `batch` more
    than 1 a list of them. Returning nothing means done, raising means try again later; the other answers are in
    `results`. At most `max_concurrency` handlers run at once, in as many tasks, which they share: what one of them
    leaves in a context variable another may find there.

    | setting | |
    |---|---|
    | `broadcast` | every member gets every message; progress is kept in a file; failures are not retried |
    | `ordered` | the messages of a queue one after the other; a failure stops its queue for `suspend` seconds |
    | `start_at` | where a group begins that never committed: `StartAt`, or a datetime |
    | `allocate` | how members share the queues; all of them must use the same strategy |
    | `max_cached`, `max_cached_mib`, `max_span` | of one queue that many messages, MiB and offsets are pulled ahead |
    | `max_retries` | then a message is a dead letter; None: 16 times, ordered for ever |
    | `consume_timeout` | a message whose handler takes longer is given back; what the handler answers is ignored |
    | `drain` | seconds that `close` waits for handlers before it cancels them |
    | `on_error` | called with errors that nobody else hears of, and the message if there is one |

    A client that is passed in is shared with others; it is left running if they still use it.
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
        """Begin to consume. Raises what is wrong, in bounded time, and has then undone what it did.

        A topic that does not exist yet is no error: its messages come when it does.
        """
    def close(self) -> None:
        """Stop pulling, let handlers end, commit their work, say goodbye. Always ends: after `drain` and 5 seconds.

        A handler that calls this cannot wait for its own end: there it returns at once, and closing goes on.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages, one at a time; it ends when the consumer is closed.

        A message is done when the next one is asked for, or when its `ack()` is called. Leaving the loop, by an
        exception or by `break`, leaves its message to be delivered again. Several loops share the messages.
        """
    @property
    def group(self) -> str: ...
    @property
    def client(self) -> Client: ...
    def subscribe(
        self, topic: str, expr: str | Sql = "*", handler: Handler | None = None, *, where: Predicate | None = None
    ) -> None:
        """Have messages of `topic` consumed by `handler`; without one they come through `for`.

        `expr` selects at the broker: tags (`"paid || sent"`) or `Sql("amount > 100")`. `where` selects here, by what it
        returns for a message; what it refuses counts as consumed. All members of a group must subscribe the same.

        May be called while the consumer runs: it replaces what was said of this topic before.
        """
    def on(self, topic: str, expr: str | Sql = "*", *, where: Predicate | None = None) -> Callable[[H], H]:
        """Subscribe the decorated function, as `subscribe` does."""
    def unsubscribe(self, topic: str) -> None:
        """Want `topic` no more. When this returns its progress has been committed and its queues are given up."""
    def run(self) -> None:
        """Start, consume until `close` is called or this is cancelled, and close."""
    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are its own now; empty before the first rebalancing and after the end."""
    def pause(self) -> None:
        """Pull nothing more, and take or give up no queues. What was pulled is still consumed."""
    def resume(self) -> None:
        """Go on after `pause`."""

class PullConsumer:
    """Reads the queues that the group's members share (`subscribe`), or those that it is told (`assign`).

    Polling, committing and seeking are for one thread at a time: with `auto_commit` asking for the next batch says that
    the one before is done. `start_at` counts for queues that the group never committed. Times are in seconds.

    Without `auto_commit` nothing is committed but by `commit`. `commit_interval` is how often commits that nobody
    waits for are told to the brokers.
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
        """Start reading. Raises what keeps it from doing so, and has then undone everything.

        A topic that does not exist yet is no reason: it is read as soon as it does.
        """
    def close(self) -> None:
        """Stop reading, commit what is to be committed, say goodbye. Always ends; what was last handed out is not done.

        Whoever wants the last batch to count calls `commit` first.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __iter__(self) -> Iterator[list[ReceivedMessage]]: ...
    @property
    def group(self) -> str: ...
    def subscribe(self, topic: str, expr: str | Sql = ...) -> None:
        """Share the queues of `topic` with the other members of the group; again, to select by another expression.

        All members must subscribe alike: a broker keeps only what it heard last.
        """
    def unsubscribe(self, topic: str) -> None:
        """Read `topic` no more; its progress is committed."""
    def assign(self, queues: Iterable[MessageQueue], filters: Mapping[str, str | Sql] | None = None) -> None:
        """Read exactly these queues, whatever other members of the group read; again, to read others.

        `filters` selects messages by topic; without it, all. Queues that stay go on where they are.
        """
    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are being read."""
    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of `topic`, whoever reads them. Raises RouteNotFound if there is no such topic."""
    def watch(self, topic: str, listener: QueuesListener) -> None:
        """Call `listener(topic, queues)`, plain or async, when the queues of `topic` are not what they were.

        Also once with those that it has. Looked at every `metadata_interval` seconds; for who assigns queues and
        wants to hear of new ones.
        """
    def poll(self, max: int | None = None, timeout: float = 5.0) -> list[ReceivedMessage]:
        """Messages, in their order within each queue: what one pull brought, or with `max` up to so many, of any queue.

        Empty when none came within `timeout`. With `auto_commit` all that was handed out before is now done.
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
        """One pull of any queue, assigned or not, buffered nowhere: where to go on is the caller's business.

        With `wait` the broker waits for a message if there is none, up to `broker_wait` seconds.
        """
    def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the group get `message` once more, from its retry topic; with -1 put it among the dead letters."""
    def seek(self, queue: MessageQueue, to: int | StartAt | datetime) -> None:
        """Go on at an offset, at the first or the end of what there is, or at the first message since a time.

        What was pulled and not polled is forgotten. Raises OffsetOutOfRange for an offset outside of the queue.
        """
    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message of `queue` to be handed out; None while that is not known."""
    def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The offset of the first message that `queue` has, and that of the next it will have."""
    def pause(self, *queues: MessageQueue) -> None:
        """Pull no more of these queues, or of all that are assigned now; what was pulled is still handed out."""
    def resume(self, *queues: MessageQueue) -> None:
        """Pull again."""
    def commit(self, offsets: Mapping[MessageQueue, int] | None = None, wait: bool = True) -> None:
        """Everything handed out is done; or of each queue in `offsets` everything before that offset.

        Stored once this returns; raises why it could not be, and some of the queues may then be committed. With
        `wait=False` it only takes note, and the brokers are told within `commit_interval`.
        """
    def committed(self, queue: MessageQueue) -> int | None:
        """What the group has committed of `queue`; None if it never did. Raises if that cannot be found out.

        Of a queue that still has its first message a broker may also say 0 when the group never did, see StartAt.
        """

class AdminClient:
    """Looks at a cluster and changes it.

        with AdminClient("localhost:9876") as admin:
            await admin.topics.create("orders", write_queues=4, read_queues=4)
            print((await admin.groups.progress("billing")).lag)

    What is not found raises. Where several servers are asked, they are asked at the same time; if some fail, the
    operation raises PartialFailure, which says who did it, who failed and why, and what was found out nevertheless.
    Names are taken as they are: a client's namespace is not put in front of them.

    `timeout` is for one request, in seconds. `client` may be shared with producers and consumers.
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
        """Needs no server to be there. StateError if the client has an admin of this group already."""
    def close(self) -> None:
        """Always ends. Requests under way on a client of its own fail with ConnectionLost."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def client(self) -> Client:
        """What it asks with: producers and consumers may share it."""
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

class TopicAdmin:
    """Operations on topics. The names are those that brokers know: no namespace is added."""
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
        """Make a topic on `brokers`, on the masters of a cluster, or on all masters; gives their addresses.

        A topic that is there already gets these settings, all of them. A broker that cannot be reached, or is busy,
        is asked up to five times. With `order` the name servers are told how many queues each broker has, so that
        producers keep to them; what they knew of others than `brokers` stays. `attributes` are for 5.x brokers, which
        leave those that are not mentioned; a key may begin with +, and one that begins with - takes the attribute away.
        """
    def put(
        self, config: TopicConfig, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """The same as `create`, with the settings in one piece."""
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
        """Change only these settings of a topic on brokers that have it; gives their addresses.

        Raises TopicNotFound, with nothing changed, if one of them has it not. Of an ordered topic the number of
        queues that producers use is changed by `set_order`.
        """
    def delete(self, topic: str, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> None:
        """Delete a topic and its queues: at the brokers, then at the name servers. It need not be there.

        If a broker fails, the name servers are left alone, since they would learn of the topic again from it. With
        `brokers` only these lose it, and the name servers hear nothing: others may still have it.
        """
    def names(self, cluster: str | None = None) -> list[str]:
        """The names of all topics, or of those of a cluster, sorted; retry and system topics among them."""
    def system(self) -> list[str]:
        """The topics that are there for RocketMQ's own purposes, sorted; those of clusters and brokers among them."""
    def route(self, topic: str) -> TopicRouteData:
        """Where the queues of a topic are. Raises TopicNotFound."""
    def clusters(self, topic: str) -> list[str]:
        """The clusters that have a topic, sorted. Raises TopicNotFound."""
    def config(self, topic: str) -> dict[str, TopicConfig]:
        """The settings of a topic on each broker that has it, by the broker's name. Raises TopicNotFound."""
    def configs(self, broker: str) -> dict[str, TopicConfig]:
        """All topics of one broker."""
    def stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Where each queue that can be written to begins and ends. Raises TopicNotFound."""
    def groups(self, topic: str) -> list[str]:
        """The groups that subscribe to a topic, or have offsets in it, sorted. Raises TopicNotFound."""
    def order(self, topic: str) -> dict[str, int]:
        """How many queues of an ordered topic each broker has. Raises QueryNotFound if the topic is not ordered."""
    def set_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Make a topic ordered, with these queues and no others."""
    def merge_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Change the queues of some brokers, and leave those of the others as they are."""
    def delete_order(self, topic: str) -> None:
        """Make a topic an ordinary one again; it need not have been ordered."""

class GroupAdmin:
    """Operations on groups. The names are those that brokers know: no namespace is added."""
    def create(
        self,
        config: SubscriptionGroupConfig | str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Make a group, or give it other settings, all of them; on `brokers`, the masters of a cluster, or everywhere.

        Gives the addresses. A name alone means RocketMQ's own settings.
        """
    def delete(
        self,
        group: str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
        remove_offsets: bool = False,
    ) -> None:
        """Delete a group, and with `remove_offsets` how far it had come. It need not be there.

        Unless it is for some `brokers` only, its retry and dead-letter topics go, too, with what is in them.
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
        """Let a group pull or pop a topic (5.x, for members that let the broker decide); gives the addresses.

        When it pops, each member shares the queues of `share_queues` others; 0 lets all have all of them.
        """
    def names(self, cluster: str | None = None) -> list[str]:
        """All groups that any broker has settings of, sorted."""
    def config(self, group: str, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]:
        """The settings of a group by broker address. Raises SubscriptionGroupNotExist if nobody knows it.

        All groups are fetched: asked for one (352), a 5.x broker would make it if it is not there.
        """
    def configs(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """All groups of one broker."""
    def progress(self, group: str, topic: str | None = None, *, clients: bool = False) -> GroupProgress:
        """How far a group is in all topics, or in one. Raises ConsumerNotOnline if it has no offset anywhere.

        `clients` finds out which consumer has which queue, which asks every one of them. If a broker does not answer,
        PartialFailure has the rows of the others in `partial`.
        """
    def stats_at(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """What one broker says of a group's progress; without rows if it knows of none."""
    def time_span(self, group: str, topic: str) -> list[QueueTimeSpan]:
        """The times of the first, the last and the last consumed message of each queue. Raises TopicNotFound."""
    def owners(self, group: str) -> dict[MessageQueue, str]:
        """Which consumer has which queue. Who does not answer has unknown ones: no reason to withhold the others'."""
    def running_infos(self, group: str, *, stacks: bool = False) -> dict[str, ConsumerRunningInfo]:
        """What each consumer of a group says of itself, by its id. Raises ConsumerNotOnline if there is none.

        If some of them do not answer, PartialFailure has what the others said in `partial`.
        """
    def connections(self, group: str) -> ConsumerConnection:
        """Who consumes, and what. Raises ConsumerNotOnline if nobody does.

        Consumers are connected to all brokers; all are asked, so that one is found that some lost.
        """
    def producers(self, group: str, topic: str) -> list[Connection]:
        """The members of a producer group that brokers of `topic` know. Raises ServerError if there are none."""
    def all_producers(self, broker: str) -> dict[str, list[ProducerInfo]]:
        """Every producer that one broker knows, by group."""

class OffsetAdmin:
    """Operations on offsets."""
    def minimum(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that the queue still has."""
    def maximum(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
    def at_time(self, queue: MessageQueue, when: datetime) -> int:
        """The offset of the first message that was stored at this time or later, as exactly as brokers know it.

        Brokers of 4.9 take the nearest message, and the last one for a time after it.
        """
    def earliest_store_time(self, queue: MessageQueue) -> datetime:
        """When the oldest message was stored. Raises NoMessage if there is none."""
    def committed(self, group: str, queue: MessageQueue) -> int:
        """The offset that `group` goes on with. Raises QueryNotFound if it has none.

        Brokers say 0 for a group without one while a queue still has its first message in memory.
        """
    def set(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Let an offline group go on with these offsets. An online one writes its own over them."""
    def reset(
        self, group: str, topic: str, to: datetime | None, *, force: bool = True, offline: bool = False
    ) -> ResetResult:
        """Let a group go on with what was stored since `to`, or, for None, with what comes next.

        The consumers are told through each broker; at a broker that knows none, or at all of them with `offline`, its
        offsets are set. Without `force` the group is only moved back, never forward. Consumers take a moment, and may
        get messages twice. If a broker fails, PartialFailure has what happened at the others in `partial`.
        """
    def clone(self, source: str, target: str, topic: str | None = None, *, offline: bool = False) -> list[str]:
        """Give the offsets of one group to another, in one topic or in all of them; gives the topics.

        Brokers leave out topics that `source`, being online, does not subscribe, unless it is called `offline`. Raises
        ConsumerNotOnline if `source` has no offsets.
        """

class MessageAdmin:
    """Operations on messages. Where one is looked for and not found, NoMessage is raised."""
    def by_offset_id(self, offset_id: str) -> MessageExt:
        """The message that lies where the id says, asked of the address inside of the id."""
    def by_key(
        self, topic: str, key: str, *, limit: int = ..., begin: datetime | None = None, end: datetime | None = None
    ) -> list[MessageExt]:
        """The messages with this key, the oldest first; of each broker at most `limit`, and no more than 64.

        `begin` and `end` are about when they were stored. Raises TopicNotFound. If a broker does not answer,
        PartialFailure has what the others found in `partial`.
        """
    def by_uniq_key(self, topic: str, uniq_key: str) -> MessageExt:
        """The message that its producer got this id for; of several copies the one that was stored first.

        The id says when it was made, so that only younger messages are looked through. It may be wrong about that, by
        a time zone or by a month; what is not found then is looked for among all.
        """
    def get(self, topic: str, message_id: str) -> MessageExt:
        """A message by either of its ids, which look the same.

        As an offset id it is tried only if the address in it is that of a broker: of a UNIQ_KEY it would be anything.
        """
    def at(self, queue: MessageQueue, offset: int) -> MessageExt:
        """The message at an offset of a queue. Raises NoMessage also for one that is still to come, or gone."""
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
        """What lies in a queue from `offset` on, asked of the broker at `address`. Nobody's offset is changed by it.

        With `wait` the broker waits that many seconds for a message if there is none.
        """
    def consume_queue(
        self, queue: MessageQueue, index: int, count: int = 32, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a consume queue from `index` on; of `group`, if named, what it subscribes is told, too.

        Raises NoMessage if the queue ends before `index`, and ServerError if there is no such queue.
        """
    def track(self, message: MessageExt) -> list[MessageTrack]:
        """What each group of the message's topic has done with it, as far as the groups' offsets tell.

        A group that cannot be asked is UNKNOWN, with the reason: this never fails because of one group.
        """
    def consume_directly(
        self, group: str, message: MessageExt | str, client_id: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have a consumer handle a message now, whatever the group's offsets say; no offset is changed by it.

        `message` may be an offset id. Without `client_id` any consumer of the group gets it. Raises NoMessage or
        ServerError if there is no such message or consumer, ConsumeMessageTimeout if it takes over ten seconds.
        """
    def resume_check(self, message: MessageExt | str, topic: str | None = None) -> None:
        """Have the broker ask again about a half message that it gave up asking about. May be its offset id."""

class BrokerAdmin:
    """Operations on brokers. `broker` is an address, or a name, which means its master."""
    def cluster_info(self) -> ClusterInfo:
        """All brokers by name, and the broker names of each cluster. A name may be without addresses."""
    def of_topic(self, topic: str) -> dict[str, str]:
        """The brokers of a topic, by name: of each the master, or, while it is down, a slave. Raises TopicNotFound."""
    def config(self, broker: str) -> dict[str, str]:
        """All settings of a broker, by RocketMQ's keys."""
    def set_config(
        self, changes: Mapping[str, str], *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Change settings at once and in the brokers' files; slaves are among those of a cluster. Gives the addresses.

        A broker that refuses one of the keys (NoPermission) changes nothing. Keys that it does not know are ignored.
        """
    def runtime(self, broker: str) -> dict[str, str]:
        """What a broker measures of itself, as text under RocketMQ's keys (docs/spec/broker.md 12.2)."""
    def stats(self, broker: str, name: str, key: str) -> BrokerStatsData:
        """A counter over the last minute, hour and day: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group`.

        Raises ServerError for one that does not exist, as it does not before something was counted.
        """
    def consume_stats(self, broker: str, *, ordered: bool = False) -> ConsumeStatsList:
        """How far all groups are on one broker, in one answer; with `ordered` only in ordered topics."""
    def clean_queues(self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> list[str]:
        """Delete consume queues whose messages are all gone from the log. Gives the addresses."""
    def clean_topics(self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> list[str]:
        """Delete consume queues of topics that do not exist. Gives the addresses."""
    def clean_log(self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> list[str]:
        """Delete files of the log that have been kept long enough, now instead of at night. Gives the addresses."""
    def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Let nobody send to a broker any more; consumers go on. By name server the number of topics that it has."""
    def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Undo `wipe_write_perm`: all topics of the broker can be read and written, whatever was set before."""

class NameServerAdmin:
    """Operations on name servers. One that changes raises PartialFailure when it did not reach all of them."""
    def put_kv(self, namespace: str, key: str, value: str) -> None: ...
    def get_kv(self, namespace: str, key: str) -> str:
        """Raises QueryNotFound."""
    def delete_kv(self, namespace: str, key: str) -> None:
        """After this the key is not there; it need not have been there before."""
    def list_kv(self, namespace: str) -> dict[str, str]:
        """All keys of a namespace. Raises QueryNotFound for one that never had any."""
    def config(self) -> dict[str, dict[str, str]]:
        """The settings of every name server, by its address."""
    def set_config(self, changes: Mapping[str, str]) -> None:
        """Change settings of every name server, at once and in its file. Keys are those of RocketMQ."""

class AclAdmin:
    """Operations on accounts, users and policies."""
    def set_account(
        self, account: Account, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Make an account or replace it; gives the addresses."""
    def delete_account(
        self, access_key: str, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]: ...
    def versions(
        self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> dict[str, AclVersion]:
        """By address, which version of the accounts each broker has."""
    def set_white_addresses(
        self,
        addresses: Iterable[str],
        *,
        file: str | None = None,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """From these addresses everything is allowed. `file` names one of several that a broker reads."""
    def create_user(
        self, user: User, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]: ...
    def update_user(
        self, user: User, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """What is None stays as it is."""
    def delete_user(
        self, username: str, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]: ...
    def user(self, broker: str, username: str) -> User:
        """Raises BrokerError with code 3001 if there is none."""
    def users(self, broker: str, filter: str | None = None) -> list[User]:
        """All users of a broker, or those whose name has `filter` in it."""
    def create_acl(
        self, acl: Acl, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]: ...
    def update_acl(
        self, acl: Acl, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
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
        """Delete all that was said of a subject, or what was said of one resource."""
    def acl(self, broker: str, subject: str) -> Acl:
        """Raises BrokerError with code 3002 if there is none."""
    def acls(self, broker: str, *, subject: str | None = None, resource: str | None = None) -> list[Acl]:
        """All of a broker, or those with these texts in their subject and resource."""

class ClientAdmin:
    """Asks consumers. Any broker that knows one can pass a question on, so they are tried one after the other."""
    def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The settings, queues and rates of one consumer, with `stacks` also what each of its threads is doing.

        Raises ServerError if no broker has it, and ConsumeMessageTimeout if it does not answer within ten seconds.
        """
    def consume_status(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """The offsets that consumers have in memory, committed or not, by client id; of one or of all of them.

        Who does not answer is missing. Raises ServerError if nobody is online, and TopicNotFound.
        """
