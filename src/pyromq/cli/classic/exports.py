"""Subcommands that describe a cluster in files: `<folder>/metadata.json`, `configs.json`, `metrics.json`.

With several brokers, the queues of a topic are added up, as RocketMQ does: such a file is for sizing. Use
`pyromq export` for a file that can be applied again.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pyromq.admin.cluster.settings import cluster_configs
from pyromq.admin.cluster.size import cluster_size
from pyromq.admin.topic_kinds import TopicKind, names_of_servers, topic_kind
from pyromq.client.admin.addresses import brokers_in
from pyromq.protocol.command import PROTOCOL_VERSION
from pyromq.protocol.names import is_system_group
from pyromq.protocol.versions import version_name

from ..failures import CommandFailed, Exit
from .commands import BROKER_ADDR, CLUSTER, Opt, classic, place_of, write_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pyromq.admin.cluster.size import BrokerSize, Load
    from pyromq.protocol.bodies import SubscriptionGroupConfig, TopicConfig

    from ..session import Session

FOLDER = Opt("f", "filePath", "Folder to write to; /tmp/rocketmq/export by default.")
OF_CLUSTER = Opt("c", "clusterName", "The cluster.", required=True)

_FOLDER = "/tmp/rocketmq/export"  # where scripts look for it
# The broker settings that matter when comparing clusters.
_KEYS = (
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)


@classic(
    "exportMetadata",
    CLUSTER,
    BROKER_ADDR,
    FOLDER,
    Opt("t", "topic", "Only topics.", value=False),
    Opt("g", "subscriptionGroup", "Only groups.", value=False),
    Opt("s", "specialTopic", "Include retry and dead-letter topics.", value=False),
    timeout=30.0,
)
async def export_metadata(session: Session, args: argparse.Namespace) -> None:
    place = place_of(args)
    info = await session.admin.brokers.cluster_info()
    servers = names_of_servers(info)
    addresses = [args.b] if args.b else brokers_in(info, place["cluster"]).values()
    kinds = (TopicKind.NORMAL, TopicKind.RETRY, TopicKind.DLQ) if args.s else (TopicKind.NORMAL,)
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}
    for address in addresses:
        for name, topic in (await session.admin.topics.configs(address)).items():
            if topic_kind(name, servers) in kinds:
                topics[name] = _added(topics.get(name), topic, "read_queue_nums", "write_queue_nums")
        for name, group in (await session.admin.groups.configs(address)).items():
            if not is_system_group(name):
                groups[name] = _added(groups.get(name), group, "retry_queue_nums")
    document: dict[str, Any] = {"exportTime": int(time.time() * 1000)}
    if not args.g or args.t:
        document["topicConfigTable"] = {name: _wire(topics[name]) for name in sorted(topics)}
    if not args.t:
        document["subscriptionGroupTable"] = {name: _wire(groups[name]) for name in sorted(groups)}
    name = "topic" if args.t else "subscriptionGroup" if args.g else "metadata"
    _write(args.f, f"{name}.json", document)


def _added(before: Any, config: Any, *names: str) -> Any:
    if before is None:
        return config
    return msgspec.structs.replace(config, **{name: getattr(before, name) + getattr(config, name) for name in names})


def _wire(config: TopicConfig | SubscriptionGroupConfig) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(config.encode())
    fields.setdefault("attributes", {})
    return dict(sorted(fields.items()))


@classic("exportConfigs", OF_CLUSTER, FOLDER, timeout=30.0)
async def export_configs(session: Session, args: argparse.Namespace) -> None:
    found = await cluster_configs(session.admin, args.c)
    masters = {name: replicas[0] for name, replicas in found.brokers.items() if 0 in replicas}
    document = {
        "brokerConfigs": {
            name: {key: config[key] for key in sorted(_KEYS) if key in config} for name, config in masters.items()
        },
        "clusterScale": {
            "namesrvSize": len(found.name_servers),
            "masterBrokerSize": len(masters),
            "slaveBrokerSize": sum(map(len, found.brokers.values())) - len(masters),
        },
    }
    _write(args.f, "configs.json", document)
    session.incomplete(found.missing)


@classic("exportMetrics", OF_CLUSTER, FOLDER, timeout=60.0)
async def export_metrics(session: Session, args: argparse.Namespace) -> None:
    found = await cluster_size(session.admin, args.c)
    versions = {
        "rocketmqVersion": version_name(PROTOCOL_VERSION),
        "clientInfo": [client.replace(" ", "%") for client in found.clients],
    }
    total = found.total
    document = {
        "evaluateReport": {
            each.broker: {"runtimeEnv": _environment(each), "runtimeQuota": _quota(each), "runtimeVersion": versions}
            for each in found.brokers
        },
        "totalData": {
            "totalTps": {f"total{key[:1].upper()}{key[1:]}": value for key, value in _tps(total).items()},
            "totalOneDayNum": _day(total),
        },
    }
    _write(args.f, "metrics.json", document)
    session.incomplete(found.missing)


def _environment(size: BrokerSize) -> dict[str, str]:
    return _known({"cpuNum": size.cpus, "totalMemKBytes": size.memory_kib})


def _quota(size: BrokerSize) -> dict[str, Any]:
    return {
        "diskRatio": _known({"commitLogDiskRatio": size.log_disk, "consumeQueueDiskRatio": size.queue_disk}),
        "tps": _tps(size.load),
        "oneDayNum": _day(size.load),
        **_known({"messageAverageSize": size.mean_message_bytes}),
        "topicSize": size.topics,
        "groupSize": size.groups,
    }


def _tps(load: Load) -> dict[str, float]:
    return {
        "normalInTps": load.in_tps,
        "normalOutTps": load.out_tps,
        "transInTps": load.transactions_tps,
        "scheduleInTps": load.delayed_tps,
    }


def _day(load: Load) -> dict[str, int]:
    return {
        "normalOneDayInNum": load.in_day,
        "normalOneDayOutNum": load.out_day,
        "transOneDayInNum": load.transactions_day,
        "scheduleOneDayInNum": load.delayed_day,
    }


def _known(figures: Mapping[str, float | None]) -> dict[str, str]:
    """Figures that brokers report as text, without the missing ones."""
    return {key: str(value) for key, value in figures.items() if value is not None}


def _write(folder: str | None, name: str, document: Mapping[str, Any]) -> None:
    path = Path(folder or _FOLDER) / name
    text = json.dumps(document, indent="\t", separators=(",", ":"), ensure_ascii=False)
    try:
        write_file(path, text.encode())
    except OSError as exc:
        raise CommandFailed(f"{path} cannot be written: {exc.strerror}", Exit.USAGE) from exc
    print(f"export {path} success")
