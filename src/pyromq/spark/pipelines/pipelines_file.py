"""A YAML file with several pipelines, checked as a whole before anything starts; errors name their lines.

    name: orders-lake
    cluster: {namesrv: "ns1:9876;ns2:9876", credentials: "env:MQ"}
    lake: {root: "s3://lake/mq", format: delta, options: {aws_secret_access_key: "env:S3_SECRET"}}
    state: /var/lib/orders-lake
    pipelines:
      - archive: {topics: [orders, "pay_.*"], every: 5m}
      - audit: {topics: [orders], every: 1h}

Values keep the text of the file, so 010 or 5m mean what the setting makes of them, not what YAML does. In `cluster` and
`lake`, env:NAME stands for a variable of the environment; a secret can only be given like this. Relative paths start at
the folder of the file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

from .. import options as known
from ..option_values import declared
from .near import nearest
from .settings import KINDS, parse_setting, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .settings import AnySettings

_TOP = ("name", "cluster", "lake", "state", "pipelines")
_LAKE = ("root", "format", "options")
_FORMATS = ("delta", "iceberg")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_SECRET = re.compile(r"secret|password|token|account_?key|sas|credential", re.IGNORECASE)
_ENV = "env:"


@dataclass(frozen=True, slots=True)
class LakePlace:
    """Where the tables are. `options` go to the storage; they may hold secrets, so nothing shows them."""

    root: str
    format: str | None = None  # delta; or iceberg, if a catalog is among the options
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One pipeline of a file."""

    kind: str
    settings: AnySettings
    line: int


@dataclass(frozen=True, slots=True)
class PipelinesFile:
    """A file as it was checked. `connection` are options of the format `rocketmq`."""

    name: str
    connection: Mapping[str, str] = field(repr=False)
    lake: LakePlace | None
    state: Path
    folder: Path
    entries: tuple[Entry, ...]


