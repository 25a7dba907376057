"""A small file that follows a value in memory: the KV config, and settings changed at run time."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from pyromq.errors import NotSaved

from .files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)


class SavedFile:
    """Replaces the file with each new content, in a thread. The newest content wins, even if a caller is cancelled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._given = 0
        self._written = 0
        self._writing = threading.Lock()

    async def save(self, content: bytes) -> None:
        """Returns once the content survives a power failure. NotSaved leaves the file unchanged."""
        self._given += 1
        await asyncio.to_thread(self._write, self._given, content)

    def _write(self, number: int, content: bytes) -> None:
        with self._writing:
            if number < self._written:
                return
            try:
                replace_file(self.path, content)
            except OSError as exc:
                logger.error("%s not written: %s", self.path, exc.strerror)
                raise NotSaved(self.path.name, exc) from exc
            self._written = number
