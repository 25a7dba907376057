"""Combine the sources of settings, and remember where each value came from.

The last one wins: defaults, the properties file, variables `PYROMQ_<UPPER_SNAKE>`, `--set key=value`, bare `key=value`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyromq.errors import ConfigError

from . import properties
from .options import Option, options_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

T = TypeVar("T")

DEFAULT = "default"
_PREFIX = "PYROMQ_"
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_HIDDEN = "******"


class Assignment(NamedTuple):
    """A key, its text, and its source: `broker.conf:12`, `--set`, `environment PYROMQ_LISTEN_PORT`."""

    key: str
    text: str
    source: str


class Update(NamedTuple):
    """The result of changing running settings."""

    settings: Settings
    changed: list[str]  # keys with a new value
    at_restart: list[str]  # those that the running server does not read again
    without_effect: list[str]  # those that nothing ever reads
    ignored: list[str]  # unknown keys


def environment_name(key: str) -> str:
    """The variable for a key: brokerIP1 -> PYROMQ_BROKER_IP1, tls.server.keyPath -> PYROMQ_TLS_SERVER_KEY_PATH."""
    return _PREFIX + _WORD_START.sub("_", key).replace(".", "_").replace("-", "_").upper()


def read_file(path: Path) -> list[Assignment]:
    """The assignments of a properties file. ConfigError if it cannot be read or is malformed."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", str(path)) from exc
    entries = properties.parse(properties.decode(data), str(path))
    return [Assignment(key, value, f"{path}:{line}") for key, value, line in entries]


