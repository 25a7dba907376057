"""The files under `config` that keep topics, groups and offsets across a restart.

The tables live in memory and set `dirty` when they change. Here a table is copied on the loop, then encoded and
written in a thread: even a table of ten thousand topics does not block the loop. docs/spec/store.md 6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from pyromq.errors import NotSaved, StoreError
from pyromq.protocol.bodies import Body
from pyromq.store.metadata.json_files import consumer_offsets_file, groups_file, topics_file

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    """A table that can be saved. Each change sets `dirty`; a snapshot never changes."""

    dirty: bool

    def snapshot(self) -> BodyT: ...

    def load(self, saved: BodyT, /) -> None: ...


class Settings(Table[BodyT], Protocol[BodyT]):
    """A table of settings. A change that cannot be saved is rolled back, and the request for it refused."""

    def writing(self) -> None: ...

    def written(self) -> None: ...

    def take_back(self) -> None: ...


# Called with None once saved, or with the reason why not.
Told = Callable[[Exception | None], None]


class KeptFile(Generic[BodyT]):
    """A file that follows a table: one write at a time, and the newest content is always written last.

    One write serves all who wait for it. A failed write is logged and reported to them; settings then roll their
    changes back, any other table stays dirty until the next `save_soon`.
    """

    def __init__(self, file: BodyFile[BodyT], table: Table[BodyT]) -> None:
        self._file = file
        self._table = table
        self._settings = cast("Settings[BodyT]", table) if hasattr(table, "take_back") else None
        self._writing: asyncio.Future[None] | None = None
        # Callbacks that wait for the write in progress, and for the one after it.
        self._told: list[Told] = []
        self._next: list[Told] = []

    def __repr__(self) -> str:
        return f"<KeptFile {self._file.path}>"

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def was_emptied(self) -> bool:
        """Whether the file existed at the start but was empty, and had no usable `.bak`."""
        return self._file.was_emptied

    def load(self) -> None:
        """Fill the table. StoreError if neither the file nor its `.bak` can be used."""
        self._table.load(self._file.load())

    def write_again(self) -> None:
        """Write the file even though nothing changed: what it holds now is useless."""
        self._table.dirty = True

    def save_soon(self) -> None:
        """Start writing the table if it is dirty. If a write is in progress, another one follows it."""
        if self._writing is None and self._table.dirty:
            self._begin()

    def when_saved(self, told: Told) -> None:
        """Call `told` once all changes so far are safely in the file, or cannot be."""
        self.save_soon()
        if self._writing is None:
            told(None)
        elif self._table.dirty:
            # The write in progress began before the last change.
            self._next.append(told)
        else:
            self._told.append(told)

    async def saved(self) -> None:
        """Return once all changes so far are in the file. NotSaved if they could not be written."""
        outcome: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        def told(error: Exception | None) -> None:
            if not outcome.done():  # nobody was cancelled while waiting
                outcome.set_result(error)

        self.when_saved(told)
        error = await outcome
        if error is not None:
            raise NotSaved(self._file.path.name, error) from error

    def _begin(self) -> None:
        self._table.dirty = False
        if self._settings is not None:
            self._settings.writing()
        self._told, self._next = self._next, []
        writing = asyncio.get_running_loop().run_in_executor(None, self._file.save, self._table.snapshot())
        writing.add_done_callback(self._ended)
        self._writing = writing

    def _ended(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        told, self._told = self._told, []
        error = asyncio.CancelledError() if writing.cancelled() else writing.exception()
        if error is None:
            if self._settings is not None:
                self._settings.written()
        else:
            logger.error("%s not written: %s", self._file.path, error)
            if self._settings is not None:
                self._settings.take_back()
            self._table.dirty = True
        if self._next or (error is None and self._table.dirty):
            # What was rolled back is written by the next `save_soon` at the latest.
            self.save_soon()
        failure = error if error is None or isinstance(error, Exception) else StoreError("the broker is stopping")
        for tell in told:
            tell(failure)


class BrokerState:
    """All kept files of a broker. Call `load` before serving, `run` while serving, `close` afterwards.

    The durability gate saves topics and groups when they change. Offsets change too often for that; they
    are saved every `offset_flush_interval`, along with any other dirty table that has no interval of its own.
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
        """Keep another table here. Call it before `load`.

        `pause` gives the milliseconds between two saves, if they differ from those of the offsets.
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

    def save_soon(self) -> None:
        """Begin to write all that is dirty."""
        for file in self._files:
            file.save_soon()

    async def run(self) -> None:
        """Save dirty tables at their intervals, until cancelled."""
        apart = [file for file, _ in self._pauses]
        others = [file for file in self._files if file not in apart]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_save_often(others, lambda: self._live.config.offset_flush_interval))
            for file, pause in self._pauses:
                tasks.create_task(_save_often([file], pause))

    async def close(self) -> None:
        """Save everything. Once this returns, nothing more is written unless a table changes."""
        for outcome in await asyncio.gather(*(file.saved() for file in self._files), return_exceptions=True):
            # The error was logged already; save the others all the same.
            if isinstance(outcome, BaseException) and not isinstance(outcome, NotSaved):
                raise outcome


async def _save_often(files: Sequence[KeptFile[Any]], pause: Callable[[], int]) -> None:
    while True:
        await asyncio.sleep(pause() / 1000)
        for file in files:
            file.save_soon()
