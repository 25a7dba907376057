"""Users and their policies, in RocketMQ's words. Values only: nothing here changes.

A policy is a list of entries, each with a resource, actions, perhaps addresses, and a decision:

    Topic:orders        one topic
    Topic:orders*       all topics whose names begin so
    Topic:*             all topics
    *                   everything

Custom policies are asked first. Default ones, which migrated accounts have, only if none of the custom ones matches.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Self, TypeVar

from pyromq.protocol.rights import EVERY, Action, Need, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Mapping

# Characters of what somebody sent that a refusal repeats.
SHOWN = 100

E = TypeVar("E", bound=StrEnum)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class UserType(StrEnum):
    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


class PolicyType(StrEnum):
    """In the order in which they are asked."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


def by_name(kind: type[E], text: str | None) -> E | None:
    """The member that `text` names, in upper or lower case; None if there is no such one."""
    wanted = (text or "").lower()
    return next((member for member in kind if member.value.lower() == wanted), None)


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who signs requests. A super user may do everything."""

    name: str
    secret: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        return self.status is UserStatus.ENABLE


class Match(IntEnum):
    """How a resource is named, the closest first."""

    LITERAL = 0
    PREFIX = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Resource:
    """What an entry is about. Without a `kind`: everything. `name` is empty where any will do."""

    kind: ResourceKind | None
    match: Match
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """ValueError for what names no resource; a `*` is only taken at the end."""
        text = text.strip()
        if text == EVERY:
            return cls(None, Match.ANY)
        before, _, name = text.partition(":")
        kind = by_name(ResourceKind, before)
        if kind is None or not name or not name.isprintable():
            raise ValueError(f"{text[:SHOWN]!r} is not of the form Topic:name, Group:name or Cluster:name")
        if name == EVERY:
            return cls(kind, Match.ANY)
        if EVERY in name[:-1]:
            raise ValueError(f"{text[:SHOWN]!r} has a * that is not at its end")
        return cls(kind, Match.PREFIX, name[:-1]) if name[-1] == EVERY else cls(kind, Match.LITERAL, name)

    def __str__(self) -> str:
        if self.kind is None:
            return EVERY
        star = "" if self.match is Match.LITERAL else EVERY
        return f"{self.kind}:{self.name}{star}"

    def covers(self, kind: ResourceKind, name: str) -> bool:
        if self.kind is None:
            return True
        if self.kind is not kind:
            return False
        if self.match is Match.LITERAL:
            return name == self.name
        return self.match is Match.ANY or name.startswith(self.name)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The smaller, the closer this names what it covers: literal, longest prefix, any, everything."""
        return (self.kind is None, self.match, -len(self.name))


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """Allows or denies `actions` on a resource, if the request comes from one of `sources`; from anywhere without."""

    resource: Resource
    actions: tuple[Action, ...]
    decision: Decision
    sources: tuple[str, ...] = ()
    networks: tuple[Network, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """ValueError for a source that is neither an address nor a network."""
        networks = tuple(ipaddress.ip_network(source, strict=False) for source in self.sources)
        object.__setattr__(self, "networks", networks)

    def concerns(self, need: Need) -> bool:
        """Whether this says something about one of the actions of `need`, wherever it comes from."""
        return self.resource.covers(need.kind, need.name) and (
            Action.ALL in self.actions or not need.actions.isdisjoint(self.actions)
        )

    def is_for(self, host: Address | None) -> bool:
        return not self.networks or (host is not None and any(host in network for network in self.networks))


# By type; no list is empty.
Policies = dict[PolicyType, tuple[PolicyEntry, ...]]


@dataclass(frozen=True, slots=True)
class Accounts:
    """All users, and the policies of those who have some, by name."""

    users: Mapping[str, User] = field(default_factory=dict)
    policies: Mapping[str, Policies] = field(default_factory=dict)


def address_of(host: str) -> Address | None:
    """The address of a peer; an IPv4 one stays one when it comes over IPv6."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped) or found


def deciding(policies: Policies, need: Need, host: Address | None) -> PolicyEntry | None:
    """The entry that decides on a need: the closest of the custom ones that match, or else of the default ones.

    Between two that are as close, the one that denies decides; None if no entry matches. As in RocketMQ, an entry
    matches if it is about one of the actions of which one is enough.
    """
    for kind in PolicyType:
        found = [entry for entry in policies.get(kind, ()) if entry.concerns(need) and entry.is_for(host)]
        if found:
            return min(found, key=lambda entry: (entry.resource.rank, entry.decision is Decision.ALLOW))
    return None
