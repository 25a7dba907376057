"""Who a broker is to its controllers: the id that they gave it, in two files (docs/spec/controller.md 5).

brokerIdentity       cluster#broker#id                      the broker's id for good
brokerIdentity-temp  cluster#broker#id#address;milliseconds  an id that it has asked for; no answer has been kept yet

The second is on disk before the id is asked for. After a crash in between, the broker asks for the same id with the
same check code and gets it, instead of leaving a member behind that never returns.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import ConfigError, StoreError
from pyromq.store.disk import Disk

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

_SEPARATOR = "#"


class Claim(NamedTuple):
    """An id that this broker wants. The controller tells by the check code whether a claim is the same one again."""

    broker_id: int
    check_code: str


class IdentityFiles:
    """The two files of one broker. Everything blocks, since it waits for the disk: call it in a thread.

    Once a method that writes returns, what it wrote survives a power failure. OSError leaves the files as they were.
    """

    def __init__(self, path: Path, cluster: str, broker: str, disk: Disk | None = None) -> None:
        """ConfigError for a name that the files cannot hold."""
        check_names(cluster, broker)
        self.path = path
        self.claim_path = path.with_name(path.name + "-temp")
        self._owner = (cluster, broker)
        self._disk = disk or Disk()

    def read(self) -> int | None:
        """This broker's id; None if it has none yet. StoreError if the file is damaged, or somebody else's."""
        text = _text_of(self.path)
        if text is None:
            return None
        fields = text.split(_SEPARATOR)
        broker_id = _id_of(fields[2]) if len(fields) == 3 else None
        if broker_id is None:
            raise StoreError(
                f"{self.path} is damaged: it should read cluster#broker#id, not {text[:100]!r}; restore it, or move it "
                "away to let this broker join its group as a new member"
            )
        self._check_owner(self.path, fields)
        return broker_id

    def read_claim(self) -> Claim | None:
        """The id that was asked for, if its answer was never kept. StoreError if the file is somebody else's."""
        text = _text_of(self.claim_path)
        if text is None:
            return None
        fields = text.split(_SEPARATOR, 3)
        broker_id = _id_of(fields[2]) if len(fields) == 4 else None
        if broker_id is None or not fields[3]:
            # At worst an id is never used. No message hangs on it.
            logger.warning("%s is damaged (%r); asking for a new id", self.claim_path, text[:100])
            return None
        self._check_owner(self.claim_path, fields)
        return Claim(broker_id, fields[3])

    def keep_claim(self, claim: Claim) -> None:
        """Write down which id will be asked for."""
        self._replace(self.claim_path, (*self._owner, str(claim.broker_id), claim.check_code))

    def drop_claim(self) -> None:
        """The controller gave this id to another broker."""
        self._disk.delete(self.claim_path)

    def keep(self, broker_id: int) -> None:
        """This broker has its id."""
        self._replace(self.path, (*self._owner, str(broker_id)))
        self.drop_claim()

    def _check_owner(self, path: Path, fields: list[str]) -> None:
        theirs = (fields[0], fields[1])
        if theirs != self._owner:
            raise StoreError(
                f"{path} belongs to broker {theirs[1]} of cluster {theirs[0]}, but this is broker {self._owner[1]} of "
                f"cluster {self._owner[0]}; correct brokerName and brokerClusterName, or use another storePathRootDir"
            )

    def _replace(self, path: Path, fields: tuple[str, ...]) -> None:
        replace_text(path, _SEPARATOR.join(fields), self._disk)


def replace_text(path: Path, text: str, disk: Disk) -> None:
    """Once this returns, the file holds `text` and survives a power failure. OSError leaves it as it was."""
    disk.make_folder(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            disk.write(fd, text.encode(), 0)
            disk.sync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    disk.sync_folder(path.parent)


def check_names(cluster: str, broker: str) -> None:
    """ConfigError for a name that brokerIdentity cannot hold."""
    for key, name in (("brokerClusterName", cluster), ("brokerName", broker)):
        if _SEPARATOR in name:
            raise ConfigError(f"{key} {name} must not contain {_SEPARATOR} in controller mode")


def _text_of(path: Path) -> str | None:
    try:
        return path.read_bytes().decode(errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc.strerror}") from exc


def _id_of(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and 0 < int(text[:20]) < 2**63 else None
