"""Remembers deleted topics, and where the log ended when each was deleted.

A deleted topic loses its queues, but its messages stay in the log until they expire. Whenever queues are rebuilt from
the log they would come back; and if the topic was created again meanwhile, two messages would have offset 0. So
recovery skips the messages of a deleted topic from before its deletion.

The file is ours; RocketMQ ignores it, and brings such messages back after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from . import checked_file

if TYPE_CHECKING:
    from pathlib import Path

    from ..disk import Disk

DELETED_TOPICS = "deletedtopics.json"


class DeletedTopics:
    """By topic, the log offset before which its messages are gone."""

    def __init__(self, root: Path, disk: Disk) -> None:
        # Written in turn: whatever happens, one of them is whole.
        self._paths = (root / f"{DELETED_TOPICS}.bak", root / DELETED_TOPICS)
        self._disk = disk
        self.ends: dict[str, int] = {}

    def load(self) -> None:
        self.ends = {}
        for path in reversed(self._paths):
            content = checked_file.load(path)
            if content is not None:
                try:
                    self.ends = msgspec.json.decode(content, type=dict[str, int])
                    return
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue

    def add(self, topic: str, log_end: int) -> None:
        """Record, on disk, that `topic` has no messages before `log_end`. OSError leaves the table as it was."""
        self._save(self.ends | {topic: log_end})

    def fit(self, log_start: int, log_end: int) -> None:
        """Forget topics whose messages have all expired, and make sure no future message counts as deleted.

        A power failure may have taken the end of the log, so that it ends before the place where a topic was deleted.
        """
        fitting = {topic: min(end, log_end) for topic, end in self.ends.items() if end > log_start}
        if fitting != self.ends:
            self._save(fitting)

    def _save(self, ends: dict[str, int]) -> None:
        is_new = not self._paths[-1].exists()
        for path in self._paths:
            checked_file.save(path, msgspec.json.encode(ends), self._disk)
        if is_new:
            self._disk.sync_folder(self._paths[0].parent)
        self.ends = ends
