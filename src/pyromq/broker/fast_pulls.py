"""The fast path of pulls: those of a consumer that asks again for what it asked before, but for the offsets.

Compiled code splits a header into three numbers and the rest (`pyromq._native.pull_head`). The first pull of a rest is
judged by `PullProcessor`; the next ones with the same rest are that pull again, as long as nothing has changed that the
judgement was made of. Only pulls of everything in a queue that find messages are served here. All others go to the
processor, which is the reference: the two give the same answers (tests/property/test_native_pulls.py).
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from pyromq import _native
from pyromq.errors import PyroMQError, StoreError
from pyromq.protocol.binary_header import LANGUAGE_BYTES
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import PROTOCOL_VERSION, RESPONSE, Language, SerializeType
from pyromq.protocol.frame import FrameDecoder
from pyromq.protocol.headers import PullMessage
from pyromq.protocol.sysflag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from pyromq.store import GetStatus

from .pull import wanted

if TYPE_CHECKING:
    from pyromq.protocol.bodies.heartbeat import MessageModel, SubscriptionData
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection
    from pyromq.store import GetResult
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .clients.connected import ConsumerGroup
    from .context import Context, Tables
    from .pull import PullProcessor

_compiled = _native.module("pull_head")
_JSON, _BINARY = SerializeType.JSON, SerializeType.ROCKETMQ
_PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_MOST = 10_000  # rests that are remembered
_FOUND = GetStatus.FOUND

# The answer to a pull that found something; the general path makes the same bytes of a Command.
_FRAME = struct.Struct(">iI")
_JSON_ANSWER = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"%%b","nextBeginOffset":"%%d","minOffset":"%%d","maxOffset":"%%d"},'
    b'"flag":%d,"language":"%b","opaque":%%d,"remark":"FOUND","version":%d}'
) % (RESPONSE, Language.PYTHON.value.encode(), PROTOCOL_VERSION)
_HEAD = struct.Struct(">hBhiii5si")  # as in binary_header, with the remark and the length of the fields
_PYTHON = LANGUAGE_BYTES[Language.PYTHON]
_FIELDS = b"".join(
    b"%b%b%%b" % (struct.pack(">h", len(name)), name)
    for name in (b"suggestWhichBrokerId", b"nextBeginOffset", b"minOffset", b"maxOffset")
)


def fast_pulls(context: Context, tables: Tables, pulls: PullProcessor) -> FastPulls | None:
    """The fast path, where it is compiled."""
    return None if _compiled is None else FastPulls(context, tables, pulls)


class Judged:
    """A pull that was found to be allowed, and to want everything in its queue."""

    __slots__ = ("commits", "group", "kind", "live_group", "message_model", "queue", "subscription", "topic", "wanted")

    def __init__(self, request: Command, header: PullMessage, queue: ConsumeQueue, wanted: int, commits: bool) -> None:
        self.kind = request.serialize
        self.group, self.topic = header.consumer_group, header.topic
        self.queue, self.wanted, self.commits = queue, wanted, commits
        # What a heartbeat said, if that counts: who it was of, and how it stood.
        self.live_group: ConsumerGroup | None = None
        self.message_model: MessageModel | None = None
        self.subscription: SubscriptionData | None = None


class FastPulls:
    """Serves pulls for `pulls`. As `FastRequests`."""

    def __init__(self, context: Context, tables: Tables, pulls: PullProcessor) -> None:
        self._store = context.store
        self._live = context.live
        self._topics, self._groups, self._clients = tables.topics, tables.groups, tables.clients
        self._guard = context.access.guard
        self._throughput = context.stats.throughput
        latencies = context.latencies
        self._took = None if latencies is None else latencies.of(RequestCode.PULL_MESSAGE, 0)
        self._pulls = pulls
        self.taken = 0
        self._begin()

    def _begin(self) -> None:
        """Begin without any judgement: settings, topics, groups or accounts have changed."""
        self._settings = self._live.settings
        self._topics_version, self._groups_version = self._topics.data_version, self._groups.data_version
        self._state = self._guard.state
        self._judged: dict[bytes, Judged | None] = {}

    def forget(self) -> None:
        """The queues of a topic are gone."""
        self._judged.clear()

    def take(self, connection: Connection, data: bytes, at: int, most: int, max_header: int) -> int:
        """See `FastRequests`."""
        if self._took is None:
            return self._take(connection, data, at, most, max_header)
        began = time.monotonic()
        end = self._take(connection, data, at, most, max_header)
        if self.taken:
            # All of them in one: they arrived together, and the last was answered now.
            self._took.add(time.monotonic() - began, self.taken)
        return end

    def _take(self, connection: Connection, data: bytes, at: int, most: int, max_header: int) -> int:
        assert _compiled is not None
        self.taken = 0
        while self.taken < most:
            found = _compiled.split(data, at, max_header)
            if found is None:
                return at
            end, rest, opaque, offset, commit = found
            if (
                self._topics_version is not self._topics.data_version
                or self._groups_version is not self._groups.data_version
                or self._settings is not self._live.settings
                or self._state is not self._guard.state
            ):
                self._begin()
            try:
                judged = self._judged[rest]
            except KeyError:
                judged = self._judge(connection, rest, data[at:end], (opaque, offset, commit))
            if judged is None or not self._serve(connection, judged, opaque, offset, commit):
                return at
            at = end
            self.taken += 1
        return at

    def _judge(self, connection: Connection, rest: bytes, frame: bytes, numbers: tuple[int, int, int]) -> Judged | None:
        """What the processor makes of a pull that was not seen before; None if it is to serve all of this kind."""
        if len(self._judged) >= _MOST:
            self._judged.clear()
        judged = self._judged[rest] = self._judgement(connection, frame, numbers) if self._guard.is_open else None
        return judged

    def _judgement(self, connection: Connection, frame: bytes, numbers: tuple[int, int, int]) -> Judged | None:
        try:
            decoder = FrameDecoder()
            decoder.feed(frame)
            request = decoder.next()
            if request is None or request.code not in _PULLS or request.flag:
                return None
            header = request.header(PullMessage)
            selection = self._pulls.checked(connection, request, header)
        except PyroMQError:
            return None  # the processor says what is wrong
        if selection != (None, None, None) or (request.opaque, header.queue_offset, header.commit_offset) != numbers:
            return None
        queue = self._store.queue(header.topic, header.queue_id)
        commits = bool(header.sys_flag & PULL_COMMIT_OFFSET) and not self._live.config.is_slave
        judged = Judged(request, header, queue, wanted(header), commits)
        if not header.sys_flag & PULL_SUBSCRIPTION:
            live = judged.live_group = self._clients.consumer_group(header.consumer_group)
            assert live is not None, "the processor has just found it"
            judged.message_model, judged.subscription = live.message_model, live.subscriptions.get(header.topic)
        return judged

    def _serve(self, connection: Connection, judged: Judged, opaque: int, offset: int, commit: int) -> bool:
        """Answer a pull, if what it was judged by is still so and it finds something."""
        live = judged.live_group
        if live is not None and (
            self._clients.consumer_group(judged.group) is not live
            or live.subscriptions.get(judged.topic) is not judged.subscription
            or live.message_model is not judged.message_model
        ):
            self._judged.clear()
            return False
        queue = judged.queue
        if not queue.min_offset <= offset < queue.max_offset:
            return False
        began = time.monotonic()
        try:
            found = self._store.get(queue, offset, judged.wanted, joined=True)
        except StoreError:
            return False  # the processor says so
        if found.status is not _FOUND:
            return False
        pulls, group, topic = self._pulls, judged.group, judged.topic
        if judged.commits:
            pulls.commit(group, topic, queue.queue_id, commit)
        self._throughput.pulled(found.count)
        pulls.count(group, topic, queue.queue_id, found, began)
        connection.serialize = judged.kind
        connection.send_parts((_answer(judged.kind, opaque, pulls.suggested(group, found), found), *found.slices))
        return True


def _answer(kind: SerializeType, opaque: int, suggested: str, found: GetResult) -> bytes:
    """The frame without the messages."""
    next_offset, least, most = found.next_offset, found.min_offset, found.max_offset
    if kind is _JSON:
        header = _JSON_ANSWER % (suggested.encode(), next_offset, least, most, opaque)
        return _FRAME.pack(4 + len(header) + found.size, len(header)) + header
    texts = [b"%b" % suggested.encode(), b"%d" % next_offset, b"%d" % least, b"%d" % most]
    fields = _FIELDS % tuple([struct.pack(">i", len(text)) + text for text in texts])
    header = _HEAD.pack(0, _PYTHON, PROTOCOL_VERSION, opaque, RESPONSE, 5, b"FOUND", len(fields)) + fields
    return _FRAME.pack(4 + len(header) + found.size, _BINARY << 24 | len(header)) + header
