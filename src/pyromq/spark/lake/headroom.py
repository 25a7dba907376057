"""Before the broker forgets: how much time an archive has left, and telling brokers how far it is.

A broker deletes old files whether or not they are archived. `headroom` says how long the oldest message that is not
archived has left, so that somebody hears of an archive that stands still while nothing is lost yet. And an archive
reports its positions after each commit (`report_archived`), as the offsets of a consumer group of its own: every broker
keeps those, and its slaves copy them. A PyroMQ broker with `archiveBeforeDelete=true` then keeps what is not
archived; any other at most shows a group more.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyromq.client.admin.headroom import Alarm, alarm, duration
from pyromq.errors import PyroMQError, RouteNotFound, SubscriptionGroupNotExist
from pyromq.protocol.names import ARCHIVE_GROUP_PREFIX

from ..blocking_client import Link
from ..source.broker_metadata import BrokerMetadata
from ..source.offsets import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from ..options import SourceOptions

logger = logging.getLogger(__name__)

_AT_ONCE = 16
_TAIL = 40
# What RocketMQ's brokers do unless told otherwise.
_RETENTION = 72 * 3600.0
_FORCED = 85.0


def archive_group(root: str) -> str:
    """The group that stands for the archive below `root`. Two archives of a topic are two groups."""
    root = root.rstrip("/")
    tail = re.sub(r"[^A-Za-z0-9_-]+", "_", root.rpartition("/")[2])[:_TAIL]
    return f"{ARCHIVE_GROUP_PREFIX}{tail}_{hashlib.sha256(root.encode()).hexdigest()[:8]}"


def report_archived(link: Link, root: str, positions: Mapping[MessageQueue, int]) -> None:
    """Tell brokers that the archive below `root` has every message of these queues up to its position, exclusive.

    Call it after each commit, with all positions of the table: a broker may have lost the last report. It never fails;
    a broker that did not take it keeps more than it has to, and hears the next one.
    """
    link.run(_report(link, archive_group(root), positions))


async def _report(link: Link, group: str, positions: Mapping[MessageQueue, int]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)
    silent: dict[str, str] = {}  # brokers that need not be asked again, and why

    async def tell(queue: MessageQueue, position: int) -> None:
        async with gate:
            if queue.broker_name in silent:
                return
            try:
                address = await _master_of(link, queue)
                await link.client.calls.update_offset(address, group, link.on_wire(queue), position, oneway=False)
            except SubscriptionGroupNotExist:
                silent[queue.broker_name] = ""  # a RocketMQ 5, which keeps offsets of groups that it knows
            except PyroMQError as exc:
                silent[queue.broker_name] = str(exc)

    await asyncio.gather(*(tell(*each) for each in positions.items()))
    for broker, reason in silent.items():
        if reason:
            logger.warning("%s does not know how far the archive is: %s", broker, reason)


async def _master_of(link: Link, queue: MessageQueue) -> str:
    address = link.replica(queue.broker_name, only_this=True)
    if address is None:
        await link.client.routes.refresh(link.namespace.wrap(queue.topic))
        address = link.replica(queue.broker_name, only_this=True)
    if address is None:
        raise RouteNotFound(f"no route has a master of {queue.broker_name}")
    return address


@dataclass(frozen=True, slots=True)
class Headroom:
    """How the archive of a topic stands against what its brokers delete."""

    topic: str
    lake_headroom_seconds: float  # until a broker may delete something that is not archived; never negative
    retention_seconds: float  # how long that broker keeps messages
    unarchived: int  # messages
    lost: int  # messages that were deleted before they were archived
    oldest: datetime | None = None  # when the oldest message was stored that is not archived; None if all are
    queue: str = ""  # where it is
    note: str = ""

    @property
    def alarm(self) -> Alarm:
        """NONE, WARN for less than 24 hours, ERROR for less than 6, or for messages that are lost."""
        if self.lost:
            return Alarm.ERROR
        return alarm(self.lake_headroom_seconds, self.retention_seconds) if self.unarchived else Alarm.NONE

    def __str__(self) -> str:
        if self.lost:
            return f"{self.topic}: {self.lost} messages were deleted before they were archived"
        if not self.unarchived:
            return f"{self.topic}: all is archived"
        left = duration(self.lake_headroom_seconds)
        text = (
            f"{self.topic}: {self.unarchived} messages are not archived; the oldest, in {self.queue}, has {left} left"
        )
        return f"{text} ({self.note})" if self.note else text


def headroom(options: SourceOptions, topic: str, positions: Mapping[MessageQueue, int]) -> Headroom:
    """How the table of `topic` with these positions stands. Asks brokers; PyroMQError if one does not answer."""
    with Link(options) as link:
        return link.run(find_headroom(BrokerMetadata(link, options), topic, positions, time.time()))


async def find_headroom(
    metadata: BrokerMetadata, topic: str, positions: Mapping[MessageQueue, int], now: float
) -> Headroom:
    """As `headroom`, with what an archive has at hand; `metadata` must see `topic`."""
    sight = await metadata.look_hard()
    behind, unarchived, lost = {}, 0, 0
    for queue, (minimum, maximum) in sight.bounds.items():
        if queue.topic != topic:
            continue
        position = positions.get(queue, minimum)
        lost += max(0, min(minimum, maximum) - position)
        if max(position, minimum) < maximum:
            behind[queue] = max(position, minimum)
            unarchived += maximum - behind[queue]
    kept = {broker: await _kept(metadata, broker) for broker in sorted({queue.broker_name for queue in behind})}
    worst: Headroom | None = None
    for queue, stored in (await metadata.stored_at(behind)).items():
        retention, note = kept[queue.broker_name]
        # It expired between two requests: then it is about to be lost.
        oldest = datetime.fromtimestamp(stored / 1000, UTC) if stored >= 0 else None
        left = 0.0 if note or stored < 0 else max(0.0, retention - (now - stored / 1000))
        if worst is None or left < worst.lake_headroom_seconds:
            worst = Headroom(topic, left, retention, unarchived, lost, oldest, place(queue), note)
    return worst or Headroom(topic, _RETENTION, _RETENTION, unarchived, lost)


async def _kept(metadata: BrokerMetadata, broker: str) -> tuple[float, str]:
    """How long a broker keeps messages; and, if it keeps them no longer at all, why."""
    retention, forced = _RETENTION, _FORCED
    address = metadata.link.replica(broker)
    if address is None:
        return retention, ""
    admin = await metadata.asking()
    try:
        settings = await admin.brokers.config(address)
        retention = float(settings.get("fileReservedTime", _RETENTION / 3600)) * 3600
        forced = float(settings.get("diskSpaceCleanForciblyRatio", _FORCED))
        used = 100 * float((await admin.brokers.runtime(address)).get("commitLogDiskRatio", 0))
    except (PyroMQError, ValueError) as exc:
        # Not every account may ask; the usual time is a better answer than none.
        logger.info("%s does not tell how long it keeps messages: %s; assuming 72 hours", broker, exc)
        return retention, ""
    note = f"the disk of {broker} is {used:.0f} % full, so it deletes messages early" if round(used) > forced else ""
    return retention, note
