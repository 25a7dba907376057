"""All account files of a server: `conf/plain_acl.yml`, and every `.yml` or `.yaml` below `conf/acl/`.

They are read at the start and whenever they change. An access key belongs to the first file that names it, those below
`conf/acl/` first, in the order of their names. A file that cannot be used is as if it had not changed, and `errors`
says why; the one that cannot be used at the start ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError, NotSaved
from pyromq.settings import replace_file

from . import files
from .addresses import Addresses
from .files import ACCOUNTS, MAX_SIZE, VERSION, WHITE, Account, AclFile
from .yaml_text import dump, plain, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyromq.protocol.bodies import DataVersion

logger = logging.getLogger("pyromq.security")

# Tells a file from what it was: time of its change, size, inode.
Stamp = tuple[int, int, int]

_SUFFIXES = (".yml", ".yaml")
_READABLE_BY_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Rules:
    """What all files say together."""

    accounts: dict[str, Account] = field(default_factory=dict)
    origins: dict[str, Path] = field(default_factory=dict)
    white: Addresses = field(default_factory=Addresses)
    versions: dict[Path, DataVersion] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChange:
    """An account to create or change. What is None stays as it was."""

    access_key: str
    secret_key: str | None = field(default=None, repr=False)
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    def fields(self) -> Iterator[tuple[str, Any]]:
        """What is given, by the names in files."""
        yield "accessKey", self.access_key
        if self.secret_key:
            yield "secretKey", self.secret_key
        if self.white_remote_address is not None:
            yield "whiteRemoteAddress", self.white_remote_address
        if self.admin is not None:
            yield "admin", self.admin
        if self.default_topic_perm:
            yield "defaultTopicPerm", self.default_topic_perm
        if self.default_group_perm:
            yield "defaultGroupPerm", self.default_group_perm
        if self.topic_perms is not None:
            yield "topicPerms", self.topic_perms
        if self.group_perms is not None:
            yield "groupPerms", self.group_perms


class AccountFiles:
    """The files of one server. All methods wait for the disk: call them in threads. `rules` may be read anywhere."""

    def __init__(self, main: Path, clock: Callable[[], float] = time.time) -> None:
        self.main = main
        self.folder = main.parent / "acl"
        self._clock = clock
        self.rules = Rules()
        # Why a file is not in effect as it is, by its path.
        self.errors: dict[Path, str] = {}
        self._files: dict[Path, AclFile] = {}
        self._stamps: dict[Path, Stamp] = {}
        # Those of the last look, if they were new.
        self._seen: dict[Path, Stamp] = {}
        self._turn = threading.Lock()

    def load(self) -> None:
        """Read all files. ConfigError for one that cannot be used, or if there is none."""
        with self._turn:
            stamps = self._found()
            if not stamps:
                raise ConfigError(f"aclEnable needs accounts: there is neither {self.main} nor a file in {self.folder}")
            self._files = {path: _read(path) for path in stamps}
            self._stamps = self._seen = stamps
            self._merge()
        for path in stamps:
            if path.stat().st_mode & _READABLE_BY_OTHERS:
                logger.warning("%s holds secrets, but others can read it; chmod 600 changes that", path)
        logger.info("%d accounts in %s", len(self.rules.accounts), ", ".join(map(str, stamps)))

    def look(self) -> None:
        """Read again what has changed, once it has not for a while: nobody reads what is only half written."""
        with self._turn:
            stamps = self._found()
            if stamps == self._stamps:
                return
            if stamps != self._seen:
                self._seen = stamps
                return
            for path in stamps:
                if stamps[path] != self._stamps.get(path):
                    self._read_again(path)
            for path in [each for each in self._files if each not in stamps]:
                self._gone(path)
            self._stamps = stamps
            self._merge()

    def _read_again(self, path: Path) -> None:
        try:
            found = _read(path)
        except ConfigError as exc:
            self.errors[path] = str(exc)
            stays = "the old accounts stay" if path in self._files else "it is passed over"
            logger.error("%s; %s", exc, stays)
            return
        self._files[path] = found
        self.errors.pop(path, None)
        logger.info("%s read again: %d accounts", path, len(found.accounts))

    def _gone(self, path: Path) -> None:
        if path == self.main:
            # Somebody may be about to replace it. Whoever means to empty it can do so.
            if path not in self.errors:
                self.errors[path] = f"{path}: is missing"
                logger.error("%s is missing; the old accounts stay", path)
            return
        self._files.pop(path)
        logger.info("%s is gone, and its accounts with it", path)

    def _found(self) -> dict[Path, Stamp]:
        below = [
            path
            for path in sorted(self.folder.rglob("*"))
            if path.suffix in _SUFFIXES and not path.name.startswith(".") and path != self.main
        ]
        found: dict[Path, Stamp] = {}
        for path in (*below, self.main):
            try:
                status = path.stat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                found[path] = status.st_mtime_ns, status.st_size, status.st_ino
        # An error about a file that is not there any more says nothing.
        self.errors = {path: error for path, error in self.errors.items() if path in found or path == self.main}
        return found

    def _merge(self) -> None:
        accounts: dict[str, Account] = {}
        origins: dict[str, Path] = {}
        for path, file in self._in_order():
            for account in file.accounts:
                first = origins.setdefault(account.access_key, path)
                if account.access_key in accounts:
                    logger.warning("%s names the account %s of %s again; passed over", path, account.access_key, first)
                else:
                    accounts[account.access_key] = account
            for note in file.notes:
                logger.warning("%s", note)
        white = Addresses(pattern for _, file in self._in_order() for pattern in file.white)
        self.rules = Rules(accounts, origins, white, {path: file.version for path, file in self._in_order()})

    def _in_order(self) -> list[tuple[Path, AclFile]]:
        return sorted(self._files.items(), key=lambda item: (item[0] == self.main, item[0]))

    # Changes

    def set_account(self, wanted: AccountChange) -> None:
        """Create or change an account. ConfigError for what no account can be, NotSaved if the disk refuses."""
        fields = dict(wanted.fields())

        def change(root: dict[str, Any]) -> None:
            accounts = _list(root, ACCOUNTS)
            for account in accounts:
                if str(account.get("accessKey")) == wanted.access_key:
                    account |= fields
                    return
            accounts.append(fields)

        self._change(self._home_of(wanted.access_key), change)

    def delete_account(self, access_key: str) -> bool:
        """Whether there was such an account."""
        if access_key not in self.rules.accounts:
            return False

        def change(root: dict[str, Any]) -> None:
            root[ACCOUNTS] = [each for each in _list(root, ACCOUNTS) if str(each.get("accessKey")) != access_key]

        self._change(self._home_of(access_key), change)
        return True

    def set_white_addresses(self, patterns: list[str], path: Path | None = None) -> None:
        """The addresses of one file, the main one without a path. ConfigError for patterns or a file that are none."""
        if path is not None and path != self.main and path not in self._files:
            raise ConfigError(f"{path} is not one of the account files")

        def change(root: dict[str, Any]) -> None:
            root[WHITE] = patterns

        self._change(path or self.main, change)

    def _home_of(self, access_key: str) -> Path:
        return self.rules.origins.get(access_key, self.main)

    def _change(self, path: Path, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a file as it is now; it is on disk, and in effect, when this returns."""
        with self._turn, _alone_in(path.parent):
            before = _text(path) if path.exists() else ""
            old = files.parse(before, str(path))
            root = plain(read(before, str(path))) or {}
            change(root)
            root[VERSION] = [{"counter": old.version.counter + 1, "timestamp": int(self._clock() * 1000)}]
            text = dump(root)
            # The place is a line of a file that does not exist: the reason says enough.
            try:
                new = files.parse(text, "")
            except ConfigError as exc:
                raise ConfigError(exc.reason) from None
            if len(text) > MAX_SIZE:
                raise ConfigError(f"{path} would be larger than {MAX_SIZE} bytes")
            try:
                replace_file(path, text.encode(), mode=0o600)
            except OSError as exc:
                logger.error("%s not written: %s", path, exc.strerror)
                raise NotSaved(path.name, exc) from exc
            self._files[path] = new
            self.errors.pop(path, None)
            status = path.stat()
            self._stamps = self._stamps | {path: (status.st_mtime_ns, status.st_size, status.st_ino)}
            self._merge()


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Several servers of a machine may share their files; no change of one gets lost in that of another."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _list(root: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = root.get(key) or []
    root[key] = found
    return found


def _read(path: Path) -> AclFile:
    return files.parse(_text(path), str(path))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", str(path)) from exc
    if len(data) > MAX_SIZE:
        raise ConfigError(f"is larger than {MAX_SIZE} bytes", str(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError("is not UTF-8", f"{path}:{line}") from None
