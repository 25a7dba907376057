"""What a master and a slave say to each other on one connection; `master` moves the bytes.

There are two protocols: this plain one (docs/spec/ha.md 2), and that of groups that fail over, in `broker/failover`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyromq.protocol.replication import FRAME_HEAD, ReportReader

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyromq.store.commit_log import CommitLog


class CannotFollow(Exception):
    """Why a slave cannot be sent what it needs."""


class Wire(Protocol):
    """A master's side of a protocol, for one connection."""

    def read(self, data: bytes) -> tuple[bytes, int | None]:
        """Take what the slave sent. Gives an answer, and where the slave's log ends if it has said so.

        RemoteProtocolError for what no slave sends.
        """
        ...

    def begin(self, end: int) -> int:
        """Where to begin for a slave whose log ends at `end`, no later than this one. CannotFollow says why nowhere."""
        ...

    def reach(self, position: int) -> int:
        """How far a frame that begins at `position` may go."""
        ...

    def head(self, position: int, size: int) -> bytes:
        """The head of a frame; a `size` of 0 is a heartbeat."""
        ...


class Audience(Protocol):
    """Hears of the slaves of a master, each known by its connection."""

    def joined(self, slave: Hashable) -> None: ...

    def left(self, slave: Hashable) -> None: ...

    def acknowledged(self, slave: Hashable, end: int) -> None: ...


class PlainWire:
    """Reports and frames, and nothing else."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._reports = ReportReader()

    def read(self, data: bytes) -> tuple[bytes, int | None]:
        return b"", self._reports.feed(data)

    def begin(self, end: int) -> int:
        log_end = int(self._log.end)
        if end == 0:
            # A fresh slave gets the newest file, as RocketMQ's masters do it; older files are not sent.
            return log_end - log_end % self._log.file_size
        if end < self._log.start:
            raise CannotFollow(f"its log ends at {end}, this one begins at {self._log.start}")
        return end

    def reach(self, position: int) -> int:
        return int(self._log.end)

    def head(self, position: int, size: int) -> bytes:
        return FRAME_HEAD.pack(position, size)
