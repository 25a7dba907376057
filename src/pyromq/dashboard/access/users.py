"""The users of a dashboard, with scrypt hashes of their passwords.

RocketMQ's dashboard keeps `users.properties` (`name=password`, with `,1` for an administrator) and role-permission.yml;
both are read once, for those who come from there.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from pyromq.errors import ConfigError

from .roles import Role

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from ..kept.database import Database

SHORTEST = 8
LONGEST = 256
_COST = {"n": 2**14, "r": 8, "p": 1}
# Addresses in role-permission.yml that change something: a role that has one of them is an operator.
_CHANGING = ("send", "update", "create", "delete", "reset", "skip", "resend", "consumemessagedirectly", "*")


@dataclass(frozen=True, slots=True)
class User:
    """`one_time` means that the password was made by us and has to be changed first."""

    name: str
    role: Role
    one_time: bool
    made: float


class Users:
    """All users. Passwords are checked in a thread: each check takes some 50 ms, on purpose."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Checked for names that nobody has, so that they take as long.
        self._decoy = (secrets.token_bytes(16), secrets.token_bytes(32))

    def first_start(self) -> str | None:
        """The password of the new user `admin`, if there is no user yet."""

        def make(db: sqlite3.Connection) -> str | None:
            if db.execute("SELECT 1 FROM users").fetchone():
                return None
            password = secrets.token_urlsafe(12)
            _put(db, "admin", password, Role.ADMIN, one_time=True)
            return password

        return self._database.run_now(make)

    def migrate(self, properties: Path, permissions: Path | None = None) -> list[str]:
        """Take over the users of RocketMQ's dashboard that are not here yet; returns their names. ConfigError."""
        try:
            lines = properties.read_text(encoding="utf-8").splitlines()
            granted = yaml.safe_load(permissions.read_text(encoding="utf-8")) if permissions else {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
            raise ConfigError(f"the users of {properties} cannot be read: {exc}") from exc
        normal = normal_role(granted)

        def take(db: sqlite3.Connection) -> list[str]:
            taken = []
            for line in lines:
                name, separator, rest = line.strip().partition("=")
                if not separator or line.lstrip().startswith("#"):
                    continue
                password, _, kind = rest.rpartition(",") if rest.endswith((",0", ",1")) else (rest, "", "0")
                name = name.strip()
                if not db.execute("SELECT 1 FROM users WHERE name = ?", (name,)).fetchone():
                    _put(db, name, password.strip(), Role.ADMIN if kind == "1" else normal, one_time=False)
                    taken.append(name)
            return taken

        return self._database.run_now(take)

    async def check(self, name: str, password: str) -> User | None:
        """The user, if that is the password."""
        row = await self._database.run(
            lambda db: db.execute(
                "SELECT name, role, one_time, made, salt, hash FROM users WHERE name = ?", (name,)
            ).fetchone()
        )
        salt, known = row[4:] if row else self._decoy
        given = await asyncio.to_thread(_hash, password[:LONGEST], salt)
        if not hmac.compare_digest(given, known) or row is None:
            return None
        return User(row[0], Role[row[1]], bool(row[2]), row[3])

    async def all(self) -> list[User]:
        rows = await self._database.run(
            lambda db: db.execute("SELECT name, role, one_time, made FROM users ORDER BY name").fetchall()
        )
        return [User(name, Role[role], bool(one_time), made) for name, role, one_time, made in rows]

    async def get(self, name: str) -> User | None:
        return next((user for user in await self.all() if user.name == name), None)

    async def put(self, name: str, password: str, role: Role, *, one_time: bool = False) -> None:
        """Add a user, or change the password and the role. ConfigError for one that is too short."""
        _check(name, password)
        await self._database.run(lambda db: _put(db, name, password, role, one_time=one_time))

    async def set_role(self, name: str, role: Role) -> None:
        """ConfigError if nobody else is an admin."""

        def change(db: sqlite3.Connection) -> None:
            _keep_an_admin(db, name, role)
            db.execute("UPDATE users SET role = ? WHERE name = ?", (role.name, name))

        await self._database.run(change)

    async def delete(self, name: str) -> None:
        """ConfigError if nobody else is an admin."""

        def drop(db: sqlite3.Connection) -> None:
            _keep_an_admin(db, name, None)
            db.execute("DELETE FROM users WHERE name = ?", (name,))

        await self._database.run(drop)


def normal_role(granted: Any) -> Role:
    """What users without `,1` may do, according to role-permission.yml: look, or more if a changing page is theirs."""
    roles = granted.get("rolePerms", granted) if isinstance(granted, dict) else {}
    pages = roles.get("normal") or [] if isinstance(roles, dict) else []
    words = " ".join(map(str, pages if isinstance(pages, list) else [pages])).lower()
    return Role.OPERATOR if any(word in words for word in _CHANGING) else Role.VIEWER


def _check(name: str, password: str) -> None:
    if not name or len(name) > 64 or not name.isprintable() or name != name.strip():
        raise ConfigError("a user name has 1 to 64 letters")
    if not SHORTEST <= len(password) <= LONGEST:
        raise ConfigError(f"a password has at least {SHORTEST} letters, and no more than {LONGEST}")


def _put(db: sqlite3.Connection, name: str, password: str, role: Role, *, one_time: bool) -> None:
    salt = secrets.token_bytes(16)
    db.execute(
        "INSERT OR REPLACE INTO users VALUES (?, ?, ?, ?, ?, ?)",
        (name, role.name, salt, _hash(password, salt), one_time, time.time()),
    )


def _keep_an_admin(db: sqlite3.Connection, name: str, role: Role | None) -> None:
    others = db.execute("SELECT count(*) FROM users WHERE role = 'ADMIN' AND name != ?", (name,)).fetchone()[0]
    if role is not Role.ADMIN and not others:
        raise ConfigError("somebody has to stay an admin")


def _hash(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, dklen=32, **_COST)
