"""Whether this broker's log may lack messages that it acknowledged.

brokerBoot   <boot id>#<flushDiskType>   the log lacks nothing as long as the machine has not started anew
             doubtful                    it may lack something, until this broker has caught up with a master

Under ASYNC_FLUSH a message counts once it is in memory. A killed process leaves that memory behind, a power failure
does not; the boot id of the machine tells them apart. A store that was emptied, or that ends before what it knew to be
confirmed, has lost something too. A broker in doubt still belongs to the in-sync set, but must not become master while
another member that may have more is away (docs/how-to/failover.md).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import StoreError
from pyromq.store.config import FlushDiskType

from .identity import replace_text

if TYPE_CHECKING:
    from pathlib import Path

    from pyromq.store.disk import Disk

logger = logging.getLogger(__name__)

BOOT_FILE = "brokerBoot"
_DOUBTFUL = "doubtful"
_SEPARATOR = "#"

LACKS = "it may lack acknowledged messages, since its machine or its disk failed before they were on disk"


class Traces(NamedTuple):
    """What the last run left behind."""

    crashed: bool  # it ended without closing the store
    lacks_confirmed: bool  # the log ends before what was confirmed
    is_emptied: bool  # the broker has an id, but no log


def is_doubtful(kept: str | None, boot: str | None, found: Traces) -> bool:
    """Decide by the content of the file, None if there is none, and by the boot id of now, None if unknown."""
    if kept == _DOUBTFUL or found.lacks_confirmed:
        return True
    if found.crashed:
        last_boot, _, flush = (kept or "").partition(_SEPARATOR)
        in_memory = boot is not None and last_boot == boot
        return not in_memory and flush != FlushDiskType.SYNC_FLUSH.value
    return kept is None and found.is_emptied


class Doubt:
    """Kept in a file, so that it outlives restarts. The methods block, since they wait for the disk."""

    def __init__(self, path: Path, disk: Disk, flush: FlushDiskType) -> None:
        self.path = path
        self._disk = disk
        self._flush = flush
        self._lock = threading.Lock()
        self.exists = False  # known once it was loaded

    def load(self, found: Traces) -> None:
        """Decide, and write down what the next start has to know. StoreError if the file cannot be used."""
        try:
            kept = self._read()
            self.exists = is_doubtful(kept, self._disk.boot_id(), found)
            if kept != self._text():
                self._keep()
        except OSError as exc:
            raise StoreError(f"{self.path} cannot be used: {exc.strerror or exc}") from exc
        if self.exists:
            logger.warning(
                "this broker does not become master before it has caught up with one, unless all others of the in-sync "
                "set are there and lack messages, too: %s",
                LACKS,
            )

    def end(self) -> None:
        """The log has everything again, or counts as all there is. OSError if that cannot be written down."""
        with self._lock:
            if self.exists:
                self.exists = False
                replace_text(self.path, self._text(), self._disk)

    def _keep(self) -> None:
        try:
            replace_text(self.path, self._text(), self._disk)
        except OSError as exc:
            # A broker starts on a full disk. Without the file, the next start after a crash is in doubt.
            logger.error("%s not written: %s", self.path, exc.strerror or exc)
            self._disk.delete(self.path)

    def _read(self) -> str | None:
        try:
            return self.path.read_bytes().decode(errors="replace").strip()
        except FileNotFoundError:
            return None

    def _text(self) -> str:
        if self.exists:
            return _DOUBTFUL
        return f"{self._disk.boot_id() or 'unknown'}{_SEPARATOR}{self._flush.value}"
