"""One file of accounts, as RocketMQ 4.x has them:

globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: orders-service
    secretKey: a long secret
    whiteRemoteAddress:              from there it needs no signature
    admin: false
    defaultTopicPerm: DENY           DENY, PUB, SUB or PUB|SUB
    defaultGroupPerm: SUB
    topicPerms: [orders=PUB|SUB]
    groupPerms: [billing=SUB]
dataVersion:
  - {counter: 1, timestamp: 1700000000000}
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError
from pyromq.protocol.bodies import DataVersion

from .addresses import Addresses
from .yaml_text import Mapping, Node, Scalar, Sequence, read

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SIZE = 4 * 1024 * 1024
# Both keys are longer than this.
SHORT_KEY = 6

DENY, PUB, SUB = 0, 4, 8
_PERMISSIONS = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}

WHITE, ACCOUNTS, VERSION = "globalWhiteRemoteAddresses", "accounts", "dataVersion"
_KNOWN = frozenset((WHITE, ACCOUNTS, VERSION))
_OF_ACCOUNT = frozenset(
    (
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    )
)


@dataclass(frozen=True, slots=True)
class Account:
    """An account with its rights. Permissions are sums of PUB and SUB."""

    access_key: str
    secret_key: str = field(repr=False)
    admin: bool = False
    white: Addresses = field(default_factory=Addresses, compare=False, repr=False)
    default_topic: int = DENY
    default_group: int = DENY
    topics: dict[str, int] = field(default_factory=dict, repr=False)
    groups: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def may_all(self) -> bool:
        """An administrator whose rights nobody listed has all of them."""
        return self.admin and not self.topics and not self.groups


@dataclass(frozen=True, slots=True)
class AclFile:
    """What stands in one file. `notes` are worth a warning, and no reason to refuse it."""

    accounts: list[Account] = field(default_factory=list)
    white: list[str] = field(default_factory=list)
    version: DataVersion = field(default_factory=DataVersion)
    notes: list[str] = field(default_factory=list)


def permission(text: str) -> int:
    """ValueError for what is none."""
    found = _PERMISSIONS.get(text.replace(" ", "").upper())
    if found is None:
        raise ValueError(f"{text!r} is not one of DENY, PUB, SUB, PUB|SUB")
    return found


def permission_text(permission: int) -> str:
    return next(text for text, each in _PERMISSIONS.items() if each == permission)


def resource_permission(text: str) -> tuple[str, int]:
    """`orders=PUB`. ValueError says what is wrong."""
    name, equals, given = text.partition("=")
    if not equals or not name.strip() or "=" in given:
        raise ValueError(f"{text!r} is not of the form name=PUB")
    return name.strip(), permission(given.strip())


def parse(text: str, source: str) -> AclFile:
    """Read the text of a file. ConfigError names `source`, line and field, never a secret."""
    root = read(text, source)
    if root is None or (isinstance(root, Scalar) and root.is_null):
        return AclFile()
    if not isinstance(root, Mapping):
        raise ConfigError(f"needs {ACCOUNTS} or {WHITE}", f"{source}:{root.line}")
    reader = _Reader(source)
    white = [each.text for each in reader.texts(root, WHITE)]
    reader.addresses(root, WHITE)
    accounts = [reader.account(each) for each in reader.items(root, ACCOUNTS)]
    reader.note_unknown(root, _KNOWN)
    return AclFile(accounts, white, reader.version(root), reader.notes)


class _Reader:
    """Turns nodes into values; every error names its place."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.notes: list[str] = []

    def error(self, node: Node, reason: str) -> ConfigError:
        return ConfigError(reason, f"{self._source}:{node.line}")

    @contextlib.contextmanager
    def named(self, node: Node, name: str) -> Iterator[None]:
        """Says of a ValueError in which field it happened."""
        try:
            yield
        except ValueError as exc:
            raise self.error(node, f"{name}: {exc}") from None

    def note_unknown(self, found: Mapping, known: frozenset[str]) -> None:
        for key, node in found.items.items():
            if key not in known:
                self.notes.append(f"{self._source}:{node.line}: unknown key {key}")

    def account(self, node: Node) -> Account:
        if not isinstance(node, Mapping):
            raise self.error(node, "an account needs accessKey and secretKey")
        self.note_unknown(node, _OF_ACCOUNT)
        return Account(
            self.key(node, "accessKey"),
            self.key(node, "secretKey"),
            self.boolean(node, "admin"),
            self.addresses(node, "whiteRemoteAddress"),
            self.permission(node, "defaultTopicPerm"),
            self.permission(node, "defaultGroupPerm"),
            self.permissions(node, "topicPerms"),
            self.permissions(node, "groupPerms"),
        )

    def key(self, found: Mapping, name: str) -> str:
        node = found.items.get(name)
        if node is None or (isinstance(node, Scalar) and node.is_null):
            raise self.error(node or found, f"{name} is missing")
        text = self.scalar(node, name).text
        if len(text) <= SHORT_KEY:
            raise self.error(node, f"{name} must be longer than {SHORT_KEY} characters")
        return text

    def boolean(self, found: Mapping, name: str) -> bool:
        node = self.optional(found, name)
        if node is None:
            return False
        if node.boolean is None:
            raise self.error(node, f"{name} must be true or false")
        return node.boolean

    def permission(self, found: Mapping, name: str) -> int:
        node = self.optional(found, name)
        if node is None:
            return DENY
        try:
            return permission(node.text)
        except ValueError as exc:
            raise self.error(node, f"{name}: {exc}") from None

    def permissions(self, found: Mapping, name: str) -> dict[str, int]:
        held: dict[str, int] = {}
        for node in self.texts(found, name):
            with self.named(node, name):
                resource, given = resource_permission(node.text)
                held[resource] = given
        return held

    def addresses(self, found: Mapping, name: str) -> Addresses:
        for node in self.texts(found, name):
            with self.named(node, name):
                Addresses([node.text])
        return Addresses(node.text for node in self.texts(found, name))

    def version(self, found: Mapping) -> DataVersion:
        for node in self.items(found, VERSION):
            if not isinstance(node, Mapping):
                raise self.error(node, f"{VERSION} needs counter and timestamp")
            return DataVersion(counter=self.integer(node, "counter"), timestamp=self.integer(node, "timestamp"))
        return DataVersion()

    def integer(self, found: Mapping, name: str) -> int:
        node = self.optional(found, name)
        if node is None:
            return 0
        if node.integer is None:
            raise self.error(node, f"{name} must be a number")
        return node.integer

    def optional(self, found: Mapping, name: str) -> Scalar | None:
        node = found.items.get(name)
        if node is None:
            return None
        scalar = self.scalar(node, name)
        return None if scalar.is_null or not scalar.text.strip() else scalar

    def texts(self, found: Mapping, name: str) -> list[Scalar]:
        """The texts of a list, or the only one."""
        return [
            scalar
            for node in self.items(found, name)
            if not (scalar := self.scalar(node, name)).is_null and scalar.text
        ]

    def items(self, found: Mapping, name: str) -> list[Node]:
        node = found.items.get(name)
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return []
        if isinstance(node, Sequence):
            return node.items
        if isinstance(node, Scalar) and name != ACCOUNTS:
            return [node]
        raise self.error(node, f"{name} must be a list")

    def scalar(self, node: Node, name: str) -> Scalar:
        if not isinstance(node, Scalar):
            raise self.error(node, f"{name} must be text")
        return node
