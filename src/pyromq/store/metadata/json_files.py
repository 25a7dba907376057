"""The files in `config`: topics, groups and offsets in RocketMQ's format.

A file is never half written: the new text is complete and on disk before it gets the name, and the file that had it
before stays as `<name>.bak`. RocketMQ is not that careful, so a reader takes the `.bak` when the file itself is
missing, empty or torn. Members we do not know (from newer versions) are kept when a file is written again.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import logging
import os
import shutil
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import (
    Body,
    ConsumerOffsetTable,
    ConsumerOrderInfoTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from pyromq.protocol.bodies.base import I32, I64, written
from pyromq.protocol.bodies.conversion import convert

from ..disk import Disk
from ..format import CONFIG
from .json_text import Ready, entry, map_of, pretty

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)

_PLAIN = {int, str}

Table = dict[str, Any]
T = TypeVar("T")
BodyT = TypeVar("BodyT", bound=Body)


class JsonFile:
    """One file with one JSON object. One thread at a time; `save` waits for the disk."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._disk = disk or Disk()
        # Whether the file itself can be read; None if not tried yet.
        self._is_sound: bool | None = None
        # Whether `load` found an empty file and no usable `.bak`: something was there once.
        self.was_emptied = False

    def __repr__(self) -> str:
        return f"<JsonFile {self.path}>"

    @property
    def backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    def load(self) -> Table | None:
        """The object in the file, or else in its `.bak`; None if there is neither. Names and integer keys are strings.

        StoreError if both exist and neither can be read.
        """
        return self.load_as(lambda table: table)

    def load_as(self, use: Callable[[Table], T]) -> T | None:
        """As `load`, converted by `use`; a RemoteProtocolError of `use` counts as a torn file."""
        self._is_sound = False
        try:
            value = _read(self.path, use)
        except RemoteProtocolError as exc:
            logger.warning("%s cannot be used: %s; trying %s", self.path, exc, self.backup.name)
        else:
            if value is not None:
                self._is_sound = True
                return value
        try:
            saved = _read(self.backup, use)
        except RemoteProtocolError as exc:
            raise StoreError(f"neither {self.path} nor {self.backup} can be used: {exc}") from exc
        self.was_emptied = saved is None and (self.path.exists() or self.backup.exists())
        return saved

    def save(self, table: Mapping[str, Any]) -> None:
        """Write `table` as JSON; integer keys stand without quotes. StoreError if it cannot be encoded."""
        self.write(self.text(table))

    def text(self, table: Mapping[str, Any]) -> bytes:
        """What `save` would write. StoreError if the table cannot be encoded."""
        try:
            return pretty(table)
        except (TypeError, ValueError, RecursionError) as exc:
            raise StoreError(f"{self.path}: cannot be written as JSON: {exc}") from exc

    def write(self, text: bytes) -> None:
        """Return once `text` is in the file and survives a power failure. OSError leaves the file as it was."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            self._write(temporary, text)
            self._back_up()
            temporary.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._is_sound = True
        self._disk.sync_folder(self.path.parent)

    def _write(self, path: Path, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            with contextlib.suppress(FileNotFoundError):
                # A file that only its owner may read must not become readable for all.
                os.fchmod(fd, self.path.stat().st_mode & 0o777)
            self._disk.write(fd, data, 0)
            self._disk.sync(fd)
        finally:
            os.close(fd)

    def _back_up(self) -> None:
        """Link the file as `.bak`, unless it is torn: then the old `.bak` is all there is."""
        if self._is_sound is None:
            with contextlib.suppress(StoreError):
                self.load()
        if not self._is_sound or not self.path.exists():
            return
        temporary = self.backup.with_name(self.backup.name + ".tmp")
        temporary.unlink(missing_ok=True)
        try:
            os.link(self.path, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(self.path, temporary)
        temporary.replace(self.backup)


def _read(path: Path, use: Callable[[Table], T]) -> T | None:
    """The object in the file, converted by `use`; None if the file is missing or empty."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreError(f"cannot read {path}: {exc.strerror}") from exc
    if not data.strip():
        return None
    table = fastjson.loads(data)
    if not isinstance(table, dict):
        raise RemoteProtocolError("not an object")
    return use(table)


