"""The samples that follow from what an exporter knows. Decides; asks nobody."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyromq.metrics import exporter_metrics as m
from pyromq.metrics.model import Sample
from pyromq.protocol.bodies.heartbeat import MessageModel
from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic, is_system_group, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.metrics.model import Metric

    from .facts import Broker, Facts

_MASTER = 0
_SIZE = re.compile(r"([0-9.]+) ?([KMGTPE]?)i?B")
_UNITS = " KMGTPE"
_BROADCASTING, _CLUSTERING = "0", "1"


def samples(facts: Facts, now: float, millis: int) -> Iterator[Sample | None]:
    """Everything that is known at `now`, by the clock of the facts, which is `millis` since 1970."""
    answered = facts.answered(now)
    masters = [broker for broker in answered if broker.broker_id == _MASTER]
    for broker in list(facts.brokers.values()):
        yield Sample(m.UP, (broker.cluster, broker.address, broker.name), int(broker.up))
    yield Sample(m.REQUESTS, (), facts.requests)
    yield Sample(m.DURATION, (), facts.seconds)
    for broker in answered:
        yield from _broker(broker, masters)
    for broker in masters:
        yield from _topics(facts, broker)
        for group, count in broker.producers.items():
            yield Sample(m.PRODUCER_COUNT, (broker.cluster, broker.name, group), count)
        yield from _reads(facts, broker, millis)
    yield from _groups(facts, masters)
    yield from _clients(facts)


def _broker(broker: Broker, masters: list[Broker]) -> Iterator[Sample]:
    runtime = broker.runtime
    labels = (broker.cluster, broker.address, broker.name)
    yield Sample(m.BROKER_TPS, labels, _first(runtime.get("putTps", "")))
    transferred = runtime.get("getTransferedTps") or runtime.get("getTransferredTps", "")
    yield Sample(m.BROKER_QPS, labels, _first(transferred))
    end = _number(runtime.get("commitLogMaxOffset", ""))
    ends = [_number(master.runtime.get("commitLogMaxOffset", "")) for master in masters if master.name == broker.name]
    if end is not None and ends and ends[0] is not None:
        yield Sample(m.COMMITLOG_DIFF, labels, max(ends[0] - end, 0))
    yield from _runtime(broker, transferred)


def _runtime(broker: Broker, transferred: str) -> Iterator[Sample]:
    runtime = broker.runtime
    version = runtime.get("brokerVersionDesc", "")
    labels = (
        broker.cluster,
        broker.address,
        broker.address.rpartition(":")[0],
        broker.name,
        runtime.get("bootTimestamp", ""),
        version,
    )
    values: list[tuple[Metric, float | None]] = [
        (metric, _number(runtime.get(key, ""))) for key, metric in m.RUNTIME.items()
    ]
    values.append((m.TO_FLUSH, _bytes(runtime.get("remainHowManyDataToFlush", ""))))
    capacity = [_bytes(part) for part in runtime.get("commitLogDirCapacity", "").split(",")]
    if len(capacity) == 2:
        values += zip((m.DISK_TOTAL, m.DISK_FREE), capacity, strict=True)
    for key, metrics in m.RATES.items():
        text = transferred if key == "getTransferedTps" else runtime.get(key, "")
        values += zip(metrics, map(_number, text.split()), strict=False)
    times = runtime.get("putMessageDistributeTime", "")
    for name, count in re.findall(r"\[([^\]]+)\]:([0-9]+)", times):
        if name in m.PUT_TIMES:
            values.append((m.PUT_TIMES[name], float(count)))
    for metric, value in values:
        if value is not None:
            yield Sample(metric, labels, value)


def _topics(facts: Facts, broker: Broker) -> Iterator[Sample | None]:
    for topic in sorted(broker.topics):
        rates = facts.rates.get((broker.name, topic))
        if rates is None:
            continue
        labels = (broker.cluster, broker.name, topic)
        if topic.startswith(DLQ_PREFIX):
            yield Sample(m.DLQ_OFFSET, (*labels[:2], topic.removeprefix(DLQ_PREFIX)), rates.offset)
        elif topic.startswith(RETRY_PREFIX):
            yield Sample(m.RETRY_OFFSET, labels, rates.offset)
        elif not is_system_topic(topic):
            yield Sample(m.PRODUCER_OFFSET, labels, rates.offset)
            yield Sample(m.PRODUCER_TPS, labels, rates.tps)
            yield Sample(m.PRODUCER_SIZE, labels, rates.size)
        yield None


def _reads(facts: Facts, broker: Broker, millis: int) -> Iterator[Sample | None]:
    for (group, topic), read in broker.reads.items():
        if is_system_group(group):
            continue
        labels = (broker.cluster, broker.name, topic, group)
        for metric in (m.CONSUMER_TPS, m.GROUP_TPS):
            yield Sample(metric, labels, read.tps)
        for metric in (m.CONSUMER_OFFSET, m.GROUP_OFFSET):
            yield Sample(metric, labels, read.consumer_offset)
        yield Sample(m.ACCUMULATION, labels, max(read.broker_offset - read.consumer_offset, 0))
        members = facts.members.get(group)
        if members is None or members.message_model is not MessageModel.BROADCASTING:
            since = millis if read.behind_since is None else read.behind_since
            yield Sample(m.GROUP_LATENCY, labels, max(millis - since, 0))
        size, back = facts.read_sizes.get((broker.name, topic, group), (0.0, 0))
        yield Sample(m.CONSUMER_SIZE, labels, size)
        yield Sample(m.SEND_BACK, labels, back)
        yield None


def _groups(facts: Facts, masters: list[Broker]) -> Iterator[Sample | None]:
    behind: dict[tuple[str, str], int] = {}
    for broker in masters:
        for key, read in broker.reads.items():
            behind[key] = behind.get(key, 0) + max(read.broker_offset - read.consumer_offset, 0)
    # Who has never consumed a retry has no offset there, and all of them still to come; brokers of 5.5 do not list it.
    for (_, topic), rates in list(facts.rates.items()):
        group = topic.removeprefix(RETRY_PREFIX)
        if group != topic and not any((group, topic) in broker.reads for broker in masters):
            behind[group, topic] = behind.get((group, topic), 0) + rates.offset
    for group, topic in sorted(behind):
        if not is_system_group(group):
            metric = m.RETRY_DIFF if topic.startswith(RETRY_PREFIX) else m.GROUP_DIFF
            yield Sample(metric, (group, topic, *_members(facts, group)), behind[group, topic])
    dead: dict[str, int] = {}
    for (_, topic), rates in list(facts.rates.items()):
        if topic.startswith(DLQ_PREFIX):
            group = topic.removeprefix(DLQ_PREFIX)
            dead[group] = dead.get(group, 0) + rates.offset
    for group, count in dead.items():
        yield Sample(m.DLQ_DIFF, (group, dlq_topic(group), *_members(facts, group)), count)
    for group, members in list(facts.members.items()):
        for member in () if members is None else members.connection_set:
            yield Sample(m.GROUP_COUNT, (member.client_addr, member.client_id, group), 1)


def _members(facts: Facts, group: str) -> tuple[str, str]:
    members = facts.members.get(group)
    if members is None:
        return "0", _CLUSTERING
    model = _BROADCASTING if members.message_model is MessageModel.BROADCASTING else _CLUSTERING
    return str(len(members.connection_set)), model


def _clients(facts: Facts) -> Iterator[Sample | None]:
    for (group, client_id), info in list(facts.running.items()):
        members = facts.members.get(group)
        found = () if members is None else members.connection_set
        address = next((member.client_addr for member in found if member.client_id == client_id), "")
        for topic, status in info.status_table.items():
            labels = (address, client_id, group, topic)
            yield Sample(m.CLIENT_FAILED, labels, status.consume_failed_msgs)
            yield Sample(m.CLIENT_FAILED_TPS, labels, status.consume_failed_tps)
            yield Sample(m.CLIENT_OK_TPS, labels, status.consume_ok_tps)
            yield Sample(m.CLIENT_RT, labels, status.consume_rt)
            yield Sample(m.CLIENT_PULL_RT, labels, status.pull_rt)
            yield Sample(m.CLIENT_PULL_TPS, labels, status.pull_tps)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _first(text: str) -> float:
    words = text.split()
    return (_number(words[0]) if words else None) or 0.0


def _bytes(text: str) -> float | None:
    """`12.5 GiB` as a number of bytes."""
    found = _SIZE.search(text)
    return None if found is None else float(found[1]) * 1024 ** _UNITS.index(found[2] or " ")
