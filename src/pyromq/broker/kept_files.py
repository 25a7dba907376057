"""What the broker remembers over a restart besides messages: topics, groups and offsets, in files under `config`.

The tables live in memory and say by `dirty` that they changed. Here a table is copied on the loop, and made a text and
written in a thread: a table of ten thousand topics is then no pause for anybody. docs/spec/store.md 6.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyromq.protocol.bodies import Body
from pyromq.store.metadata.json_files import consumer_offsets_file, groups_file, topics_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyromq.store.disk import Disk
    from pyromq.store.metadata.json_files import BodyFile

    from .config import LiveConfig
    from .groups import GroupTable
    from .offsets.consumer_offsets import ConsumerOffsets
    from .topics import TopicTable

logger = logging.getLogger(__name__)

BodyT = TypeVar("BodyT", bound=Body)


class Table(Protocol[BodyT]):
    """A table that can be saved. `dirty` is set by each change; a snapshot does not change any more."""

    dirty: bool

    def snapshot(self) -> BodyT: ...

    def load(self, saved: BodyT, /) -> None: ...


class KeptFile(Generic[BodyT]):
    """A file that follows a table: at most one write at a time, and the newest content is the last to be written.

    A write that fails is logged, not raised, and the table stays dirty: what was asked for is in effect, and the next
    `save_soon` tries again.
    """

    def __init__(self, file: BodyFile[BodyT], table: Table[BodyT]) -> None:
        self._file = file
        self._table = table
        self._writing: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<KeptFile {self._file.path}>"

    def load(self) -> None:
        """Fill the table. StoreError if neither the file nor its `.bak` can be used."""
        self._table.load(self._file.load())

    def save_soon(self) -> None:
        """Begin to write the table if it is dirty. If a write is under way, that is followed by another one."""
        if self._writing is None and self._table.dirty:
            self._begin()

    async def saved(self) -> None:
        """Return once all changes until now are in the file, surviving a power failure, or could not be written."""
        self.save_soon()
        # The write under way may have begun before the last change; the one after it has not.
        for _ in range(2):
            if self._writing is None:
                return
            await asyncio.wait([self._writing])

    def _begin(self) -> None:
        self._table.dirty = False
        writing = asyncio.get_running_loop().run_in_executor(None, self._file.save, self._table.snapshot())
        writing.add_done_callback(self._ended)
        self._writing = writing

    def _ended(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = writing.exception()
        if error is None:
            self.save_soon()
        else:
            logger.error("%s not written: %s; trying again", self._file.path, error)
            self._table.dirty = True


class BrokerState:
    """All kept files of a broker. `load` before anything is served, `run` while it is, `close` when it is not any more.

    Topics and groups are saved when they change: `topics_changed` and `groups_changed` are to be called then. Offsets,
    of which there are too many changes, are saved every `offset_flush_interval`, with whatever else is still dirty and
    has no pause of its own.
    """

    def __init__(
        self,
        root: Path,
        live: LiveConfig,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        disk: Disk | None = None,
    ) -> None:
        self._live = live
        self.topics = KeptFile(topics_file(root, disk), topics)
        self.groups = KeptFile(groups_file(root, disk), groups)
        self.offsets = KeptFile(consumer_offsets_file(root, disk), offsets)
        self._files: list[KeptFile[Any]] = [self.topics, self.groups, self.offsets]
        self._pauses: list[tuple[KeptFile[Any], Callable[[], int]]] = []

    def keep(
        self, file: BodyFile[BodyT], table: Table[BodyT], pause: Callable[[], int] | None = None
    ) -> KeptFile[BodyT]:
        """Let another table have its file here. To be called before `load`.

        `pause` gives the milliseconds between two savings, where they are not those of the offsets.
        """
        kept = KeptFile(file, table)
        self._files.append(kept)
        if pause is not None:
            self._pauses.append((kept, pause))
        return kept

    def load(self) -> None:
        """Fill all tables. StoreError if a file cannot be used and has no `.bak` that can."""
        for file in self._files:
            file.load()

    def topics_changed(self, topic: str | None = None) -> None:
        self.topics.save_soon()

    def groups_changed(self, group: str | None = None) -> None:
        self.groups.save_soon()

    async def run(self) -> None:
        """Save what is dirty every now and then, until cancelled."""
        apart = [file for file, _ in self._pauses]
        others = [file for file in self._files if file not in apart]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_save_often(others, lambda: self._live.config.offset_flush_interval))
            for file, pause in self._pauses:
                tasks.create_task(_save_often([file], pause))

    async def close(self) -> None:
        """Save everything. Nothing is written any more once this returns, if the tables do not change either."""
        await asyncio.gather(*(file.saved() for file in self._files))


async def _save_often(files: Sequence[KeptFile[Any]], pause: Callable[[], int]) -> None:
    while True:
        await asyncio.sleep(pause() / 1000)
        for file in files:
            file.save_soon()
