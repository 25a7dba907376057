"""`admin.offsets`: where queues begin and end, and where groups continue.

An online group's consumers keep its offsets and commit them every few seconds, so only they can change them. An offline
group's offsets are changed at the brokers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import BrokerError, ConsumerNotOnline, NoMessage
from pyromq.protocol.bodies import ResetOffsetBody, TopicStatsTable
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import (
    CloneGroupOffset,
    GetConsumerConnectionList,
    GetEarliestStoreTime,
    GetEarliestStoreTimeReply,
    GetMaxOffset,
    GetMinOffset,
    GetTopicStatsInfo,
    OffsetReply,
    QueryConsumerOffset,
    ResetOffset,
    SearchOffset,
    UpdateConsumerOffset,
)

from .fan_out import fan_out
from .times import from_millis, to_millis

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyromq.protocol.header import Header
    from pyromq.protocol.message_queue import MessageQueue

    from .addresses import Addresses
    from .groups import GroupAdmin
    from .requests import Requests

_END = -1  # in place of a time: behind the last message


@dataclass(frozen=True, slots=True)
class ResetResult:
    """Where a group continues. `online` names the brokers whose consumers were told, `offline` the others."""

    offsets: dict[MessageQueue, int]
    online: tuple[str, ...]
    offline: tuple[str, ...]


class OffsetAdmin:
    """Operations on offsets."""

    def __init__(self, requests: Requests, addresses: Addresses, groups: GroupAdmin) -> None:
        self._requests = requests
        self._addresses = addresses
        self._groups = groups

    # Of queues

    async def minimum(self, queue: MessageQueue) -> int:
        """The offset of the oldest message in the queue."""
        address = await self._addresses.master_of(queue)
        return await self._ask(address, RequestCode.GET_MIN_OFFSET, GetMinOffset(queue.topic, queue.queue_id))

    async def maximum(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._find(await self._addresses.master_of(queue), queue, _END)

    async def at_time(self, queue: MessageQueue, when: datetime) -> int:
        """The offset of the first message stored at this time or later, as exactly as brokers know it.

        4.9 brokers choose the nearest message, and the last one for any later time.
        """
        return await self._find(await self._addresses.master_of(queue), queue, to_millis(when))

    async def earliest_store_time(self, queue: MessageQueue) -> datetime:
        """When the oldest message was stored. Raises NoMessage if there is none."""
        address = await self._addresses.master_of(queue)
        header = GetEarliestStoreTime(queue.topic, queue.queue_id)
        reply = await self._requests.ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        when = from_millis(reply.header(GetEarliestStoreTimeReply).timestamp)
        if when is None:
            raise NoMessage(f"{queue} has no message", address)
        return when

    # Of groups

    async def committed(self, group: str, queue: MessageQueue) -> int:
        """The offset where `group` continues. Raises QueryNotFound if it has none.

        Brokers answer 0 for a group without one while the queue still has its first message in memory.
        """
        address = await self._addresses.master_of(queue)
        header = QueryConsumerOffset(group, queue.topic, queue.queue_id)
        return await self._ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)

    async def set(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Set the offsets of an offline group. An online one overwrites them."""
        addresses: dict[MessageQueue, str] = {}
        for topic in dict.fromkeys(queue.topic for queue in offsets):
            masters = await self._addresses.masters_of(topic)
            for queue in offsets:
                if queue.topic == topic:
                    addresses[queue] = masters.get(queue.broker_name) or await self._addresses.master_of(queue)
        answers = await fan_out(
            list(offsets),
            lambda queue: self._commit(addresses[queue], group, queue, offsets[queue]),
            f"set offsets of group {group}",
        )
        answers.check()

    async def reset(
        self, group: str, topic: str, to: datetime | None, *, force: bool = True, offline: bool = False
    ) -> ResetResult:
        """Move a group to the first message stored since `to`, or, with None, to the end.

        Each broker tells its consumers; where there are none, or everywhere with `offline`, the offsets are set.
        Without `force` the group only moves back, never forward. Consumers take a moment and may get messages twice. If
        a broker fails, PartialFailure has the results of the others in `partial`.
        """
        millis = _END if to is None else to_millis(to)
        masters = await self._addresses.masters_of(topic)

        async def at(address: str) -> tuple[dict[MessageQueue, int], bool]:
            if not offline:
                told = await self._reset_online(address, group, topic, millis, force=force)
                if told is not None:
                    return told, True
            return await self._reset_offline(address, group, topic, millis, force=force), False

        answers = await fan_out(masters, at, f"reset group {group} in topic {topic}")
        result = ResetResult(
            {queue: offset for table, _ in answers.results.values() for queue, offset in sorted(table.items())},
            online=tuple(name for name, (_, told) in answers.results.items() if told),
            offline=tuple(name for name, (_, told) in answers.results.items() if not told),
        )
        answers.check(result)
        return result

    async def clone(self, source: str, target: str, topic: str | None = None, *, offline: bool = False) -> list[str]:
        """Copy the offsets of one group to another, in one topic or all; returns the topics.

        If `source` is online, brokers skip topics it does not subscribe to, unless `offline` is set. Raises
        ConsumerNotOnline if `source` has no offsets.
        """
        serving = await (self._addresses.serving(topic) if topic else self._addresses.serving_group(source))

        async def at(address: str) -> list[str]:
            stats = await self._groups.stats_at(address, source, topic)
            topics = sorted({queue.topic for queue in stats.offset_table})
            # One by one: asked for all topics at once, Apache's brokers do nothing.
            for each_topic in topics:
                header = CloneGroupOffset(source, target, each_topic, offline)
                await self._requests.ask(address, RequestCode.CLONE_GROUP_OFFSET, header)
            return topics

        answers = await fan_out(serving, at, f"clone offsets of group {source}")
        topics = sorted({each_topic for found in answers.results.values() for each_topic in found})
        answers.check(topics)
        if not topics:
            raise ConsumerNotOnline(
                f"group {source} has no offset{f' in topic {topic}' if topic else ''} on any broker"
            )
        return topics

    # How

    async def _reset_online(
        self, address: str, group: str, topic: str, millis: int, *, force: bool
    ) -> dict[MessageQueue, int] | None:
        """Have the broker tell the consumers; None if there are none."""
        header = ResetOffset(topic, group, millis, force)
        try:
            reply = await self._requests.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        except ConsumerNotOnline:
            return None
        except BrokerError:
            # A queue without an offset is a reason to refuse that brokers find before they look for consumers.
            if await self._is_online(address, group):
                raise
            return None
        return ResetOffsetBody.decode(reply.body_bytes).offset_table

    async def _is_online(self, address: str, group: str) -> bool:
        try:
            header = GetConsumerConnectionList(group)
            await self._requests.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except ConsumerNotOnline:
            return False
        return True

    async def _reset_offline(
        self, address: str, group: str, topic: str, millis: int, *, force: bool
    ) -> dict[MessageQueue, int]:
        known = (await self._groups.stats_at(address, group, topic)).offset_table
        current: dict[MessageQueue, int | None] = {queue: row.consumer_offset for queue, row in known.items()}
        if not current:
            reply = await self._requests.ask(address, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfo(topic))
            current = dict.fromkeys(TopicStatsTable.decode(reply.body_bytes).offset_table)

        async def move(queue: MessageQueue) -> tuple[MessageQueue, int]:
            before = current[queue]
            target = goal(before, await self._find(address, queue, millis), force=force)
            if target != before:
                await self._commit(address, group, queue, target)
            return queue, target

        answers = await fan_out(list(current), move, f"reset group {group}")
        moved = dict(answers.results.values())
        answers.check(moved)
        return moved

    async def _find(self, address: str, queue: MessageQueue, millis: int) -> int:
        """The offset at a time, or the end."""
        if millis == _END:
            return await self._ask(address, RequestCode.GET_MAX_OFFSET, GetMaxOffset(queue.topic, queue.queue_id))
        header = SearchOffset(queue.topic, queue.queue_id, millis)
        return await self._ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _ask(self, address: str, code: int, header: Header) -> int:
        return (await self._requests.ask(address, code, header)).header(OffsetReply).offset

    async def _commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)
        await self._requests.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


def goal(current: int | None, found: int, *, force: bool) -> int:
    """Where a group at `current` continues if it should go to `found`: without `force`, never forward."""
    return found if force or current is None else min(current, found)
