"""One connection: bytes to commands, commands to processors, replies to their callers.

The same class serves both ends: a client's connection has calls in flight and a few processors for brokers' requests,
a server's has many processors and a few calls. What connections share is in `Endpoint`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyromq.errors import (
    BrokerError,
    ConnectionLost,
    PyroMQError,
    RemoteProtocolError,
    RequestTimeout,
    TooManyRequests,
)
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.command import ONEWAY, RESPONSE, Command, SerializeType
from pyromq.protocol.frame import FrameDecoder, OversizedRequest, encode_parts

from .addresses import format_address, origin_of
from .calls import PendingCalls, next_opaque
from .endpoint import CloseReason
from .writer import TickWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from .calls import Waiter
    from .endpoint import Endpoint

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NUMBER = re.compile(r"\d+")
_OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"

# Why what a peer sends is left unread: bits of `Connection._held`.
_UNTIL_IT_READS = 1
_UNTIL_BODY_IS_READ = 2
_FOR_A_WHILE = 4
_UNTIL_NEXT_TURN = 8

# What a server takes from one connection before the others have their turn. In one turn uvloop reads up to 32 times
# 256,000 bytes from a connection that has so much to say: thousands of messages, while all others wait.
_REQUESTS_AT_ONCE = 256
_BYTES_AT_ONCE = 128 * 1024
# And while there are others with little to say: so many that its turn, with the store and the answers, takes no longer
# than this in seconds, since they wait for one or two of them; but never fewer. Beside a flood of 1 KB sends half of
# their answers took 0.3 ms with 16 requests a turn, 0.6 ms with 64 and 0.8 ms with 256, and the flood got through 100,
# 215 and 260 thousand a second; without the compiled path, 0.4 ms with 16 and 4.6 ms with 256, and 60 and 72 thousand.
_REQUESTS_BESIDE_OTHERS = 128
_SHORT_TURN = 0.0003
# How long, in seconds, a connection counts as one of the others, or as one with much to say.
_OTHERS = 0.1
_MUCH = 1.0


class Connection(asyncio.Protocol):
    """A connection to a peer. Hashed by identity. Belongs to the event loop that made it.

    If a peer sends requests but does not read the replies, we stop reading once `high_water` bytes wait for it, and
    cut it off at `max_unsent`; our own requests wait until it reads. So the memory it can cost us is bounded.
    """

    __slots__ = (
        "__weakref__",
        "_apart",
        "_blocked",
        "_calls",
        "_decoder",
        "_endpoint",
        "_error",
        "_held",
        "_loop",
        "_moved",
        "_moved_at",
        "_much_until",
        "_reason",
        "_short",
        "_transport",
        "_turn_began",
        "_unfinished",
        "_writer",
        "charged",
        "closed",
        "context",
        "lost",
        "misbehaved",
        "peer",
        "received",
        "serialize",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(
            endpoint.max_frame,
            self._max_body if endpoint.body_limit is not None else None,
            min(endpoint.max_header, endpoint.max_frame),
        )
        self._transport: asyncio.Transport
        self._writer: TickWriter
        self._calls: PendingCalls
        self._reason: CloseReason | None = None
        self._error = ""
        # Not None while the peer does not read; done when it does, or when the connection closes.
        self._blocked: asyncio.Future[None] | None = None
        # Not 0 while we leave the peer's requests unread.
        self._held = 0
        # Bytes of a body that a thread reads, and all that `endpoint.unfinished` counts here.
        self._apart = 0
        self._unfinished = 0
        # What `close_if_idle` saw last, and since when.
        self._moved = -1
        self._moved_at = 0.0
        # Until when it counts as one that asks for much.
        self._much_until = 0.0
        # Requests in its short turns, and when the last of them began.
        self._short = _REQUESTS_BESIDE_OTHERS
        self._turn_began = 0.0
        self.peer = "?"
        self.received = 0
        # How much of that was held against a limit.
        self.charged = 0
        # Whether it was closed because of what the peer sent.
        self.misbehaved = False
        self.closed = False
        self.lost: asyncio.Future[None] = self._loop.create_future()
        # The header serialisation that the peer used last.
        self.serialize = SerializeType.JSON
        # Free for the owner of this connection.
        self.context: Any = None

    def __repr__(self) -> str:
        return f"<Connection {self.peer}{' closed' if self.closed else ''}>"

    @property
    def transport(self) -> asyncio.Transport:
        """The transport below, for TLS and socket options."""
        return self._transport

    @property
    def calls_under_way(self) -> int:
        """How many of our requests wait for a reply."""
        return len(self._calls)

    # Asking

    async def invoke(self, command: Command, timeout: float = 3.0) -> Command:
        """Send a request and wait for its reply, whatever its code.

        Raises RequestTimeout, ConnectionLost, or TooManyRequests if no permit came free in time.
        """
        endpoint = self._endpoint
        deadline = self._loop.time() + timeout
        await _permit(endpoint.calls, deadline, self.peer)
        try:
            if self._blocked is not None and not await self._writable_until(deadline):
                raise RequestTimeout(self.peer, command.code, timeout)
            # No await from here to `send`: other tasks may be sending the same command to other peers.
            opaque = self._prepare(command)
            future = self._calls.start(opaque, command.code, deadline, timeout)
            try:
                self.send(command)
                response = await future
            except BaseException:
                self._calls.forget(opaque)
                raise
        finally:
            endpoint.calls.release()
        if endpoint.hooks:
            self._after_response(command, response)
        return response

    async def oneway(self, command: Command, timeout: float = 3.0) -> None:
        """Send a one-way request; returns once it is on its way.

        Raises ConnectionLost, or TooManyRequests if no permit came free or the peer did not read in time; then
        nothing was sent.
        """
        endpoint = self._endpoint
        deadline = self._loop.time() + timeout
        await _permit(endpoint.oneways, deadline, self.peer)
        try:
            if self._blocked is not None and not await self._writable_until(deadline):
                raise TooManyRequests(f"{self.peer} does not read what is sent to it")
            command.flag |= ONEWAY
            self._prepare(command)
            self.send(command)
        finally:
            endpoint.oneways.release()

    def start(
        self, opaque: int, code: int, frame: Sequence[bytes | memoryview], waiter: Waiter | None, timeout: float
    ) -> bool:
        """Send a request that is already a frame; its reply or error goes to `waiter`.

        It never waits: it sends nothing and returns False if the connection is closed, if `invoke` would have to wait
        or if hooks want to see requests. Without a waiter the request should be one-way. So a caller can have
        thousands of requests in flight without a task for each.
        """
        endpoint = self._endpoint
        if self.closed or self._blocked is not None or endpoint.hooks or len(self._calls) >= endpoint.async_permits:
            return False
        if waiter is not None:
            self._calls.expect(opaque, code, waiter, self._loop.time() + timeout, timeout)
        self._write(frame)
        return True

    def forget(self, opaque: int) -> None:
        """Stop waiting for the reply to a request made with `start`."""
        self._calls.forget(opaque)

    async def writable(self, timeout: float) -> bool:
        """Wait until the peer reads, or the connection closes; False if neither happens in time."""
        return self._blocked is None or await self._writable_until(self._loop.time() + timeout)

    # Reading apart

    def run_apart(self, read: Callable[[Command], T], request: Command) -> asyncio.Future[T]:
        """Let the endpoint's thread `read` a request. Until that is answered or waits, the peer is asked no more."""
        future = self._loop.run_in_executor(self._endpoint.apart, read, request)
        self._hold(_UNTIL_BODY_IS_READ)
        self._apart = len(request.body_bytes)
        self._count_unfinished()
        # Not before the one who waits for it had its turn, so that requests keep their order.
        future.add_done_callback(lambda _: self._loop.call_soon(self._was_read))
        return future

    def _was_read(self) -> None:
        self._apart = 0
        if not self.closed:
            self._release(_UNTIL_BODY_IS_READ)
            self._count_unfinished()

    # Slowing down

    def leave_unread(self, seconds: float) -> None:
        """Take nothing from this peer for a while: it asks for more than it may."""
        if not self._held & _FOR_A_WHILE and not self.closed:
            self._much_until = self._loop.time() + _MUCH
            self._hold(_FOR_A_WHILE)
            self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if not self.closed:
            self._release(_FOR_A_WHILE)
            self._count_unfinished()

    # Answering and sending

    def reply(self, request: Command, response: Command, *, held: bool = False) -> None:
        """Send the answer to `request`, unless it is one-way. `held` says that it waited on purpose.

        Number and header serialisation become those of the request, so a reply from elsewhere may be passed on.
        """
        endpoint = self._endpoint
        if endpoint.hooks:
            self._after_response(request, response)
        if endpoint.latencies is not None:
            endpoint.latencies.answered(request, response.code, held=held)
        if request.flag & ONEWAY:
            return
        try:
            response.flag |= RESPONSE
            response.opaque = request.opaque
            response.serialize = request.serialize
            self.send(response)
        except Exception as exc:  # a reply that cannot be encoded must not leave its request unanswered
            logger.warning("%s: reply to request %s cannot be sent: %s", self.peer, request.code, exc)
            self.send(request.reply(ResponseCode.SYSTEM_ERROR, f"reply cannot be sent: {exc}"))

    def send(self, command: Command) -> None:
        """Write `command` with the others of this tick. Does nothing on a closed connection."""
        if self.closed:
            return
        self._write(encode_parts(command, self._endpoint.max_frame))

    def send_reply_frame(self, request: Command, frame: bytes) -> bool:
        """Send the good answer to `request`, already a frame; nothing, and False, if hooks want to see replies."""
        endpoint = self._endpoint
        if endpoint.hooks:
            return False
        if endpoint.latencies is not None:
            endpoint.latencies.answered(request, 0)
        if not self.closed:
            self._writer.write_frame(frame)
            if self._blocked is not None:
                self._cut_off_if_deaf()
        return True

    def send_now(self, frames: bytes) -> None:
        """Send replies that are already frames, all that there are for this tick. Hooks do not see them."""
        if not self.closed:
            self._writer.write_now(frames)
            if self._blocked is not None:
                self._cut_off_if_deaf()

    def send_parts(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Send a reply that is already a frame, in pieces, with the others of this tick. Hooks do not see it."""
        if not self.closed:
            self._write(pieces)

    def _write(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._writer.write(pieces)
        if self._blocked is not None:
            self._cut_off_if_deaf()

    def _cut_off_if_deaf(self) -> None:
        if self._writer.unsent > self._endpoint.max_unsent:
            self._fail(f"peer does not read; {self._writer.unsent} bytes are waiting")
            self.abort()

    def close(self, reason: CloseReason = CloseReason.LOCAL) -> None:
        """Close once everything written has been sent. Calls in flight end with ConnectionLost."""
        if self.closed:
            return
        self._writer.flush()
        self._end(reason)
        self._transport.close()

    def abort(self) -> None:
        """Close at once and drop unsent bytes."""
        self._end(CloseReason.LOCAL)
        self._transport.abort()

    def abandon(self) -> None:
        """End a connection whose attempt was cancelled: uvloop closes the transport without telling us."""
        if self in self._endpoint.connections:
            self._end(CloseReason.LOCAL)
            self._writer.drop()
            self.connection_lost(None)

    def close_if_idle(self, seconds: float) -> None:
        """Close if nothing was read or written for `seconds`, as far as calls of this function see."""
        now = self._loop.time()
        moved = self.received + self._writer.sent
        if moved != self._moved:
            self._moved = moved
            self._moved_at = now
        elif now - self._moved_at >= seconds:
            if not self.closed:
                logger.info("%s: idle for %g s; closing", self.peer, seconds)
                self._end(CloseReason.IDLE)
            # Also a closed one that waits for a peer which does not read the rest.
            self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        endpoint = self._endpoint
        # A cast, since uvloop's transports do not subclass asyncio.Transport.
        self._transport = transport = cast("asyncio.Transport", transport)
        self.peer = format_address(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(endpoint.high_water, endpoint.low_water)
        self._writer = TickWriter(self._loop, transport, endpoint.high_water)
        self._calls = PendingCalls(self._loop, self.peer)
        endpoint.connections.add(self)
        if endpoint.listener is not None:
            endpoint.listener.connected(self)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self._decoder.feed(data)
        self._take_commands()
        if self._unfinished or self._decoder.pending:
            self._count_unfinished()
        if len(data) > _BYTES_AT_ONCE:
            self._yield_turn()
        elif not self._much_until:
            self._endpoint.others_until = self._loop.time() + _OTHERS

    def eof_received(self) -> None:
        # Tell waiting callers now, not once the peer has read the rest.
        self.close(CloseReason.PEER)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.lost.done():
            return
        if exc is not None:
            self._error = self._error or str(exc)
        self._end(CloseReason.PEER if exc is None else CloseReason.FAILED)
        self._endpoint.connections.discard(self)
        self.lost.set_result(None)
        if self._endpoint.listener is not None:
            self._endpoint.listener.closed(self, self._reason or CloseReason.FAILED)

    def pause_writing(self) -> None:
        if not self.closed:
            self._blocked = self._loop.create_future()
        if self._endpoint.holds_requests:
            self._hold(_UNTIL_IT_READS)

    def resume_writing(self) -> None:
        self._unblock()
        self._release(_UNTIL_IT_READS)

    # Inside

    def _hold(self, why: int) -> None:
        if not self._held and not self._transport.is_closing():
            self._transport.pause_reading()
        self._held |= why

    def _release(self, why: int) -> None:
        if not self._held & why:
            return
        self._held &= ~why
        if not self._held:
            # Requests that came before the pause go first, and may fill the buffer again.
            self._take_commands()
        if not self._held and not self._transport.is_closing():
            self._transport.resume_reading()

    def _count_unfinished(self) -> None:
        unfinished = self._endpoint.unfinished
        if unfinished is None or self.closed:
            return
        self._unfinished = self._decoder.pending + self._apart
        unfinished.holds(self, self._unfinished)
        while (surplus := unfinished.surplus()) is not None:
            surplus._fail(
                f"frames that have not ended hold {unfinished.total} bytes on {len(unfinished)} connections, "
                f"{unfinished.limit} may wait (maxUnfinishedBytes); {surplus._unfinished} of them are this one's"
            )

    def _max_body(self, code: int) -> int:
        assert self._endpoint.body_limit is not None
        return self._endpoint.body_limit(code).size

    def _refuse(self, request: Command, size: int) -> None:
        """Answer a request whose body is too large to be taken."""
        endpoint = self._endpoint
        assert endpoint.body_limit is not None
        self.serialize = request.serialize
        if request.code not in endpoint.processors and endpoint.default is None:
            self._process(request)
            return
        limit = endpoint.body_limit(request.code)
        remark = (
            f"the body of request {request.code} has {size} bytes; at most {limit.size} are taken ({limit.setting})"
        )
        self._complain(("body", request.code), remark)
        self.reply(request, self._turned_away(request, limit.code, limit.remark or remark))

    def _turned_away(self, request: Command, code: ResponseCode, remark: str) -> Command:
        """The answer to a request that no processor gets. It counts like any other."""
        if self._endpoint.count_unserved is not None:
            try:
                self._endpoint.count_unserved(self, request)
            except BrokerError as exc:
                return request.reply(exc.code, exc.remark)
        return request.reply(code, remark)

    def _complain(self, what: Hashable, why: str) -> None:
        """Log what the peer did wrong; a server does so once in a while for each address."""
        faults = self._endpoint.faults
        again = "" if faults is None else faults.due((origin_of(self.peer), what))
        if again is not None:
            logger.warning("%s: %s%s", self.peer, why, again)

    def _take_commands(self) -> None:
        endpoint = self._endpoint
        next_command = self._decoder.next
        process = self._process
        fast, lateness = endpoint.fast, endpoint.lateness
        now = monotonic()
        if lateness is not None and now > lateness.late_after:
            process, fast = self._process_late, None
        left = self._turn()
        while left > 0:
            if self._held or self.closed:
                return
            try:
                if fast is not None:
                    if not self._decoder.hand_over(fast.take, self, left):
                        return
                    left -= fast.taken
                left -= 1
                command = next_command()
            except OversizedRequest as exc:
                self._refuse(exc.request, exc.size)
                continue
            except RemoteProtocolError as exc:
                self.misbehaved = True
                self._fail(str(exc))
                return
            if command is None:
                return
            self.serialize = command.serialize
            if command.flag & RESPONSE:
                if not self._calls.resolve(command):
                    logger.debug("%s: no request waits for reply %s", self.peer, command.opaque)
            else:
                command.received = now
                process(command)
        self._yield_turn()

    def _turn(self) -> int:
        """How many requests may be taken now."""
        endpoint = self._endpoint
        if not endpoint.holds_requests:
            return sys.maxsize
        if self._much_until:
            now = self._loop.time()
            if now > self._much_until:
                self._much_until = 0.0
            elif now < endpoint.others_until:
                return self._short_turn(monotonic())
        return _REQUESTS_AT_ONCE

    def _short_turn(self, now: float) -> int:
        """As `_turn`, beside others. How long the last one took says whether this one may be longer."""
        took = now - self._turn_began
        self._turn_began = now
        if took > _SHORT_TURN:
            self._short = max(self._short // 2, _REQUESTS_BESIDE_OTHERS)
        elif took < _SHORT_TURN / 2:
            self._short = min(self._short * 2, _REQUESTS_AT_ONCE)
        return self._short

    def _yield_turn(self) -> None:
        """Let other connections have their turn before this one goes on."""
        if self._endpoint.holds_requests and not self.closed and not self._held & _UNTIL_NEXT_TURN:
            self._much_until = self._loop.time() + _MUCH
            self._hold(_UNTIL_NEXT_TURN)
            # A turn of the loop later: in the next one others are read, and then they still have to be answered.
            self._loop.call_soon(self._loop.call_soon, self._next_turn)

    def _next_turn(self) -> None:
        if not self.closed:
            self._release(_UNTIL_NEXT_TURN)
            self._count_unfinished()

    def _process(self, request: Command) -> None:
        endpoint = self._endpoint
        processor = endpoint.processors.get(request.code, endpoint.default)
        if processor is None:
            # The leading blank is RocketMQ's.
            remark = f" request type {request.code} not supported"
            answer = self._turned_away(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            if not request.flag & ONEWAY:
                self.send(answer)
            return
        try:
            for hook in endpoint.hooks:
                hook.before_request(self.peer, request)
            result = processor(self, request)
        except (Exception, asyncio.CancelledError) as exc:  # here every processor's error becomes an answer
            self.reply(request, self._error_reply(request, exc))
            return
        if result is None:
            return
        if isinstance(result, Command):
            self.reply(request, result)
        elif len(endpoint.tasks) >= endpoint.max_running_requests:
            _discard(result)
            self.reply(request, request.reply(ResponseCode.SYSTEM_BUSY, _OVERLOAD))
        else:
            self._serve_later(request, result)

    def _serve_later(self, request: Command, result: Awaitable[Command | None]) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            if task.cancelled():
                _discard(result)  # it may never have begun

        tasks = self._endpoint.tasks
        task = self._loop.create_task(self._reply_later(request, result), name=f"request {request.code}")
        tasks.add(task)
        task.add_done_callback(ended)

    def _process_late(self, request: Command) -> None:
        """Process the request, or refuse it if it waited too long to be read."""
        lateness = self._endpoint.lateness
        refusal = None if lateness is None else lateness.refusal(request)
        if refusal is None:
            self._process(request)
        else:
            self.reply(request, refusal)

    async def _reply_later(self, request: Command, result: Awaitable[Command | None]) -> None:
        try:
            response = await result
        except (Exception, asyncio.CancelledError) as exc:  # as in _process
            task = asyncio.current_task()
            if isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # this endpoint is closing; otherwise something that the processor awaited was cancelled
            response = self._error_reply(request, exc)
        if response is not None:
            self.reply(request, response)

    def _error_reply(self, request: Command, exc: BaseException) -> Command:
        if isinstance(exc, BrokerError):
            return request.reply(exc.code, exc.remark)
        if isinstance(exc, PyroMQError):
            return request.reply(ResponseCode.SYSTEM_ERROR, str(exc))
        # An unexpected error: the log gets all of it, the peer one line.
        logger.error("%s: request %s failed", self.peer, request.code, exc_info=exc)
        return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}")

    def _after_response(self, request: Command, response: Command) -> None:
        for hook in self._endpoint.hooks:
            try:
                hook.after_response(self.peer, request, response)
            except Exception:  # a hook only watches; the reply goes out anyway
                logger.exception("%s: hook failed after request %s", self.peer, request.code)

    def _prepare(self, command: Command) -> int:
        """Prepare `command` for sending, and number it."""
        self._check_open()
        if self._endpoint.follow_peer:
            command.serialize = self.serialize
        for hook in self._endpoint.hooks:
            hook.before_request(self.peer, command)
        command.opaque = opaque = next_opaque()
        return opaque

    async def _writable_until(self, deadline: float) -> bool:
        """Wait until the peer reads; False if it does not by `deadline`."""
        try:
            async with asyncio.timeout_at(deadline):
                # The first task to wake may have filled the buffer again.
                while self._blocked is not None:
                    await asyncio.shield(self._blocked)
        except TimeoutError:
            return False
        return True

    def _unblock(self) -> None:
        blocked, self._blocked = self._blocked, None
        if blocked is not None:
            blocked.set_result(None)

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionLost(self.peer, self._why_closed())

    def _why_closed(self) -> str:
        return self._error or (self._reason or CloseReason.PEER).value

    def _end(self, reason: CloseReason) -> None:
        """Stop reading and sending, and fail all waiting calls. The first reason counts."""
        if self.closed:
            return
        self.closed = True
        self._reason = reason
        self._calls.fail_all(self._why_closed())
        self._unblock()
        self._decoder.clear()
        if self._endpoint.unfinished is not None:
            self._endpoint.unfinished.forget(self)

    def _fail(self, why: str) -> None:
        """Close the connection because of the peer's fault; earlier answers are still sent."""
        if not self.closed:
            # Garbage reads differently each time.
            self._complain("garbage" if self.misbehaved else _NUMBER.sub("", why), f"{why}; closing")
            self._error = why
            self.close(CloseReason.FAILED)


async def _permit(permits: asyncio.Semaphore, deadline: float, peer: str) -> None:
    if not permits.locked():
        await permits.acquire()
        return
    try:
        async with asyncio.timeout_at(deadline):
            await permits.acquire()
    except TimeoutError:
        raise TooManyRequests(f"{peer}: too many requests in flight, and none finished in time") from None


def _discard(result: Awaitable[Command | None]) -> None:
    """Drop an awaitable on purpose, without the warning for a forgotten one."""
    if isinstance(result, asyncio.Future):
        result.cancel()
    elif hasattr(result, "close"):
        result.close()
