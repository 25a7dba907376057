"""`apply`: make topics and groups match a file. Plan first, then carry it out.

    topics:
      - name: orders
        queues: 8              # or readQueues and writeQueues
        perm: rw
        order: false
        cluster: DefaultCluster        # or brokers: [broker-a]; without either, everywhere
        attributes: {message.type: NORMAL}
    groups:
      - name: billing
        retryMax: 16

Anything a file does not mention, a whole topic or one setting, stays as it is: nothing is ever deleted. A new topic or
group gets RocketMQ's defaults for settings that the file leaves out. YAML or JSON; an unknown key is an error, since it
is usually a known one misspelt. A name may occur more than once, for different places.

`cluster_metadata` makes such files from what a cluster has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from pyromq.client.admin import order_conf
from pyromq.client.admin.addresses import masters_in
from pyromq.errors import ConfigError, QueryNotFound
from pyromq.protocol.bodies import GroupRetryPolicy, SubscriptionGroupConfig, TopicConfig
from pyromq.protocol.permissions import PERM_READ, PERM_READ_WRITE, PERM_WRITE

from ..groups import settings as group_settings
from ..topics import perm_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyromq.client.admin import AdminClient

_PERMS = {"r": PERM_READ, "w": PERM_WRITE, "rw": PERM_READ_WRITE, "none": 0}
_QUEUES = 8  # read and write queues of a new topic


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """A topic or group in a file, and where it belongs: on some brokers, in a cluster, or everywhere."""

    name: str
    cluster: str | None = None
    brokers: list[str] = []

    @property
    def place(self) -> str:
        """The place; two wishes of one name must differ in it."""
        return ", ".join(sorted(self.brokers)) or self.cluster or ""


class TopicWish(Wish, frozen=True, kw_only=True):
    """A topic in a file. `sys_flag` has RocketMQ's bits for units."""

    queues: int | None = None
    read_queues: int | None = None
    write_queues: int | None = None
    perm: str | None = None
    order: bool | None = None
    sys_flag: int | None = None
    attributes: dict[str, str] = {}

    def fields(self) -> dict[str, Any]:
        """The given settings, by the brokers' names."""
        if self.perm is not None and self.perm not in _PERMS:
            raise ConfigError(f"topic {self.name}: perm is {self.perm!r}; use r, w, rw or none")
        given = {
            "read_queue_nums": self.queues if self.read_queues is None else self.read_queues,
            "write_queue_nums": self.queues if self.write_queues is None else self.write_queues,
            "perm": _PERMS[self.perm] if self.perm is not None else None,
            "order": self.order,
            "topic_sys_flag": self.sys_flag,
        }
        for name, value in given.items():
            if "queue" in name and value is not None and not 0 <= value <= 65535:
                raise ConfigError(f"topic {self.name}: {value} queues; allowed are 0 to 65535")
        return {name: value for name, value in given.items() if value is not None}


class GroupWish(Wish, frozen=True, kw_only=True):
    """A group in a file."""

    consume: bool | None = None
    from_min: bool | None = None
    broadcast: bool | None = None
    orderly: bool | None = None
    retry_queues: int | None = None
    retry_max: int | None = None
    retry_policy: GroupRetryPolicy | None = None
    broker_id: int | None = None
    slow_broker_id: int | None = None
    notify: bool | None = None
    timeout_minutes: int | None = None
    sys_flag: int | None = None

    def fields(self) -> dict[str, Any]:
        return group_settings.said(self)


