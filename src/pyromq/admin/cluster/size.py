"""The load of a cluster, for choosing machines (RocketMQ's exportMetrics)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import MASTER, replicas
from pyromq.client.admin.fan_out import fan_out
from pyromq.errors import PyroMQError, ServerError
from pyromq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, is_system_group
from pyromq.protocol.versions import version_name

from ..topic_kinds import TopicKind, names_of_servers, topic_kind
from ..traffic import of_a_day
from .brokers import number, out_tps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.addresses import Replica
    from pyromq.client.admin.fan_out import Missing

_IN = "TOPIC_PUT_NUMS"


@dataclass(frozen=True, slots=True)
class Load:
    """Messages a second in the last minute, and a day: yesterday's in and out, the last 24 hours' for the others.

    `transactions` and `delayed` are part of the incoming ones. A figure that a broker does not report counts as 0.
    """

    in_tps: float = 0.0
    out_tps: float = 0.0
    transactions_tps: float = 0.0
    delayed_tps: float = 0.0
    in_day: int = 0
    out_day: int = 0
    transactions_day: int = 0
    delayed_day: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(
            self.in_tps + other.in_tps,
            self.out_tps + other.out_tps,
            self.transactions_tps + other.transactions_tps,
            self.delayed_tps + other.delayed_tps,
            self.in_day + other.in_day,
            self.out_day + other.out_day,
            self.transactions_day + other.transactions_day,
            self.delayed_day + other.delayed_day,
        )


@dataclass(frozen=True, slots=True)
class BrokerSize:
    """A master. Disks are the used part, from 0 to 1; `memory_kib` is the machine's; None means unknown."""

    broker: str
    address: str
    version: str | None
    cpus: int | None
    memory_kib: int | None
    log_disk: float | None
    queue_disk: float | None
    mean_message_bytes: float | None
    topics: int
    groups: int
    load: Load


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """All masters, their total load, and which clients consume: `JAVA V5_5_0`."""

    brokers: tuple[BrokerSize, ...]
    total: Load
    clients: tuple[str, ...]
    missing: tuple[Missing, ...] = ()


async def cluster_size(admin: AdminClient, cluster: str | None = None) -> ClusterSize:
    """The load of one cluster or all; silent masters are missing and not counted."""
    info = await admin.brokers.cluster_info()
    masters = {each.broker: each for each in replicas(info, cluster) if each.id == MASTER}
    servers = names_of_servers(info)
    groups: set[str] = set()

    async def ask(master: Replica) -> BrokerSize:
        address = master.address
        runtime, config = await admin.brokers.runtime(address), await admin.brokers.config(address)
        topics = [name for name in await admin.topics.configs(address) if topic_kind(name, servers) is TopicKind.NORMAL]
        own = [name for name in await admin.groups.configs(address) if not is_system_group(name)]
        groups.update(own)
        load = await _load(admin, address, runtime)
        # The one setting of a Java broker that defaults to its number of processors.
        return BrokerSize(
            master.broker,
            address,
            runtime.get("brokerVersionDesc"),
            _whole(number(config, "clientCallbackExecutorThreads")),
            _whole(number(runtime, "totalMemKBytes")),
            number(runtime, "commitLogDiskRatio"),
            number(runtime, "consumeQueueDiskRatio"),
            number(runtime, "putMessageAverageSize"),
            len(topics),
            len(own),
            load,
        )

    answers = await fan_out(masters, ask)
    sizes = tuple(answers.some().values())
    clients = await _clients(admin, groups)
    return ClusterSize(sizes, sum((each.load for each in sizes), Load()), clients, answers.missing)


async def _load(admin: AdminClient, address: str, runtime: Mapping[str, str]) -> Load:
    transactions, delayed = [await _counted(admin, address, topic) for topic in (HALF_TOPIC, SCHEDULE_TOPIC)]
    return Load(
        number(runtime, "putTps") or 0.0,
        out_tps(runtime) or 0.0,
        transactions[0],
        delayed[0],
        _yesterday(runtime, "msgPutTotal"),
        _yesterday(runtime, "msgGetTotal"),
        transactions[1],
        delayed[1],
    )


async def _counted(admin: AdminClient, address: str, topic: str) -> tuple[float, int]:
    """Messages into a topic: a second in the last minute, and a day. No counter means none."""
    try:
        data = await admin.brokers.stats(address, _IN, topic)
    except ServerError:
        return 0.0, 0
    return data.stats_minute.tps, of_a_day(data)


async def _clients(admin: AdminClient, groups: set[str]) -> tuple[str, ...]:
    async def ask(group: str) -> set[str]:
        try:
            members = (await admin.groups.connections(group)).connection_set
        except PyroMQError:  # usually nobody is online
            return set()
        return {f"{member.language} {version_name(member.version)}" for member in members}

    answers = await fan_out(sorted(groups), ask)
    return tuple(sorted(set().union(*answers.results.values())))


def _yesterday(runtime: Mapping[str, str], key: str) -> int:
    after, before = number(runtime, f"{key}TodayMorning"), number(runtime, f"{key}YesterdayMorning")
    return int((after or 0) - (before or 0))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