class Settings:
    """Several config objects loaded together. Immutable: a change makes a new one.

    A key that no config declares is kept, listed and written back, since the same file may serve a newer
    version or another program; `notices` lists these keys.
    """

    __slots__ = ("_configs", "_sources", "unknown")

    def __init__(
        self, configs: Iterable[object], sources: Mapping[str, str], unknown: Mapping[str, Assignment]
    ) -> None:
        self._configs = tuple(configs)
        self._sources = dict(sources)
        self.unknown = dict(unknown)

    @classmethod
    def of(cls, *configs: object) -> Settings:
        """Settings made in code. Values that differ from the default have the origin `code`."""
        sources = {
            option.key: "code"
            for config in configs
            for option in options_of(type(config))
            if getattr(config, option.name) != getattr(type(config)(), option.name)
        }
        return cls(configs, sources, {})

    @classmethod
    def load(
        cls,
        *configs: type,
        file: Path | None = None,
        environ: Mapping[str, str] | None = None,
        sets: Iterable[str] = (),
        arguments: Iterable[str] = (),
    ) -> Settings:
        """Read all sources. ConfigError names the source of the first malformed value."""
        assignments = read_file(file) if file is not None else []
        assignments += _from_environment(configs, environ or {})
        assignments += _from_arguments(sets, "--set")
        assignments += _from_arguments(arguments, "argument")
        defaults = cls([config() for config in configs], {}, {})
        last = {assignment.key: assignment for assignment in assignments}
        return defaults._with(last.values())

    def __getitem__(self, config: type[T]) -> T:
        for value in self._configs:
            if type(value) is config:
                return value
        raise KeyError(config.__name__)

    def kind_of(self, config: type[T]) -> T:
        """The config of this class or of one derived from it: servers have defaults of their own."""
        for value in self._configs:
            if isinstance(value, config):
                return value
        raise KeyError(config.__name__)

    def origin(self, key: str) -> str:
        """Where the value of a key came from."""
        return self._sources.get(key, DEFAULT)

    def value(self, key: str) -> str | None:
        """The value of a key as text, or None for an unknown key."""
        return dict(self.items()).get(key)

    def items(self, *, reveal: bool = True) -> list[tuple[str, str]]:
        """Every key with its value as text, including unknown ones, sorted by key."""
        items = {key: assignment.text for key, assignment in self.unknown.items()}
        for option, value in self._values():
            hidden = option.secret and value and not reveal
            items[option.key] = _HIDDEN if hidden else option.text(value)
        return sorted(items.items())

    def listing(self) -> str:
        """A line `key=value  # origin` for each key, for `--print-config`."""
        idle = {option.key for option, _ in self._values() if option.no_effect}
        return "".join(
            f"{line}  # {self.origin(key)}{'; no effect' if key in idle else ''}\n"
            for key, value in self.items(reveal=False)
            for line in properties.dump([(key, value)]).splitlines()
        )

    def notices(self, *, shared_with: Settings | None = None) -> list[str]:
        """A sentence for each key that no config declares, with the known key it resembles most.

        And one for each setting without effect whose value is not the default. A second server in this process may
        read the same file, and know the keys that this one does not.
        """
        known = {option.key for option, _ in self._values()}
        if shared_with is not None:
            known |= {option.key for option, _ in shared_with._values()}
        unknown = [
            f"{assignment.source}: unknown setting {key}" + resembling(key, known)
            for key, assignment in self.unknown.items()
            if key not in known
        ]
        return unknown + [f"{self.origin(option.key)}: {option.why_no_effect}" for option in self._set_without_effect()]

    def unknown_key(self, key: str) -> str:
        """A sentence that says that no config declares `key`, with the known key it resembles most."""
        return f"unknown setting {key}" + resembling(key, {option.key for option, _ in self._values()})

    def why_no_effect(self, key: str) -> str:
        """A sentence on a setting without effect."""
        return next(option.why_no_effect for option, _ in self._values() if option.key == key)

    def _set_without_effect(self) -> list[Option]:
        return [
            option
            for config in self._configs
            for option in options_of(type(config))
            if option.no_effect and getattr(config, option.name) != getattr(type(config)(), option.name)
        ]

    def updated(self, assignments: Iterable[Assignment]) -> Update:
        """Apply a change to running settings: all of it, or ConfigError and none of it.

        An unknown key is ignored, as in RocketMQ: a typo must not end up in the file.
        """
        known = dict(self.items())
        shown = dict(self.items(reveal=False))
        # Sending back a listing must not replace a password by its stars.
        wanted = {
            assignment.key: assignment
            for assignment in assignments
            if assignment.text != _HIDDEN or shown.get(assignment.key) != _HIDDEN
        }
        settings = self._with(assignment for key, assignment in wanted.items() if key in known)
        now = dict(settings.items())
        changed = [key for key in wanted if key in known and now[key] != known[key]]
        hot = {option.key for option, _ in self._values() if option.hot}
        idle = {option.key for option, _ in self._values() if option.no_effect}
        return Update(
            settings,
            changed,
            at_restart=[key for key in changed if key not in hot | idle and key not in self.unknown],
            without_effect=[key for key in changed if key in idle],
            ignored=[key for key in wanted if key not in known],
        )

    def with_config(self, config: object) -> Settings:
        """The same settings with one config object replaced by another of its type, from the same origins."""
        configs = (config if type(each) is type(config) else each for each in self._configs)
        return Settings(configs, self._sources, self.unknown)

    def _values(self) -> list[tuple[Option, Any]]:
        return [
            (option, getattr(config, option.name)) for config in self._configs for option in options_of(type(config))
        ]

    def _with(self, assignments: Iterable[Assignment]) -> Settings:
        given = {assignment.key: assignment for assignment in assignments}
        configs = [_replaced(config, given) for config in self._configs]
        known = {option.key for option, _ in self._values()}
        sources = self._sources | {key: assignment.source for key, assignment in given.items()}
        unknown = self.unknown | {key: assignment for key, assignment in given.items() if key not in known}
        return Settings(configs, sources, unknown)


def _replaced(config: Any, given: Mapping[str, Assignment]) -> Any:
    changes = {
        option.name: _parsed(option, given[option.key]) for option in options_of(type(config)) if option.key in given
    }
    return dataclasses.replace(config, **changes)


def _parsed(option: Option, assignment: Assignment) -> Any:
    try:
        return option.parse(assignment.text)
    except ValueError as exc:
        raise ConfigError(str(exc), assignment.source) from exc


def _from_environment(configs: Iterable[type], environ: Mapping[str, str]) -> list[Assignment]:
    # Look up known names only: other variables with our prefix belong to other commands.
    names = {option.key: environment_name(option.key) for config in configs for option in options_of(config)}
    return [Assignment(key, environ[name], f"environment {name}") for key, name in names.items() if name in environ]


def _from_arguments(pairs: Iterable[str], source: str) -> list[Assignment]:
    assignments = []
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"expected key=value, not {pair!r}", source)
        assignments.append(Assignment(key.strip(), text, source))
    return assignments


def resembling(key: str, known: Iterable[str]) -> str:
    # Compare in lower case: a wrong capital is the most common mistake.
    by_lower = {name.lower(): name for name in known}
    nearest = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.75)
    return f"; did you mean {by_lower[nearest[0]]}?" if nearest else ""
