"""What a master and a slave say to each other on one connection; `master` moves the bytes.

There are two protocols: this plain one (docs/spec/ha.md 2), and that of groups that fail over, in `broker/failover`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.replication import FRAME_HEAD, REPORT, ReportReader

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyromq.store.commit_log import CommitLog


_NO_SUCH_LOG = 1 << 56  # bytes; a report beyond that is none, but text for example


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

    def joined(self, connection: Hashable, host: str) -> None: ...

    def introduced(self, connection: Hashable, broker_id: int) -> None: ...

    def left(self, connection: Hashable) -> None: ...

    def acknowledged(self, connection: Hashable, end: int) -> None: ...


class PlainWire:
    """Reports and frames, and nothing else."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._reports = ReportReader()
        self._has_begun = False

    def read(self, data: bytes) -> tuple[bytes, int | None]:
        if not self._has_begun and data[:1] != b"\0":
            # No log is as long as that, but the rest of the text might pass for a report.
            raise RemoteProtocolError(f"it does not speak the protocol of replication, but sends {data[:8]!r}")
        self._has_begun = True
        end = self._reports.feed(data)
        if end is not None and not 0 <= end < _NO_SUCH_LOG:
            raise RemoteProtocolError(f"it does not speak the protocol of replication, but sends {REPORT.pack(end)!r}")
        return b"", end

    def begin(self, end: int) -> int:
        wrong = misplaced(end, self._log)
        if wrong is not None:
            raise CannotFollow(wrong)
        log_end = int(self._log.end)
        # A fresh slave gets the newest file, as RocketMQ's masters do it; older files are not sent.
        return end or log_end - log_end % self._log.file_size

    def reach(self, position: int) -> int:
        return int(self._log.end)

    def head(self, position: int, size: int) -> bytes:
        return FRAME_HEAD.pack(position, size)


def misplaced(end: int, log: CommitLog) -> str | None:
    """Why a slave whose log ends there cannot get the rest of this one."""
    if end > log.end:
        return f"the slave's log ends at {end}, the master's at {log.end}"
    if 0 < end < log.start:
        return f"the slave's log ends at {end}, before the master's begins, at {log.start}"
    return None
