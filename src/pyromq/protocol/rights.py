"""What a request needs to be allowed: one of these actions on this resource. In the words of RocketMQ 5's policies.

Each request code declares its needs once, beside its limits (`RULES` of each server):

    Code.SEND_MESSAGE: Rule(BodySize.MESSAGE, needs=topic(Action.PUB)),
    Code.PULL_MESSAGE: Rule(needs=topic(Action.SUB) + group(Action.SUB)),

Whoever has an account may do what needs nothing (`SIGNED`); `OPEN` is for everyone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from .names import DLQ_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_PREFIX


class Action(StrEnum):
    """What can be done with a resource. `ALL` stands in policies only."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceKind(StrEnum):
    """What a policy can be about."""

    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


_LONGEST_NAME = 255

# In place of a name: all resources of a kind. Only rights on `*` cover it.
EVERY = "*"


class Need(NamedTuple):
    """One of `actions` on one resource. A cluster's name is empty: it is the server's own."""

    kind: ResourceKind
    name: str
    actions: frozenset[Action]


Ext = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Needs:
    """What all requests of one code need. `a + b`: both."""

    header: tuple[Callable[[Ext], tuple[Need, ...]], ...] = ()
    # Reads a body, which may be large and is read apart then; raises what reading it raises.
    body: Callable[[bytes], tuple[Need, ...]] | None = None
    # False: also for those who have no account.
    signed: bool = True

    def __add__(self, other: Needs) -> Needs:
        assert self.body is None or other.body is None, "one reader for a body"
        return Needs((*self.header, *other.header), self.body or other.body, self.signed or other.signed)

    def of(self, ext: Ext) -> tuple[Need, ...]:
        """What a request with this header needs, apart from what its body says."""
        if len(self.header) == 1:
            return self.header[0](ext)
        return tuple(need for reader in self.header for need in reader(ext))


SIGNED = Needs()
OPEN = Needs(signed=False)


def on_topic(name: str, actions: frozenset[Action]) -> Need:
    """Topics of a group, for what it is to try again or gave up on, are a matter of that group.

    Who may subscribe as the group may also publish there: that is how clients send messages back.
    """
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            own = actions - {Action.PUB} | {Action.SUB} if Action.PUB in actions else actions
            return Need(ResourceKind.GROUP, name[len(prefix) :], own)
    return Need(ResourceKind.TOPIC, name, actions)


def on_group(name: str, actions: frozenset[Action]) -> Need:
    return Need(ResourceKind.GROUP, name.removeprefix(RETRY_PREFIX), actions)


def topic(*actions: Action, field: str = "topic") -> Needs:
    """One of `actions` on the topic that `field` names."""
    return _named(on_topic, frozenset(actions), field)


def group(*actions: Action, field: str = "consumerGroup") -> Needs:
    """One of `actions` on the group that `field` names."""
    return _named(on_group, frozenset(actions), field)


def _named(make: Callable[[str, frozenset[Action]], Need], wanted: frozenset[Action], field: str) -> Needs:
    @functools.lru_cache(maxsize=1024)
    def known(name: str) -> tuple[Need, ...]:
        return (make(name, wanted),)

    def read(ext: Ext) -> tuple[Need, ...]:
        name = ext.get(field, "")
        # Longer ones are no names, and would fill the memory.
        return known(name) if len(name) <= _LONGEST_NAME else (make(name, wanted),)

    return Needs((read,))


def if_given(needs: Needs, field: str, instead: Needs = SIGNED) -> Needs:
    """`needs` of a request that has this field, `instead` of one that leaves it out or empty."""
    return Needs((lambda ext: needs.of(ext) if ext.get(field) else instead.of(ext),))


def several(kind: ResourceKind, *actions: Action, field: str, apart_by: str) -> Needs:
    """One of `actions` on each of the resources that `field` lists."""
    wanted = frozenset(actions)
    make = on_topic if kind is ResourceKind.TOPIC else on_group

    def read(ext: Ext) -> tuple[Need, ...]:
        return tuple(make(name.strip(), wanted) for name in ext.get(field, "").split(apart_by) if name.strip())

    return Needs((read,))


def every(kind: ResourceKind, *actions: Action) -> Needs:
    """One of `actions` on all resources of a kind."""
    need = (Need(kind, EVERY, frozenset(actions)),)
    return Needs((lambda _: need,))


def cluster(*actions: Action) -> Needs:
    """One of `actions` on the cluster that the server belongs to."""
    need = (Need(ResourceKind.CLUSTER, "", frozenset(actions)),)
    return Needs((lambda _: need,))


def reply(*, field: str = "topic") -> Needs:
    """Replies go to one client through a topic of the cluster, on which nobody has rights; to others as any message."""
    wanted = frozenset((Action.PUB,))

    def read(ext: Ext) -> tuple[Need, ...]:
        name = ext.get(field, "")
        return () if name.endswith(REPLY_TOPIC_SUFFIX) else (on_topic(name, wanted),)

    return Needs((read,))


def from_body(read: Callable[[bytes], tuple[Need, ...]]) -> Needs:
    """What `read` finds in the body."""
    return Needs(body=read)
