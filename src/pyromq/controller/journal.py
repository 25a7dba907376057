"""Decisions in a file of this machine, for a controller that runs alone.

    8f3a2b1c {"n":0,"journal":"pyromq controller 1"}
    5d0c77e1 {"n":12,"group":{"cluster":"c","name":"broker-a","members":{"1":{…}},"nextId":2,…}}
    91b2aa04 {"n":13,"event":{"eventType":"ELECT_MASTER_EVENT","brokerName":"broker-a",…},"masterEpoch":2,"setEpoch":5}

One line each: the CRC-32 of the JSON, and the JSON. Events follow in order, numbered by `n`, with the epochs that they
led to. A compacted file begins with the groups as they were then. A line is on disk before its decision is told, and
the next is written after that; so only the last line can be incomplete, and then nobody was told of it. Any other
damage refuses the start: if epochs began again at 1, brokers would ignore this controller or, worse, believe it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import zlib
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from pyromq.errors import ConfigError, NotDecided
from pyromq.settings.files import sync_folder

from .replicas import AnyEvent, Event, Group, apply, epochs, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from .decisions import Peer

logger = logging.getLogger(__name__)

T = TypeVar("T")

FORMAT = "pyromq controller 1"
# Events beyond this many, and four per group, are replaced by the groups they led to.
_MANY_EVENTS = 1000


class _Line(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    n: int
    journal: str | None = None
    group: Group | None = None
    event: AnyEvent | None = None
    master_epoch: int | None = None
    set_epoch: int | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


class _Waiting(NamedTuple):
    event: Event
    after: Group | None
    done: asyncio.Future[Group | None]


class Journal:
    """Keeps decisions in `folder`. This controller is the only one, so it leads as long as it runs."""

    def __init__(self, folder: Path, me: Peer) -> None:
        self.led: Callable[[], None] | None = None
        self._file = JournalFile(folder)
        self._me = me
        self._groups: dict[str, Group] = {}
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue()
        # Groups with a decision that is not yet durable.
        self._under_way: set[str] = set()
        self._running = False

    @property
    def groups(self) -> Mapping[str, Group]:
        return self._groups

    @property
    def is_leader(self) -> bool:
        return self._running

    @property
    def leader(self) -> Peer | None:
        return self._me if self._running else None

    @property
    def peers(self) -> Sequence[Peer]:
        return [self._me]

    async def decide(self, event: Event) -> Group | None:
        name = event.broker_name
        if not self._running:
            raise NotDecided("the controller is stopping")
        if name in self._under_way:
            raise NotDecided(f"another decision on {name} is under way")
        done: asyncio.Future[Group | None] = asyncio.get_running_loop().create_future()
        # Nobody may be left to see how it ended.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._under_way.add(name)
        self._waiting.put_nowait(_Waiting(event, event.applied_to(self._groups.get(name)), done))
        return await asyncio.shield(done)

    async def run(self, ready: Callable[[], None]) -> None:
        try:
            self._groups = await _to_the_end(self._file.open)
            self._running = True
            if self.led is not None:
                self.led()
            ready()
            while True:
                await self._keep(await self._waiting.get())
        finally:
            self._running = False
            while not self._waiting.empty():
                self._waiting.get_nowait().done.set_exception(NotDecided("the controller is stopping"))
            self._file.close()

    async def _keep(self, waiting: _Waiting) -> None:
        event, after, done = waiting
        try:
            await _to_the_end(self._file.append, event, after, self._groups)
        except OSError as exc:
            logger.error("%s not written: %s; the decision is not made", self._file.path, exc.strerror)
            done.set_exception(NotDecided(f"the decision could not be saved: {exc.strerror}"))
        else:
            put(self._groups, event.broker_name, after)
            done.set_result(after)
        finally:
            if not done.done():
                done.set_exception(NotDecided("the controller is stopping"))
            self._under_way.discard(event.broker_name)


class JournalFile:
    """The file itself. Blocking; one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"
        self._file = -1
        self._lock = -1
        self._end = 0
        self._n = 0
        self._events = 0
        # After a failed sync nobody knows what is on disk, so the file is written anew before anything else.
        self._unsure = False

    def open(self) -> dict[str, Group]:
        """Read what was decided. ConfigError if another process uses the file, or it cannot be trusted."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_it()
            groups: dict[str, Group] = {}
            if not self.path.exists():
                self._rewrite(groups)
                logger.info("new journal %s", self.path)
                return groups
            content = self.path.read_bytes()
            if not content:
                raise self._damaged("(it is empty)")
            self._end = self._replay(content, groups)
            self._file = os.open(self.path, os.O_RDWR)
            if self._end < len(content):
                dropped = len(content) - self._end
                logger.warning(
                    "%s ends in %d bytes of a decision that nobody was told; cutting them off", self.path, dropped
                )
                os.ftruncate(self._file, self._end)
                os.fsync(self._file)
        except OSError as exc:
            raise ConfigError(f"{exc.filename or self.path} cannot be used: {exc.strerror}") from exc
        logger.info("journal %s read groups=%d decisions=%d", self.path, len(groups), self._n)
        return groups

    def append(self, event: Event, after: Group | None, groups: Mapping[str, Group]) -> None:
        """Write an event that led to `after`; it is on disk when this returns. OSError leaves everything as it was.

        `groups` are those before the event, in case the file has to be written anew.
        """
        if self._unsure:
            self._rewrite(groups)
        elif self._events >= _MANY_EVENTS + 4 * len(groups):
            self._compact(groups)
        master_epoch, set_epoch = (after.master_epoch, after.set_epoch) if after is not None else (0, 0)
        line = _text(_Line(n=self._n + 1, event=event, master_epoch=master_epoch, set_epoch=set_epoch))  # type: ignore[arg-type]  # every event is one of AnyEvent
        try:
            _write(self._file, line, self._end)
        except OSError:
            # Not synced, so it may be taken back.
            self._unsure = True
            os.ftruncate(self._file, self._end)
            self._unsure = False
            raise
        try:
            os.fsync(self._file)
        except OSError:
            self._unsure = True
            raise
        self._end += len(line)
        self._n += 1
        self._events += 1

    def close(self) -> None:
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def _lock_it(self) -> None:
        self._lock = os.open(self.path.with_name("lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{self.path.parent} is used by another controller") from None

    def _replay(self, content: bytes, groups: dict[str, Group]) -> int:
        """Apply the lines to `groups`; returns where the last whole one ends."""
        end = 0
        for number, line in _lines(content):
            try:
                if number == 1:
                    self._n = _begun(line)
                else:
                    self._take(line, groups)
            except ValueError as exc:
                # What was being written when the power failed: cut short, or with blocks that never came.
                torn = end + len(line) == len(content) and (not line.endswith(b"\n") or b"\0" in line)
                if number == 1 or not torn:
                    raise self._damaged(f"in line {number}: {exc}") from None
                return end
            end += len(line)
        return end

    def _damaged(self, how: str) -> ConfigError:
        return ConfigError(
            f"{self.path} is damaged {how}. Restore it from a copy. Without it, epochs would begin again at 1, and "
            "brokers ignore a controller whose epochs are smaller than theirs"
        )

    def _take(self, line: bytes, groups: dict[str, Group]) -> None:
        """Apply one line. ValueError if it cannot be what was written."""
        said = _parsed(line)
        if said.n != self._n + (said.event is not None):
            raise ValueError(f"decision {said.n} follows decision {self._n}")
        if said.group is not None:
            groups[said.group.name] = said.group
        elif said.event is not None:
            apply(groups, said.event)
            found = epochs(groups, said.event.broker_name)
            if found != (said.master_epoch, said.set_epoch):
                raise ValueError(f"it leads to epochs {found}, not {said.master_epoch} and {said.set_epoch}")
            self._n = said.n
            self._events += 1
        else:
            raise ValueError("it says nothing")

    def _compact(self, groups: Mapping[str, Group]) -> None:
        try:
            self._rewrite(groups)
        except OSError as exc:
            logger.warning("%s not compacted: %s; it grows on", self.path, exc.strerror)
        else:
            logger.info("%s compacted groups=%d bytes=%d", self.path, len(groups), self._end)
        self._events = 0

    def _rewrite(self, groups: Mapping[str, Group]) -> None:
        """Put a new file in the place of the old one, which stays if this fails."""
        lines = [_Line(n=self._n, journal=FORMAT), *(_Line(n=self._n, group=group) for group in groups.values())]
        content = b"".join(map(_text, lines))
        new = self.path.with_name("journal.new")
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write(descriptor, content, 0)
            os.fsync(descriptor)
            new.replace(self.path)
            old, self._file = self._file, descriptor
            descriptor = old
            self._end, self._events = len(content), 0
            self._unsure = True
            sync_folder(self.path.parent)
            self._unsure = False
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _text(line: _Line) -> bytes:
    content = _encode(line)
    return b"%08x %b\n" % (zlib.crc32(content), content)


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Each line with its number and its end."""
    *whole, last = content.split(b"\n")
    return enumerate([*(line + b"\n" for line in whole), *([last] if last else [])], 1)


def _parsed(line: bytes) -> _Line:
    crc, _, content = line.removesuffix(b"\n").partition(b" ")
    if not line.endswith(b"\n"):
        raise ValueError("the line is incomplete")
    if crc != b"%08x" % zlib.crc32(content):
        raise ValueError("the checksum does not fit")
    return _decode(content)


def _begun(line: bytes) -> int:
    """The number of the last decision before this file. ValueError if the line is not a first one."""
    said = _parsed(line)
    if said.journal is None:
        raise ValueError("no journal begins like this")
    if said.journal != FORMAT:
        raise ValueError(f"its format is {said.journal!r}, not {FORMAT!r}")
    return said.n


def _write(descriptor: int, content: bytes, position: int) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(descriptor, left, position)
        position += written
        left = left[written:]


async def _to_the_end(work: Callable[..., T], *arguments: object) -> T:
    """Do blocking work in a thread; a cancelled caller waits for its end, since it cannot be stopped."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await task
        raise
