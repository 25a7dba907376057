"""How far etcd was when this controller last looked, kept in a small file.

An etcd cluster that was restored from an old snapshot would count epochs again that were already used, and two masters
could write in the same one. Whoever has seen the newer state notices.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .replicas import Group

logger = logging.getLogger(__name__)


class Known(NamedTuple):
    """The revisions that created a group's key and last changed it; a group that is gone was created by none."""

    created: int
    changed: int


class Seen(msgspec.Struct, rename="camel"):
    """A revision of etcd; by group the revision that created it, the master's epoch and the set's."""

    revision: int
    groups: dict[str, tuple[int, int, int]]


def went_back(seen: Seen, revision: int, known: Mapping[str, Known], groups: Mapping[str, Group]) -> str | None:
    """What is older now than it was, in words; None if nothing is.

    A group that was removed and made again begins with small epochs, but its key was created later.
    """
    for name, (created, master_epoch, set_epoch) in seen.groups.items():
        group = groups.get(name)
        if group is None or known[name].created != created:
            continue
        if group.master_epoch < master_epoch or group.set_epoch < set_epoch:
            return (
                f"{name} is at epoch {group.master_epoch} and set epoch {group.set_epoch}, it was at {master_epoch} "
                f"and {set_epoch}"
            )
    if revision < seen.revision:
        return f"its revision is {revision}, it was {seen.revision}"
    return None


class SeenFile:
    """The file. Blocking. It is a help and no record: losing it loses nothing but the comparison."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "etcd-seen.json"

    def read(self) -> Seen | None:
        """What was seen; None if nothing was, or nobody can tell."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Seen)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, msgspec.ValidationError) as exc:
            logger.warning("%s cannot be read: %s; whether etcd went back is not checked", self.path, exc)
            return None

    def write(self, seen: Seen) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(seen))
        new.replace(self.path)
