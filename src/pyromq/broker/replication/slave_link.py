"""The line from a master to one slave: what it reports, and what it is sent (docs/spec/ha.md 2.1).

What lies in files goes from the page cache to the socket by `sendfile`, the few newest records from the mapped file; no
byte of a message is copied by Python, except with TLS. A slave that does not read costs its own connection and nothing
else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from typing import TYPE_CHECKING

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.replication import MAX_FRAME_DATA
from pyromq.remoting.addresses import format_address

from .wire import CannotFollow, misplaced

if TYPE_CHECKING:
    from pyromq.store.commit_log import CommitLog
    from pyromq.store.segment import Segment

    from .introductions import Identity
    from .lines import Line
    from .master import Master

logger = logging.getLogger(__name__)

_AT_ONCE = 1 << 20  # bytes sent to one slave before others get their turn
_READ = 4096
# A slave that answers so soon, in seconds, is told of new messages when it has answered: each frame has its price on
# both sides, and while one is on its way the next grows. From so many bytes on that price does not count.
_QUICK = 0.002
_MUCH = 64 << 10
# Where no answer waits for slaves, they are told of new messages so many seconds apart, or when it is so many bytes.
# Every time costs some 20 µs, mostly to wake the slave, however much is said.
_LEISURE = 0.005
_MUCH_AT_LEISURE = _AT_ONCE
_FRAMES_AT_ONCE = 64  # that one call sends
_PAUSE = 0.05  # seconds between two portions, under flow control


class SlaveLink:
    """One connection of a slave."""

    def __init__(self, line: Line, log: CommitLog, batch: int, master: Master) -> None:
        self._line = line
        self._log = log
        self._batch = min(batch, MAX_FRAME_DATA)
        self._master = master
        self._loop = asyncio.get_running_loop()
        self.peer = format_address(line.peer())
        # Who it is, if it said so, and whether it said that it will go.
        self.slave: Identity | None = None
        self.is_leaving = False
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
        self._pace = Pace()
        self._going_on: asyncio.TimerHandle | None = None
        # By the monotonic clock: what is shown must not depend on one that somebody sets.
        self.since = self.read_at = self._wrote_at = time.monotonic()
        self._is_quick = False
        self._is_open = True
        self._loop.add_reader(line.fileno(), self._readable)
        if line.has_more():
            self._loop.call_soon(self._readable)

    # What the slave says

    def _readable(self) -> None:
        """Read all there is: what TLS has decrypted already does not make the socket readable again."""
        while self._read() and self._line.has_more():
            pass

    def _read(self) -> bool:
        """Whether the line is still there."""
        if not self._is_open:
            return False
        try:
            data = self._line.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError as exc:
            self.close(exc.strerror or str(exc))
            return False
        if not data:
            self.close("closed by the slave")
            return False
        self.read_at = time.monotonic()
        self._is_quick = self.read_at - self._wrote_at < _QUICK
        try:
            answer, report = self._wire.read(data)
        except RemoteProtocolError as exc:
            self.refuse(str(exc))
            return False
        if answer:
            self._head += answer
            self._send()
        if report is not None:
            self._reported(report)
        return self._is_open

    def _reported(self, end: int) -> None:
        log_end = int(self._log.end)
        if end > log_end:
            # To count that as acknowledged would be a lie, to send it the rest a mixture.
            self.refuse(misplaced(end, self._log) or "")
            return
        if self.position is None:
            try:
                self.position = self._wire.begin(end)
            except CannotFollow as exc:
                self.refuse(str(exc))
                return
            logger.info("slave %s follows from %d, %d bytes behind", self.peer, self.position, log_end - self.position)
            self._master.follows(self)
        self.acknowledged = end
        self._master.reported(self, end)
        self.grown()

    # What it is told

    def grown(self) -> None:
        """Send what is there, unless the slave has yet to read what was sent."""
        if self.position is None or self._is_blocked or not self._is_open:
            return
        if not self._master.is_awaited:
            self._grown_at_leisure(self.position)
        elif not (self._is_quick and self._is_little_to_say()):
            self._send()

    def _grown_at_leisure(self, position: int) -> None:
        """After a pause at once, and then a few milliseconds apart, unless it is much."""
        since = time.monotonic() - self._wrote_at
        if since >= _LEISURE or self._wire.reach(position) - position >= _MUCH_AT_LEISURE:
            self._send()
        elif self._going_on is None:
            self._going_on = self._loop.call_later(_LEISURE - since, self._go_on)

    def _is_little_to_say(self) -> bool:
        """Whether there is so little to send that it can wait for the slave's answer, which will come."""
        assert self.position is not None
        is_idle = self.acknowledged is None or self.acknowledged >= self.position
        return not (is_idle or self._head or self._left or self._wire.reach(self.position) - self.position >= _MUCH)

    def tell(self) -> None:
        """Send a heartbeat now, unless a frame is under way."""
        if self.position is not None and self._is_open and not (self._head or self._left):
            self._head = self._wire.head(self.position, 0)
            self.grown()

    def _send(self) -> None:
        if not self._is_open:
            return
        budget, rate = _AT_ONCE, self._master.bytes_per_second
        if rate:
            budget = min(budget, self._pace.left(rate, time.monotonic()))
        try:
            while budget > 0 and self._has_frame():
                sent = self._send_frames(budget) if self._left <= _MUCH else self._send_file(budget)
                budget -= sent
                self._pace.spend(sent)
                self._wrote_at = time.monotonic()
        except (BlockingIOError, InterruptedError):
            self._block()
            return
        except OSError as exc:
            self.close(exc.strerror or str(exc))
            return
        self._unblock()
        if budget > 0:
            return
        if not rate:
            self._loop.call_soon(self._send)
        elif self._going_on is None:
            self._going_on = self._loop.call_later(_PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._going_on = None
        self.grown()

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

    def _send_frames(self, most: int) -> int:
        """Send the frame that is under way and those after it together; gives the bytes of data.

        For few bytes a frame, `sendfile` costs more.
        """
        if not self._left:
            self._head = self._head[self._line.send(self._head) :]
            return 0
        assert self.position is not None
        segment = self._segment(self.position)
        at = self.position - segment.start
        frames = self._frames(most)
        parts: list[bytes | memoryview] = []
        for head, size in frames:
            parts += head, segment.view[at : at + size]
            at += size
        return self._sent(frames, self._line.send_parts(parts))

    def _frames(self, most: int) -> list[tuple[bytes, int]]:
        """Head and size of the frame under way and of those after it, all of one file."""
        assert self.position is not None
        frames = [(self._head, self._left)]
        at = self.position + self._left
        to_end_of_file = self._log.file_size - self.position % self._log.file_size - self._left
        left = min(most - self._left, to_end_of_file)
        while left > 0 and len(frames) < _FRAMES_AT_ONCE:
            size = min(self._wire.reach(at) - at, left, self._batch)
            if size <= 0:
                break
            frames.append((self._wire.head(at, size), size))
            at += size
            left -= size
        return frames

    def _sent(self, frames: list[tuple[bytes, int]], sent: int) -> int:
        """Note how far `frames` went; gives the bytes of data. A frame that was not begun can be another one later."""
        assert self.position is not None
        if not sent:
            return 0
        self._head, self._left = b"", 0
        data = 0
        for head, size in frames:
            if sent <= 0:
                break
            self._head = head[sent:]
            sent -= len(head)
            done = min(max(sent, 0), size)
            self._left = size - done
            data += done
            sent -= size
        self.position += data
        return data

    def _send_file(self, most: int) -> int:
        if self._head:
            self._head = self._head[self._line.send(self._head, more=True) :]
            return 0
        assert self.position is not None
        start = self.position - self.position % self._log.file_size
        count = min(self._left, most)
        sent = self._line.send_file(self._descriptor(start), self.position - start, count)
        self.position += sent
        self._left -= sent
        return sent

    def _segment(self, offset: int) -> Segment:
        segment = self._log.segment_at(offset)
        if segment is None:
            raise OSError(0, f"the file of {offset} was deleted before it could be sent")
        return segment

    def _descriptor(self, start: int) -> int:
        if self._file is None or self._file[0] != start:
            self._close_file()
            self._file = start, os.open(self._segment(start).path, os.O_RDONLY | os.O_CLOEXEC)
        return self._file[1]

    def _block(self) -> None:
        if not self._is_blocked:
            self._is_blocked = True
            self._loop.add_writer(self._line.fileno(), self._send)

    def _unblock(self) -> None:
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._line.fileno())

    # Its end

    def look(self, now: float, heartbeat: float, silence: float) -> None:
        """Send a heartbeat if nothing was sent for a while; close if nothing was heard for a longer one."""
        if self._is_quick and now - self._wrote_at > _QUICK:
            self._is_quick = False  # it has not answered what was sent last, or there was nothing to be sent
            self.grown()
        if now - self.read_at > silence:
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
        self._loop.remove_reader(self._line.fileno())
        self._unblock()
        if self._going_on is not None:
            self._going_on.cancel()
        self._close_file()
        with contextlib.suppress(OSError):
            self._line.close()
        self._master.closed(self, reason, is_refusal=is_refusal)

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file[1])
            self._file = None


class Pace:
    """How many bytes may go at a time, so that no second has more than its rate. Decides only."""

    def __init__(self) -> None:
        self._left = 0.0
        self._at = -math.inf

    def left(self, rate: int, now: float) -> int:
        """The bytes that may go now. What was not used for a while does not add up to more than a portion."""
        portion = max(rate * 2 * _PAUSE, 1.0)
        self._left = min(self._left + (now - self._at) * rate, portion)
        self._at = now
        return int(self._left)

    def spend(self, count: int) -> None:
        self._left -= count
