"""RocketMQ's default replication protocol: what a slave reports, and what its master sends (docs/spec/ha.md 2).

    slave -> master    byte 0         8
                            | offset  |            where the slave's log ends: request, acknowledgement and heartbeat

    master -> slave    byte 0         8      12
                            | offset  | size | size bytes of the log    a size of 0 is a heartbeat

One connection, which the slave opens; no handshake, no version. A frame may cut a record anywhere, and never passes the
end of a file of the log.
"""

from __future__ import annotations

import struct

from pyromq.errors import RemoteProtocolError

REPORT = struct.Struct(
    ">q"  # the end of the slave's log
)
FRAME_HEAD = struct.Struct(
    ">q"  # physical offset of the first byte of data
    "i"  # bytes of data that follow
)
# RocketMQ's slaves have a buffer of 4 MiB for a whole frame.
MAX_FRAME_DATA = (4 << 20) - FRAME_HEAD.size


class FrameReader:
    """Takes a stream of frames apart, whatever pieces it comes in. Data is given on as it comes, not frame by frame."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._offset = 0
        self._left = 0

    def feed(self, data: bytes | memoryview) -> list[tuple[int, memoryview]]:
        """The pieces of the log in `data`, each with its offset; an empty one is a heartbeat.

        RemoteProtocolError for a size or an offset that no master sends.
        """
        pieces: list[tuple[int, memoryview]] = []
        view = memoryview(data)
        while view:
            if not self._left:
                wanted = FRAME_HEAD.size - len(self._head)
                self._head += view[:wanted]
                view = view[wanted:]
                if len(self._head) < FRAME_HEAD.size:
                    break
                self._offset, self._left = FRAME_HEAD.unpack(self._head)
                self._head.clear()
                if self._offset < 0 or not 0 <= self._left <= MAX_FRAME_DATA:
                    raise RemoteProtocolError(f"a frame of {self._left} bytes at {self._offset}")
                if not self._left:
                    pieces.append((self._offset, view[:0]))
                continue
            piece = view[: self._left]
            pieces.append((self._offset, piece))
            self._offset += len(piece)
            self._left -= len(piece)
            view = view[len(piece) :]
        return pieces


class ReportReader:
    """Takes a stream of reports apart. Only the newest counts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The newest report that is complete now, None if there is none."""
        data = self._rest + data
        whole = len(data) // REPORT.size * REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        report: int = REPORT.unpack_from(data, whole - REPORT.size)[0]
        return report