class Wishes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A whole file."""

    topics: list[TopicWish] = []
    groups: list[GroupWish] = []


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Step:
    """One topic or group on one broker: the action, and each changed setting before and after."""

    action: Action
    kind: str
    name: str
    broker: str
    changes: dict[str, str]
    # The complete settings to send to the broker.
    config: TopicConfig | SubscriptionGroupConfig

    @property
    def loses_queues(self) -> bool:
        """Whether stored messages would become unreadable, or sends that worked before would fail."""
        return any(key.lower().endswith("queues") and _shrinks(change) for key, change in self.changes.items())


def parse_wishes(text: bytes, name: str) -> Wishes:
    """Parse a file as YAML, which includes JSON. Raises ConfigError, which says where it is wrong."""
    try:
        wishes = msgspec.yaml.decode(text, type=Wishes)
    except msgspec.DecodeError as exc:  # bad YAML, or YAML with another structure
        raise ConfigError(f"{name}: {' '.join(str(exc).split())}") from exc
    wanted: list[tuple[str, Sequence[Wish]]] = [("topic", wishes.topics), ("group", wishes.groups)]
    for kind, several in wanted:
        for (twice, place), count in Counter((each.name, each.place) for each in several).items():
            if count > 1:
                raise ConfigError(f"{name}: {kind} {twice} occurs twice{f' for {place}' if place else ''}")
    return wishes


async def plan_wishes(admin: AdminClient, wishes: Wishes) -> list[Step]:
    """What to do, and what is right already; asks every broker once for topics and once for groups."""
    info = await admin.brokers.cluster_info()
    masters = masters_in(info)
    ordered = await ordered_topics(admin) if wishes.topics else frozenset()
    topics = (
        {name: with_order(await admin.topics.configs(address), ordered) for name, address in masters.items()}
        if wishes.topics
        else {}
    )
    groups = {name: await admin.groups.configs(address) for name, address in masters.items()} if wishes.groups else {}
    steps = [
        topic_step(wish, broker, topics[broker].get(wish.name))
        for wish in wishes.topics
        for broker in _places(wish, info.cluster_addr_table, masters, f"topic {wish.name}")
    ]
    steps += [
        group_step(wish, broker, groups[broker].get(wish.name))
        for wish in wishes.groups
        for broker in _places(wish, info.cluster_addr_table, masters, f"group {wish.name}")
    ]
    return steps


async def ordered_topics(admin: AdminClient) -> frozenset[str]:
    """The ordered topics. Name servers know them; brokers learn of them at their next registration."""
    try:
        return frozenset(await admin.namesrv.list_kv(order_conf.NAMESPACE))
    except QueryNotFound:
        return frozenset()


def with_order(configs: Mapping[str, TopicConfig], ordered: frozenset[str]) -> dict[str, TopicConfig]:
    return {name: msgspec.structs.replace(config, order=name in ordered) for name, config in configs.items()}


def topic_step(wish: TopicWish, broker: str, now: TopicConfig | None) -> Step:
    fields = wish.fields()
    before = now or TopicConfig(topic_name=wish.name, read_queue_nums=_QUEUES, write_queue_nums=_QUEUES)
    after = msgspec.structs.replace(before, **fields)
    changes = _changes(_topic_facts(before) if now else {}, _topic_facts(after))
    changes |= _changes({"sysFlag": before.topic_sys_flag}, {"sysFlag": after.topic_sys_flag})
    # Brokers keep attributes that a request does not mention.
    wanted = {key: value for key, value in wish.attributes.items() if before.attributes.get(key) != value}
    changes |= {key: _change(before.attributes.get(key), value) for key, value in wanted.items()}
    config = msgspec.structs.replace(after, attributes=wanted)
    return Step(_action(now, changes), "topic", wish.name, broker, changes, config)


def group_step(wish: GroupWish, broker: str, now: SubscriptionGroupConfig | None) -> Step:
    before = now or SubscriptionGroupConfig(group_name=wish.name)
    after = msgspec.structs.replace(before, **wish.fields())
    usual, rare = group_settings.USUAL, group_settings.RARE
    changes = _changes(_group_facts(before, usual) if now else {}, _group_facts(after, usual))
    # Settings that a plan mentions only if they are unusual.
    changes |= _changes(_group_facts(before, rare), _group_facts(after, rare))
    return Step(_action(now, changes), "group", wish.name, broker, changes, after)


async def carry_out_step(admin: AdminClient, step: Step) -> None:
    """Carry out one step. A step that keeps things does nothing."""
    if step.action is Action.KEEP:
        return
    if isinstance(step.config, SubscriptionGroupConfig):
        await admin.groups.create(step.config, brokers=[step.broker])
        return
    await admin.topics.put(step.config, brokers=[step.broker])
    if step.changes.get("order") == _change(True, False):
        await admin.topics.delete_order(step.name)


def _places(wish: Wish, clusters: Mapping[str, Any], masters: Mapping[str, str], what: str) -> list[str]:
    cluster = wish.cluster
    if wish.brokers:
        if strange := [name for name in wish.brokers if name not in masters]:
            raise ConfigError(f"{what}: there is no master {strange[0]}; known masters: {', '.join(sorted(masters))}")
        return sorted(wish.brokers)
    if cluster is None:
        return sorted(masters)
    if cluster not in clusters:
        raise ConfigError(
            f"{what}: there is no cluster {cluster}; known clusters: {', '.join(sorted(clusters)) or 'none'}"
        )
    return sorted(name for name in clusters[cluster] if name in masters)


def _action(now: object, changes: Mapping[str, str]) -> Action:
    if now is None:
        return Action.CREATE
    return Action.UPDATE if changes else Action.KEEP


def _topic_facts(config: TopicConfig) -> dict[str, object]:
    """The visible settings of a topic, under the names used in files."""
    return {
        "readQueues": config.read_queue_nums,
        "writeQueues": config.write_queue_nums,
        "perm": perm_text(config.perm),
        "order": config.order,
    }


def _group_facts(config: SubscriptionGroupConfig, names: Mapping[str, str]) -> dict[str, object]:
    """The settings of a group, under the names used in files."""
    facts = {_camel(name): value for name, value in group_settings.named(config, names).items()}
    if "retryPolicy" in facts:
        policy = config.group_retry_policy
        facts["retryPolicy"] = msgspec.json.encode(policy).decode() if policy else "none"
    return facts


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, str]:
    return {key: _change(before.get(key), value) for key, value in after.items() if before.get(key) != value}


def _change(before: object, after: object) -> str:
    return _text(after) if before is None else f"{_text(before)} → {_text(after)}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shrinks(change: str) -> bool:
    before, arrow, after = change.partition(" → ")
    return bool(arrow) and int(after) < int(before)
