"""The master's side of replication: each slave gets the log, from where its own ends (docs/spec/ha.md 2.1).

What lies in files goes from the page cache to the socket by `sendfile`; no byte of a message passes through Python. New
messages are sent in the turn that stores them. A slave that does not read costs its own connection and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.replication import MAX_FRAME_DATA
from pyromq.remoting.addresses import format_address

from .wire import CannotFollow, PlainWire

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.store.commit_log import CommitLog

    from .config import ReplicationConfig
    from .wire import Audience, Wire

logger = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between two looks at silent slaves
_AT_ONCE = 1 << 20  # bytes sent to one slave before others get their turn
_READ = 4096
_REFUSALS_KEPT = 16


class Refusal(NamedTuple):
    """A slave that was sent away, for operators to see."""

    peer: str
    reason: str
    at: float  # epoch seconds


class Master:
    """Sends the log to all slaves. `config` gives the settings as they are now, `wire` the protocol for a slave."""

    def __init__(
        self,
        log: CommitLog,
        slaves: Audience,
        config: Callable[[], ReplicationConfig],
        wire: Callable[[SlaveLink], Wire] | None = None,
    ) -> None:
        self._log = log
        self.wire = wire or (lambda link: PlainWire(log))
        self._slaves = slaves
        self._config = config
        self.links: set[SlaveLink] = set()
        self.refusals: deque[Refusal] = deque(maxlen=_REFUSALS_KEPT)
        self._changed = asyncio.Event()  # a slave has more, or is gone

    def accepted(self, sock: socket.socket) -> None:
        """A connection to the port of replication."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = SlaveLink(sock, self._log, self._config().transfer_batch, self)
        self.links.add(link)
        self._slaves.joined(link)
        logger.info("slave %s connected", link.peer)

    def appended(self) -> None:
        """The log has grown."""
        for link in tuple(self.links):  # one that finds its slave gone leaves
            link.grown()

    def reported(self, link: SlaveLink, end: int) -> None:
        self._slaves.acknowledged(link, end)
        self._changed.set()

    def closed(self, link: SlaveLink, reason: str, *, is_refusal: bool) -> None:
        self.links.discard(link)
        self._slaves.left(link)
        self._changed.set()
        if is_refusal:
            self.refusals.append(Refusal(link.peer, reason, time.time()))
            logger.error("slave %s is refused: %s", link.peer, reason)
        else:
            logger.warning("slave %s is gone: %s", link.peer, reason)

    async def run(self) -> None:
        """Keep connections alive, and close those that are not, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            config = self._config()
            now = time.monotonic()
            for link in tuple(self.links):
                link.look(now, config.heartbeat_interval / 1000, config.silence / 1000)

    async def finish(self, timeout: float) -> None:
        """Wait until every slave has the whole log, but no longer than this."""
        end = int(self._log.end)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while any(link.acknowledged is not None and link.acknowledged < end for link in self.links):
                    self._changed.clear()
                    await self._changed.wait()

    def close(self) -> None:
        for link in tuple(self.links):
            link.close("the broker stops")


class SlaveLink:
    """One connection of a slave."""

    def __init__(self, sock: socket.socket, log: CommitLog, batch: int, master: Master) -> None:
        self._sock = sock
        self._log = log
        self._batch = min(batch, MAX_FRAME_DATA)
        self._master = master
        self._loop = asyncio.get_running_loop()
        self.peer = format_address(sock.getpeername()[:2])
        self.since = time.time()
        # Where the slave's log ends, as it said last; None until it said so.
        self.acknowledged: int | None = None
        # What is sent next; None until the slave has said where it is.
        self.position: int | None = None
        self._wire = master.wire(self)
        # Of the frame that is being sent: what is left of its head and of its data.
        self._head = b""
        self._left = 0
        self._file: tuple[int, int] | None = None  # start of the file that is read from, and its descriptor
        self._is_blocked = False
        self._read_at = self._wrote_at = time.monotonic()
        self._is_open = True
        self._loop.add_reader(sock, self._readable)

    # What the slave says

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self.close(exc.strerror or str(exc))
            return
        if not data:
            self.close("closed by the slave")
            return
        self._read_at = time.monotonic()
        try:
            answer, report = self._wire.read(data)
        except RemoteProtocolError as exc:
            self.refuse(str(exc))
            return
        if answer:
            self._head += answer
            self._send()
        if report is not None:
            self._reported(report)

    def _reported(self, end: int) -> None:
        log_end = int(self._log.end)
        if end > log_end:
            # It has what this log has not: to count that as acknowledged would be a lie, to send on a mixture.
            self.refuse(f"its log ends at {end}, this one at {log_end}")
            return
        if self.position is None:
            try:
                self.position = self._wire.begin(end)
            except CannotFollow as exc:
                self.refuse(str(exc))
                return
            logger.info("slave %s follows from %d, %d bytes behind", self.peer, self.position, log_end - self.position)
        self.acknowledged = end
        self._master.reported(self, end)
        self.grown()

    # What it is told

    def grown(self) -> None:
        """Send what is there, unless the slave has yet to read what was sent."""
        if self.position is not None and not self._is_blocked and self._is_open:
            self._send()

    def tell(self) -> None:
        """Send a heartbeat now, unless a frame is under way."""
        if self.position is not None and self._is_open and not (self._head or self._left):
            self._head = self._wire.head(self.position, 0)
            self.grown()

    def _send(self) -> None:
        if not self._is_open:
            return
        budget = _AT_ONCE
        try:
            while budget > 0 and self._has_frame():
                if self._head:
                    more = socket.MSG_MORE if self._left else 0
                    self._head = self._head[self._sock.send(self._head, more) :]
                else:
                    budget -= self._send_data()
                self._wrote_at = time.monotonic()
        except (BlockingIOError, InterruptedError):
            self._block()
            return
        except OSError as exc:
            self.close(exc.strerror or str(exc))
            return
        self._unblock()
        if budget <= 0:
            self._loop.call_soon(self._send)

    def _has_frame(self) -> bool:
        """Whether a frame is under way, or there is enough for the next one."""
        if self._head or self._left:
            return True
        if self.position is None:
            return False
        available = self._wire.reach(self.position) - self.position
        if available <= 0:
            return False
        to_end_of_file = self._log.file_size - self.position % self._log.file_size
        self._left = min(available, to_end_of_file, self._batch)
        self._head = self._wire.head(self.position, self._left)
        return True

    def _send_data(self) -> int:
        assert self.position is not None
        start = self.position - self.position % self._log.file_size
        sent = os.sendfile(self._sock.fileno(), self._descriptor(start), self.position - start, self._left)
        self.position += sent
        self._left -= sent
        return sent

    def _descriptor(self, start: int) -> int:
        if self._file is None or self._file[0] != start:
            self._close_file()
            segment = self._log.segment_at(start)
            if segment is None:
                raise OSError(0, f"the file of {start} was deleted before it could be sent")
            self._file = start, os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        return self._file[1]

    def _block(self) -> None:
        if not self._is_blocked:
            self._is_blocked = True
            self._loop.add_writer(self._sock, self._send)

    def _unblock(self) -> None:
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._sock)

    # Its end

    def look(self, now: float, heartbeat: float, silence: float) -> None:
        """Send a heartbeat if nothing was sent for a while; close if nothing was heard for a longer one."""
        if now - self._read_at > silence:
            self.close(f"silent for {silence:g} s")
        elif now - self._wrote_at > heartbeat:
            self.tell()

    def refuse(self, reason: str) -> None:
        self._close(reason, is_refusal=True)

    def close(self, reason: str) -> None:
        self._close(reason, is_refusal=False)

    def _close(self, reason: str, *, is_refusal: bool) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._sock)
        self._unblock()
        self._close_file()
        with contextlib.suppress(OSError):
            self._sock.close()
        self._master.closed(self, reason, is_refusal=is_refusal)

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file[1])
            self._file = None
