"""RocketMQ 5's replication protocol for groups that fail over, AutoSwitch HA (docs/spec/controller.md 6).

    slave -> master    byte 0       4             6         8
                            | 1     | last file   | learner | slave's id |                              handshake
                            | 2     | end of the slave's log |                                          report

    master -> slave    byte 0       4        8            16           20
                            | 1     | 12 * k | log's end  | last epoch | k * (epoch, its start) |       handshake
                            | 2     | n      | offset     | epoch      | its start | confirm offset |   frame
                            ... n bytes of the log; an n of 0 is a heartbeat

One connection, which the slave opens. It introduces itself, the master answers with its epochs, the slave cuts off what
the two do not have in common and then reports where its log ends, again and again; the master sends what follows. All
bytes of a frame belong to one epoch and lie in one file of the log, but a frame may cut a record anywhere.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from pyromq.errors import RemoteProtocolError

HANDSHAKE, TRANSFER = 1, 2
STATE = struct.Struct(
    ">i"  # HANDSHAKE or TRANSFER
)
HELLO = struct.Struct(
    ">i"  # HANDSHAKE
    "h"  # 1: a slave without a log wants only the newest file
    "h"  # 1: a learner, which never joins the in-sync set
    "q"  # the slave's id
)
REPORT = struct.Struct(
    ">i"  # TRANSFER
    "q"  # the end of the slave's log
)
GREETING_HEAD = struct.Struct(
    ">i"  # HANDSHAKE
    "i"  # bytes of epochs that follow
    "q"  # the end of the master's log
    "i"  # the master's last epoch
)
EPOCH = struct.Struct(
    ">i"  # epoch
    "q"  # where in the log it begins
)
FRAME_HEAD = struct.Struct(
    ">i"  # TRANSFER
    "i"  # bytes of data that follow
    "q"  # physical offset of the first byte of data; -1 in a heartbeat of an empty master
    "i"  # the epoch of the data
    "q"  # where that begins
    "q"  # the confirm offset
)
# RocketMQ's masters have a buffer for so many epochs, its slaves one of 4 MiB for a whole frame.
MAX_EPOCHS = 1000
MAX_FRAME_DATA = (4 << 20) - FRAME_HEAD.size


class Hello(NamedTuple):
    """How a slave introduces itself."""

    slave_id: int
    is_learner: bool = False
    from_last_file: bool = False

    def encode(self) -> bytes:
        return HELLO.pack(HANDSHAKE, self.from_last_file, self.is_learner, self.slave_id)


class Epoch(NamedTuple):
    """One master's time, and where in the log it begins."""

    epoch: int
    start: int


class Greeting(NamedTuple):
    """What a master answers: where its log ends, and its epochs, oldest first."""

    end: int
    epochs: tuple[Epoch, ...]

    def encode(self) -> bytes:
        """The newest epochs, if there are more than RocketMQ's slaves take."""
        epochs = self.epochs[-MAX_EPOCHS:]
        last = epochs[-1].epoch if epochs else -1
        head = GREETING_HEAD.pack(HANDSHAKE, len(epochs) * EPOCH.size, self.end, last)
        return head + b"".join(EPOCH.pack(*epoch) for epoch in epochs)


class FrameHead(NamedTuple):
    """What a master says about a piece of its log: its size, place and epoch, and how much of the log is confirmed."""

    size: int
    offset: int
    epoch: Epoch
    confirmed: int

    def encode(self) -> bytes:
        return FRAME_HEAD.pack(TRANSFER, self.size, self.offset, *self.epoch, self.confirmed)


class Piece(NamedTuple):
    """Bytes of the log as they came, perhaps a part of what its frame has; none in a heartbeat."""

    head: FrameHead
    offset: int
    data: memoryview