def read_pipelines(path: Path, *, namesrv: str | None = None, environ: Mapping[str, str] = os.environ) -> PipelinesFile:
    """Read and check a file. Raises ConfigError with a line for everything that is wrong with it.

    `namesrv` is asked if the file names none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from exc
    return _Reader(path, environ).read(text, namesrv)


class _Reader:
    """Walks the nodes of a file and collects what is wrong."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = environ
        self._wrong: list[tuple[int, str]] = []

    def read(self, text: str, namesrv: str | None) -> PipelinesFile:
        import yaml

        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as exc:
            mark = exc.problem_mark or exc.context_mark
            raise ConfigError(f"{self._path}:{mark.line + 1 if mark else 1}: {exc.problem or exc.context}") from None
        except yaml.YAMLError as exc:
            raise ConfigError(f"{self._path}: {' '.join(str(exc).split())}") from None
        if root is None:
            raise ConfigError(f"{self._path}: the file is empty")
        top = dict(self._mapping(root, "the file", _TOP))
        name = self._name(top.get("name"))
        connection = self._connection(top.get("cluster"), namesrv)
        lake = self._lake(top.get("lake"))
        state = self._folder(top.get("state")) or self._path.with_name(f"{self._path.stem}.state")
        entries = tuple(self._entries(top.get("pipelines"), root))
        self._check_whole(entries, lake)
        if self._wrong:
            raise ConfigError("\n".join(f"{self._path}:{line}: {what}" for line, what in sorted(self._wrong)))
        assert connection is not None
        return PipelinesFile(name, connection, lake, state, self._path.parent.absolute(), entries)

    # Nodes

    def _complain(self, node: Any, what: str) -> None:
        self._wrong.append((node.start_mark.line + 1, what))

    def _mapping(self, node: Any, what: str, keys: tuple[str, ...] | None = None) -> Iterator[tuple[str, Any]]:
        """The keys and value nodes of a mapping; complains about anything else, and about keys not in `keys`."""
        if node.id != "mapping":
            self._complain(node, f"{what} must be a mapping (key: value)")
            return
        seen: set[str] = set()
        for key, value in node.value:
            if key.id != "scalar":
                self._complain(key, f"{what}: a key must be a word")
            elif key.value in seen:
                self._complain(key, f"{what}: {key.value} is given twice")
            elif keys is not None and key.value not in keys:
                self._complain(key, f"unknown key {key.value}{nearest(key.value, keys)}")
            else:
                seen.add(key.value)
                yield key.value, value

    def _scalar(self, node: Any, what: str) -> str | None:
        if node.id != "scalar":
            self._complain(node, f"{what} must be one value")
            return None
        if node.tag.endswith(":null"):
            self._complain(node, f"{what} has no value")
            return None
        return str(node.value)

    def _value(self, node: Any, what: str) -> str | list[str] | None:
        """A value, or a list of them."""
        if node.id != "sequence":
            return self._scalar(node, what)
        found = [self._scalar(each, what) for each in node.value]
        return [each for each in found if each is not None] if None not in found else None

    def _looked_up(self, node: Any, key: str) -> str | None:
        """A value that may stand in the environment."""
        value = self._scalar(node, key)
        if value is None or not value.startswith(_ENV):
            return value
        name = value.removeprefix(_ENV)
        if name not in self._environ:
            self._complain(node, f"{key}: the environment has no variable {name}")
            return None
        return self._environ[name]

    # Parts

    def _name(self, node: Any) -> str:
        found = self._path.stem if node is None else self._scalar(node, "name")
        if found is None:
            return ""
        if not _NAME.fullmatch(found) and node is not None:
            self._complain(node, "name must be letters, digits, '.', '_' or '-'; folders are named after it")
        return found

    def _connection(self, node: Any, namesrv: str | None) -> dict[str, str] | None:
        infos = {info.key: info for _, info in declared(known.ConnectionOptions)}
        given: dict[str, str] = {}
        lines: dict[str, Any] = {}
        for key, value in () if node is None else self._mapping(node, "cluster", tuple(infos)):
            if infos[key].secret:
                self._complain(value, f"{key} does not belong into a file; use credentials: env:PREFIX or file:PATH")
                continue
            text = self._scalar(value, key) if key == "credentials" else self._looked_up(value, key)
            if text is not None:
                given[key], lines[key] = text, value
        if "namesrv" not in given and namesrv:
            given["namesrv"] = namesrv
        before = len(self._wrong)
        for key, text in given.items():
            try:
                infos[key].parse(text)
            except ValueError as exc:
                self._complain(lines[key], f"{key} must be {exc}, not {text[:80]!r}")
        if len(self._wrong) == before:
            try:
                known.parse(known.ConnectionOptions, given)
            except ConfigError as exc:
                if node is None:
                    self._wrong.append((1, f"cluster is missing: {exc}"))
                else:
                    self._complain(node, f"cluster: {exc}")
        return given

    def _lake(self, node: Any) -> LakePlace | None:
        if node is None:
            return None
        parts = dict(self._mapping(node, "lake", _LAKE))
        root = self._looked_up(parts["root"], "root") if "root" in parts else None
        if "root" not in parts and node.id == "mapping":
            self._complain(node, "lake: root is missing")
        kind = self._scalar(parts["format"], "format") if "format" in parts else None
        if kind is not None and kind not in _FORMATS:
            self._complain(parts["format"], f"format must be one of {', '.join(_FORMATS)}, not {kind!r}")
        options: dict[str, str] = {}
        for key, value in self._mapping(parts["options"], "options") if "options" in parts else ():
            if _SECRET.search(key) and value.id == "scalar" and not str(value.value).startswith(_ENV):
                self._complain(value, f"{key} looks like a secret; put it into the environment and write env:NAME")
                continue
            # The storage looks credentials up itself, where it needs them.
            found = self._scalar(value, key) if key == "credentials" else self._looked_up(value, key)
            if found is not None:
                options[key] = found
        return LakePlace(in_folder(root, self._path.parent.absolute()), kind, options) if root else None

    def _folder(self, node: Any) -> Path | None:
        found = None if node is None else self._scalar(node, "state")
        return None if found is None else self._path.parent / found

    def _entries(self, node: Any, root: Any) -> Iterator[Entry]:
        if node is None:
            self._complain(root, "pipelines is missing")
            return
        if node.id != "sequence" or not node.value:
            self._complain(node, "pipelines must be a list: - archive: {…}")
            return
        for each in node.value:
            for kind, value in self._mapping(each, "a pipeline", tuple(KINDS)):
                settings = self._settings(kind, value)
                if settings is not None:
                    yield Entry(kind, settings, value.start_mark.line + 1)
            if each.id == "mapping" and len(each.value) > 1:
                self._complain(each.value[1][0], "one pipeline in each item of the list; begin the next with '-'")

    def _settings(self, kind: str, node: Any) -> AnySettings | None:
        cls = KINDS[kind]
        infos = {info.key: (attribute, info) for attribute, info in declared(cls)}
        before = len(self._wrong)
        values: dict[str, Any] = {}
        for key, value in self._mapping(node, kind):
            if key not in infos:
                # Where the key stands, which is before its value.
                self._complain(value, f"{kind}: {unknown(key, cls)}")
                continue
            attribute, info = infos[key]
            given = self._value(value, key)
            if given is not None:
                try:
                    values[attribute] = parse_setting(info, given)
                except ConfigError as exc:
                    self._complain(value, f"{kind}: {exc}")
        if len(self._wrong) > before:
            return None
        made: AnySettings = cls(**values)
        try:
            made.check()
        except ConfigError as exc:
            self._complain(node, f"{kind}: {exc}")
            return None
        return made

    def _check_whole(self, entries: tuple[Entry, ...], lake: LakePlace | None) -> None:
        names: dict[str, int] = {}
        for entry in entries:
            if lake is None and needs_lake(entry.kind, entry.settings) and not self._wrong:
                self._wrong.append((entry.line, f"{entry.kind} needs a lake: add lake: {{root: …}}"))
            name = name_of(entry.kind, entry.settings)
            if name in names:
                self._wrong.append(
                    (entry.line, f"{entry.kind}: name {name} is taken by line {names[name]}; give it another name")
                )
            names.setdefault(name, entry.line)


def needs_lake(kind: str, settings: Any) -> bool:
    return (
        kind == "archive"
        or (kind == "replay" and settings.source != "topic")
        or (kind == "audit" and bool(settings.topics))
    )


def name_of(kind: str, settings: Any) -> str:
    """The name of a pipeline: given, or made of what it does. A folder may be named after it."""
    if settings.name:
        return str(settings.name)
    match kind:
        case "transform":
            return f"transform-{settings.from_}-{settings.to}"
        case "replay":
            return f"replay-{settings.from_.replace('%', '')}-{settings.to or 'origin'}"
        case "archive" | "audit":
            about = settings.topics or (settings.out_topic,)
            return f"{kind}-{re.sub('[^A-Za-z0-9_-]+', '', about[0])}{'-and-more' if len(about) > 1 else ''}"
        case _:
            return kind


def in_folder(place: str, folder: Path) -> str:
    """A path as seen from `folder`; URLs stay as they are."""
    return place if "://" in place else str(folder / place)