class BodyFile(Generic[BodyT]):
    """A file whose object is also sent to peers as a typed body.

    Members that the body does not know are kept from the file; deleted entries of a map stay deleted.
    """

    def __init__(
        self, path: Path, body_type: type[BodyT], disk: Disk | None = None, *, derived: Collection[str] = ()
    ) -> None:
        """`derived` members follow from others and are dropped when the file is written again."""
        self._file = JsonFile(path, disk)
        self._body_type = body_type
        self._derived = derived
        self._known: Table = {}
        # The entries of maps of bodies, by member and key, as last written: what each was made from, its plain
        # value and its text. Of thousands of topics one changes at a time; the others need not be encoded again.
        self._entries: dict[str, dict[str, tuple[object, Any, str]]] = {}

    def __repr__(self) -> str:
        return f"<BodyFile {self.path}>"

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def was_emptied(self) -> bool:
        """Whether `load` found a file without content, and no `.bak` with any."""
        return self._file.was_emptied

    def load(self) -> BodyT:
        """The body in the file; an empty one if there is no file. StoreError if neither it nor its `.bak` is usable."""
        loaded = self._file.load_as(lambda table: (table, convert(self._body_type, table)))
        self._entries = {}
        if loaded is None:
            self._known = {}
            return self._body_type()
        self._known = {name: value for name, value in loaded[0].items() if name not in self._derived}
        return loaded[1]

    def save(self, body: BodyT) -> None:
        """Return once `body` survives a power failure. OSError leaves the file as it was."""
        self.write(self.text(body))

    def text(self, body: BodyT) -> bytes:
        """What `save` would write. Use it if the tables in `body` may change while a thread writes."""
        known = dict(self._known)
        texts: dict[str, Ready] = {}
        for field in _fields(type(body)):
            name, value = field.encode_name, getattr(body, field.name)
            if name not in known and _is_default(field, value):
                continue
            if isinstance(value, dict) and any(isinstance(item, msgspec.Struct) for item in value.values()):
                known[name], texts[name] = self._written(name, value, known.get(name))
            else:
                known[name] = _merged(value, known.get(name))
        self._known = dict(sorted(known.items()))
        return self._file.text(self._known | texts)

    def _written(self, name: str, value: Mapping[str, Any], known: Any) -> tuple[Table, Ready]:
        """A map of bodies as plain values, and its text."""
        last = self._entries.get(name, {})
        known = known if isinstance(known, dict) else {}
        entries = {}
        for key, item in value.items():
            made = last.get(key)
            if made is None or made[0] is not item:
                plain = _merged(item, known.get(key))
                made = item, plain, entry(plain)
            entries[key] = made
        self._entries[name] = entries
        return {key: made[1] for key, made in entries.items()}, map_of({key: made[2] for key, made in entries.items()})

    def write(self, text: bytes) -> None:
        """As `JsonFile.write`."""
        self._file.write(text)


def _merged(value: Any, known: Any) -> Any:
    """A body as plain values, with the members that only `known` has."""
    if isinstance(value, msgspec.Struct):
        members = dict(known) if isinstance(known, dict) else {}
        for field in _fields(type(value)):
            name, member = field.encode_name, getattr(value, field.name)
            # A member that has its default value is left out, unless it was there before.
            if name in members or not _is_default(field, member):
                members[name] = _merged(member, members.get(name))
        return dict(sorted(members.items()))
    if isinstance(value, dict):
        if set(map(type, value.values())) <= _PLAIN:
            return value.copy()
        known = known if isinstance(known, dict) else {}
        return {key: _merged(item, known.get(key)) for key, item in value.items()}
    return value.value if isinstance(value, enum.Enum) else value


@functools.cache  # asked for every topic of a table, and of few kinds
def _fields(body: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(body)


def _is_default(field: msgspec.structs.FieldInfo, value: object) -> bool:
    """Whether bodies leave out the member when they are sent."""
    if field.default is not msgspec.NODEFAULT:
        return bool(value == field.default)
    return field.default_factory in (dict, list) and not value


# The files


class BloomFilterData(Body, frozen=True, kw_only=True):
    """The bits that stand for a consumer group in the bitmaps of a topic, and how many bits a bitmap has."""

    bit_num: I32 = written(0)
    bit_pos: list[I32] = written([])


class ConsumerFilter(Body, frozen=True, kw_only=True):
    """The filter of a consumer group on a topic; `dead_time` is 0 while it lives. Times are in milliseconds."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: I64 = written(0)
    client_version: I64 = written(0)
    consumer_group: str
    dead: bool = written(False)
    dead_time: I64 = written(0)
    expression: str | None = None
    expression_type: str | None = None
    topic: str


class TopicFilters(Body, frozen=True, kw_only=True):
    group_filter_data: dict[str, ConsumerFilter] = written({})
    topic: str


class ConsumerFilterTable(Body, frozen=True, kw_only=True):
    """consumerFilter.json."""

    filter_data_by_topic: dict[str, TopicFilters] = written({})


def topics_file(root: Path, disk: Disk | None = None) -> BodyFile[TopicConfigSerializeWrapper]:
    return BodyFile(root / CONFIG / "topics.json", TopicConfigSerializeWrapper, disk)


def groups_file(root: Path, disk: Disk | None = None) -> BodyFile[SubscriptionGroupWrapper]:
    return BodyFile(root / CONFIG / "subscriptionGroup.json", SubscriptionGroupWrapper, disk)


def consumer_offsets_file(root: Path, disk: Disk | None = None) -> BodyFile[ConsumerOffsetTable]:
    return BodyFile(root / CONFIG / "consumerOffset.json", ConsumerOffsetTable, disk, derived=("groupTopicMap",))


def delay_offsets_file(root: Path, disk: Disk | None = None) -> BodyFile[DelayOffsetTable]:
    return BodyFile(root / CONFIG / "delayOffset.json", DelayOffsetTable, disk)


def consumer_filters_file(root: Path, disk: Disk | None = None) -> BodyFile[ConsumerFilterTable]:
    return BodyFile(root / CONFIG / "consumerFilter.json", ConsumerFilterTable, disk)


def pop_orders_file(root: Path, disk: Disk | None = None) -> BodyFile[ConsumerOrderInfoTable]:
    return BodyFile(root / CONFIG / "consumerOrderInfo.json", ConsumerOrderInfoTable, disk)


def request_modes_file(root: Path, disk: Disk | None = None) -> BodyFile[MessageRequestModeTable]:
    return BodyFile(root / CONFIG / "messageRequestMode.json", MessageRequestModeTable, disk)
