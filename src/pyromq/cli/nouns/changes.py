"""Rows that report changes, and the settings of running servers, shown and compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyromq.admin.listing import Listing

from ..failures import CommandFailed, Exit, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyromq.client.admin.fan_out import Missing

    from ..session import Session

Settings = dict[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """What changed for `name` on one server."""

    name: str
    change: str
    where: str


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One server's setting, before and after."""

    server: str
    key: str
    before: str | None
    after: str | None


def changes(name: str, change: str, places: Iterable[str]) -> Listing[Change]:
    return Listing.make(Change, (Change(name, change, place) for place in places))


# Settings of brokers and name servers


@dataclass(frozen=True, slots=True)
class Setting:
    key: str
    value: str
    server: str


def shown(
    configs: Mapping[str, Settings], keys: Iterable[str] = (), missing: Iterable[Missing] = ()
) -> Listing[Any] | Settings:
    """All settings of these servers, or some; a single server's as one record."""
    wanted = list(keys)
    for key in wanted:
        known = {each for config in configs.values() for each in config}
        if key not in known:
            raise CommandFailed(f"there is no setting {key}{_hint(key, known)}", Exit.NOT_FOUND)
    chosen = {
        server: {key: value for key, value in sorted(config.items()) if not wanted or key in wanted}
        for server, config in configs.items()
    }
    missed = tuple(missing)
    if len(chosen) == 1 and not missed:
        [only] = chosen.values()
        return only
    rows = [Setting(key, value, server) for server, config in chosen.items() for key, value in config.items()]
    return Listing.make(Setting, rows, missed)


def note_unknown(session: Session, before: Mapping[str, Settings], wanted: Settings) -> None:
    """Warn about unknown keys: servers accept them silently."""
    for server, config in before.items():
        for key in wanted:
            if key not in config:
                session.note(f"{server} has no setting {key}{_hint(key, config)}")


def compared(before: Mapping[str, Settings], after: Mapping[str, Settings], wanted: Settings) -> Listing[SettingChange]:
    rows = [
        SettingChange(server, key, config.get(key), after.get(server, {}).get(key))
        for server, config in before.items()
        for key in wanted
    ]
    return Listing.make(SettingChange, rows)


def _hint(key: str, known: Collection[str]) -> str:
    near = nearest(key, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""
