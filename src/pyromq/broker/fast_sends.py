"""The fast path of whole reads: sends that compiled code takes from what a connection read, stores and answers.

`SendRun` (pyromq._native) takes the usual sends and leaves the others to `SendProcessor`, which is its twin: the two
store the same bytes and give the same answers (tests/property/test_native_sends.py). Here is what both share: which
topics are ready, when to look again, and what is told to whom.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from pyromq import _native
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import SerializeType
from pyromq.protocol.frame import FrameDecoder
from pyromq.store import PutResult, PutStatus

from .send import born_host
from .send_replies import SendReplies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyromq._native.send_run import Pass, SendRun
    from pyromq.remoting import Connection

    from .context import Context, Tables
    from .send import SendProcessor

_compiled = _native.module("send_run")
_HOST_LENGTH = 8
_KINDS = tuple(SerializeType)
# Reads of one connection in a row after which there is nobody else to wait for: what comes then is stored and answered
# in the turn that reads it.
_ALONE = 8
# Bytes of a run that are stored without waiting for more: what a turn does at its end must not take long.
_LARGE = 2 * 1024 * 1024
_PASSES = 10_000
_OPENSSL = ("libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.3.dylib", "libcrypto.1.1.dylib")


def fast_sends(context: Context, tables: Tables, sends: SendProcessor) -> FastSends | None:
    """The fast path, where it is compiled and this broker's address is one of IPv4."""
    if _compiled is None or len(context.store_host) != _HOST_LENGTH:
        return None
    return FastSends(context, tables, sends)


class FastSends:
    """Takes usual sends for `sends`, which has the topics that are ready."""

    def __init__(self, context: Context, tables: Tables, sends: SendProcessor) -> None:
        self._appends = context.appends
        self._gate = context.gate
        self._live = context.live
        self._topics = tables.topics
        self._store_host = context.store_host
        self._guard = context.access.guard
        self._sends = sends
        latencies = context.latencies
        self._took = None if latencies is None else latencies.of(RequestCode.SEND_MESSAGE_V2, 0)
        self.taken = 0
        self._run: SendRun | None = None
        self._last: Connection | None = None  # whose sends were taken last
        self._in_a_row = 0
        self._begin()

    def _begin(self) -> None:
        """Begin without a topic: settings or topics have changed."""
        assert _compiled is not None
        config = self._config = self._live.config
        self._version = self._topics.data_version
        self._capacity = 0 if config.is_slave else config.send_queue_capacity
        self._replies = _compiled.Replies(*SendReplies(self._store_host, config.region_id, config.trace_on).parts())
        self._targets: dict[bytes, object] = {}
        self._state = self._guard.state
        # Who may send what from where, and with which key they sign.
        self._passes: dict[tuple[str, bytes, bytes], Pass] = {}
        self._admit = None if self._guard.is_open else self._admitted

    def forget(self) -> None:
        """The queues of a topic are gone."""
        self._targets.clear()
        self._appends.open_run = None

    def take(self, connection: Connection, data: bytes, at: int, most: int, max_header: int) -> int:
        """See `FastRequests`."""
        if (
            self._version is not self._topics.data_version
            or self._config is not self._live.config
            or self._state is not self._guard.state
        ):
            self._begin()
            self._appends.open_run = None  # it may know topics or accounts that are gone
        self.taken = 0
        host = connection.context or born_host(connection)
        if self._gate.waiting >= self._capacity or len(host) != _HOST_LENGTH:
            return at
        run = self._run
        is_new = run is None or self._appends.open_run is not run
        if run is None or is_new:
            assert _compiled is not None
            run = self._run = _compiled.SendRun(self._replies, self._store_host)
        end = run.take(connection, host, data, at, most, max_header, self._targets, self._ready, self._admit)
        taken = self.taken = run.taken
        if taken:
            connection.serialize = _KINDS[run.kind]
            if connection is self._last:
                self._in_a_row += 1
            else:
                self._last, self._in_a_row = connection, 0
            is_over = self._in_a_row > _ALONE or run.size > _LARGE
            if is_new:
                self._appends.put_run(run, partial(self._stored, run, monotonic()), now=is_over)
            elif is_over:
                self._appends.flush()
        return end

    def _ready(self, topic: bytes) -> object | None:
        """A topic as `SendRun` needs it; None if its messages take another path."""
        assert _compiled is not None
        target = self._sends.ready(topic.decode())
        if target is None:
            return None
        queues = list(target.queues.values())
        if not all(queue.has_fast_path for queue in queues):
            return None
        first = queues[0]
        stamp = target.stamp.encode()
        ready: object = _compiled.Target(
            topic, first.topic_field, stamp, queues, target.multi_tag, first.fixed_size, target
        )
        self._targets[topic] = ready
        return ready

    def _admitted(self, connection: Connection, access_key: bytes, topic: bytes) -> Pass | None:
        """The pass of an account that may send to `topic` from where it is; None if the guard is to decide."""
        assert _compiled is not None
        host = connection.peer.rpartition(":")[0]
        known = self._passes.get((host, access_key, topic))
        if known is None:
            account = access_key.decode()
            secret = self._guard.secret_for(
                RequestCode.SEND_MESSAGE_V2, {"b": topic.decode()}, account, connection.peer
            )
            if secret is None or not _can_sign():
                return None
            if len(self._passes) >= _PASSES:
                self._passes.clear()
            known = self._passes[host, access_key, topic] = _compiled.Pass(secret.encode("utf-8", "replace"))
        return known

    def _stored(self, run: SendRun, began: float, results: Sequence[PutResult]) -> None:
        """All messages of a run, the first read when it `began`, have these results, or a placed run has this one."""
        if run.is_placed and results[0].status is PutStatus.PUT_OK:
            for target, count, size, unusual in run.stored():
                target.stored += count
                target.stored_bytes += size
                if unusual is not None:
                    target.more.add(*unusual)
            for connection, frames in run.answers():
                connection.send_now(frames)
            if self._took is not None:
                self._took.add(monotonic() - began, run.count)
            return
        # Something is wrong, or at least unusual: tell each sender by the general path.
        for number, (connection, frame, target, physical, queue_offset, queue_id, size) in enumerate(run.frames()):
            if run.is_placed:
                common = results[0]
                result = PutResult(common.status, physical, queue_offset, common.store_timestamp, size, common.error)
            else:
                result = results[number % len(results)]
            decoder = FrameDecoder()
            decoder.feed(frame)
            request = decoder.next()
            assert request is not None
            request.received = began
            self._sends.answer(connection, request, target, queue_id, result)


@functools.cache
def _can_sign() -> bool:
    """Whether compiled code has a SHA-1: that of the OpenSSL that Python itself uses, called without Python between."""
    assert _compiled is not None
    for name in _OPENSSL:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(name)
            functions = library.SHA1_Init, library.SHA1_Update, library.SHA1_Final
            _compiled.use_sha1(*(ctypes.cast(function, ctypes.c_void_p).value for function in functions))
            return True
    return False