class SlaveReader:
    """Takes apart what a slave sends, whatever pieces it comes in."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Hello | int]:
        """What is complete by now, in its order: handshakes, and the ends that were reported.

        RemoteProtocolError for what no slave sends.
        """
        data = self._rest + data
        found: list[Hello | int] = []
        at = 0
        while len(data) - at >= STATE.size:
            (state,) = STATE.unpack_from(data, at)
            layout = HELLO if state == HANDSHAKE else REPORT if state == TRANSFER else None
            if layout is None:
                raise RemoteProtocolError(f"a slave in the state {state}")
            if len(data) - at < layout.size:
                break
            found.append(_hello(data, at) if layout is HELLO else _report(data, at))
            at += layout.size
        self._rest = data[at:]
        return found


def _hello(data: bytes, at: int) -> Hello:
    _, from_last_file, is_learner, slave_id = HELLO.unpack_from(data, at)
    if slave_id < 0 or from_last_file not in (0, 1) or is_learner not in (0, 1):
        raise RemoteProtocolError(f"a handshake of slave {slave_id} with the flags {from_last_file}, {is_learner}")
    return Hello(slave_id, bool(is_learner), bool(from_last_file))


def _report(data: bytes, at: int) -> int:
    end: int = REPORT.unpack_from(data, at)[1]
    if end < -1:
        raise RemoteProtocolError(f"a slave whose log ends at {end}")
    return max(end, 0)  # an empty log may end at -1


class MasterReader:
    """Takes apart what a master sends, in whatever pieces. Data is given on as it comes, before its frame is whole."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._frame: FrameHead | None = None
        self._offset = 0
        self._left = 0

    def feed(self, data: bytes | memoryview) -> list[Greeting | Piece]:
        """What is there by now, in its order. RemoteProtocolError for what no master sends."""
        found: list[Greeting | Piece] = []
        view = memoryview(data)
        while view:
            if self._left:
                assert self._frame is not None
                part = view[: self._left]
                found.append(Piece(self._frame, self._offset, part))
                self._offset += len(part)
                self._left -= len(part)
                view = view[len(part) :]
                continue
            wanted = self._wanted() - len(self._head)
            self._head += view[:wanted]
            view = view[wanted:]
            if len(self._head) == self._wanted():
                found += self._complete(view)
        return found

    def _wanted(self) -> int:
        """How long the head must be before more of it can be known."""
        head = self._head
        if len(head) < STATE.size:
            return STATE.size
        (state,) = STATE.unpack_from(head)
        if state == TRANSFER:
            return FRAME_HEAD.size
        if state != HANDSHAKE:
            raise RemoteProtocolError(f"a master in the state {state}")
        if len(head) < GREETING_HEAD.size:
            return GREETING_HEAD.size
        size: int = GREETING_HEAD.unpack_from(head)[1]
        if not 0 <= size <= MAX_EPOCHS * EPOCH.size or size % EPOCH.size:
            raise RemoteProtocolError(f"a handshake with {size} bytes of epochs")
        return GREETING_HEAD.size + size

    def _complete(self, rest: memoryview) -> list[Greeting | Piece]:
        head, self._head = self._head, bytearray()
        if STATE.unpack_from(head)[0] == HANDSHAKE:
            return [_greeting(head)]
        frame = self._frame = _frame(head)
        self._offset, self._left = frame.offset, frame.size
        return [] if frame.size else [Piece(frame, frame.offset, rest[:0])]


def _greeting(data: bytearray) -> Greeting:
    _, _, end, last = GREETING_HEAD.unpack_from(data)
    epochs = tuple(Epoch(*entry) for entry in EPOCH.iter_unpack(memoryview(data)[GREETING_HEAD.size :]))
    numbers = [entry.epoch for entry in epochs]
    if end < -1 or any(min(entry) < 0 for entry in epochs) or sorted(set(numbers)) != numbers:
        raise RemoteProtocolError(f"a handshake of a log that ends at {end}, with the epochs {show(epochs[:10])}")
    if epochs and last != numbers[-1]:
        raise RemoteProtocolError(f"a handshake whose last epoch is {numbers[-1]} and not {last}, as it says")
    return Greeting(max(end, 0), epochs)


def _frame(data: bytearray) -> FrameHead:
    _, size, offset, epoch, start, confirmed = FRAME_HEAD.unpack(data)
    if not 0 <= size <= MAX_FRAME_DATA or offset < (0 if size else -1):
        raise RemoteProtocolError(f"a frame of {size} bytes at {offset}")
    if min(epoch, start) < (0 if size else -1) or confirmed < -1:
        raise RemoteProtocolError(f"a frame of the epoch {epoch} from {start}, confirmed up to {confirmed}")
    return FrameHead(size, offset, Epoch(epoch, start), max(confirmed, 0))


def show(epochs: tuple[Epoch, ...]) -> str:
    """Epochs as people read them, and as their file has them."""
    return ", ".join(f"{epoch}-{start}" for epoch, start in epochs) or "none"
