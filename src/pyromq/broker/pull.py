"""Pulling: codes 11 and 361, from the request to slices of the commit log (docs/spec/broker.md 6).

A pull that finds nothing is held. When a message arrives in its queue it is looked at again in the same turn of the
event loop, and answered if the message is one that it wants.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pyromq.errors import (
    FilterDataNotExist,
    FilterDataNotLatest,
    NoPermission,
    ServerError,
    StoreError,
    SubscriptionGroupNotExist,
    SubscriptionNotExist,
    SubscriptionNotLatest,
    SubscriptionParseFailed,
    SystemBusy,
    TopicNotFound,
)
from pyromq.protocol.bodies.heartbeat import MessageModel
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.hashing import java_hash
from pyromq.protocol.headers import PullMessage
from pyromq.protocol.names import RETRY_PREFIX
from pyromq.protocol.permissions import PERM_READ
from pyromq.protocol.sysflag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from pyromq.store import GetStatus
from pyromq.store.format import ENTRY

from .filters.consumer_filters import TAG, is_tag_type, not_allowed, selection_of_expression
from .held_pulls import HeldPull, HeldPulls
from .offsets.pulled import PulledOffsets
from .replication.slave_reads import SlaveReads
from .send import FAQ
from .turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyromq.protocol.bodies.heartbeat import SubscriptionData
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import GetResult
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .context import Context, Tables
    from .filters.consumer_filters import Selection, Tags
    from .offsets.room import OffsetRoom

logger = logging.getLogger(__name__)

# A pull that wants more than 800 messages looks at that many entries, and other requests wait meanwhile.
_MOST_WANTED = 16_000
# Up to this many new messages are checked once for all pulls that select by tags.
_FEW = 32

ALL = "*"
_EVERYTHING: Selection = (None, None, None)

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_NOT_FOUND, _MOVED = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED
_EMPTY = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)


class PullProcessor:
    """Serves pulls and keeps those that wait. `offset_moved` is told of pulls outside their queue."""

    def __init__(
        self,
        context: Context,
        tables: Tables,
        room: OffsetRoom,
        offset_moved: Callable[[str, str, int, int, int], None],
    ) -> None:
        self._store = context.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._clients = tables.clients
        self._offsets = tables.offsets
        self._stats = context.stats
        self._live = context.live
        self._filters = tables.filters
        self._room = room
        self._offset_moved = offset_moved
        self._slave_reads = SlaveReads(context.live, tables.groups)
        self._loop = asyncio.get_running_loop()
        self.held = HeldPulls()
        self.pulled = PulledOffsets()
        # The queues whose pulls are being woken, and whether messages came meanwhile.
        self._waking: dict[ConsumeQueue, bool] = {}

    def table(self) -> dict[int, Processor]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, connection: Connection, request: Command) -> Command | None:
        header = request.header(PullMessage)
        selection = self.checked(connection, request, header)
        sys_flag = header.sys_flag
        topic, queue_id, offset = header.topic, header.queue_id, header.queue_offset
        if sys_flag & PULL_COMMIT_OFFSET and not self._live.config.is_slave:
            self.commit(header.consumer_group, topic, queue_id, header.commit_offset)
        queue = self._store.queue(topic, queue_id)
        began = time.monotonic()
        found = self._get(queue, offset, wanted(header), selection)
        self._stats.throughput.pulled(found.count)
        if sys_flag & PULL_SUSPEND and _code(found, offset) is ResponseCode.PULL_NOT_FOUND:
            config = self._live.config
            wait = header.suspend_timeout_millis if config.long_polling else config.short_polling_ms
            deadline = self._loop.time() + wait / 1000
            self._check_room(connection, queue)
            self.held.hold(HeldPull(connection, request, queue, offset, deadline, selection))
            return None
        return self._reply(request, header, offset, found, began)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take the offset that a pull commits, if there is room for one more."""
        if self._room.takes(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, offset)

    def _get(self, queue: ConsumeQueue, offset: int, wanted: int, selection: Selection) -> GetResult:
        return self._store.get(queue, offset, wanted, *selection, joined=True)

    # Pulls that wait

    def _check_room(self, connection: Connection, queue: ConsumeQueue) -> None:
        config = self._live.config
        if self.held.weight >= config.max_held_pulls:
            most, setting = config.max_held_pulls, "maxHeldPulls"
            raise SystemBusy(f"this broker already has {most} waiting pulls, the most allowed ({setting})")
        if self.held.of_connection(connection) >= config.max_held_pulls_per_connection:
            most, setting = config.max_held_pulls_per_connection, "maxHeldPullsPerConnection"
            raise SystemBusy(f"this connection already has {most} waiting pulls, the most allowed ({setting})")
        if self.held.of_queue(queue) >= config.max_held_pulls_per_queue:
            most, setting = config.max_held_pulls_per_queue, "maxHeldPullsPerQueue"
            raise SystemBusy(f"this queue already has {most} waiting pulls, the most allowed ({setting})")

    def arrived(self, queue: ConsumeQueue) -> None:
        """A queue got messages: answer the pulls that wait for them, in this turn if there are not very many."""
        if not self.held.of_queue(queue):
            return
        if queue in self._waking:
            self._waking[queue] = True
            return
        self._waking[queue] = True
        in_turns(self._loop, self._wake(queue))

    def _wake(self, queue: ConsumeQueue) -> Iterator[None]:
        try:
            while self._waking[queue]:
                self._waking[queue] = False
                codes: dict[int, list[int]] = {}
                for pull in self.held.waiting_for(queue):
                    if pull in self.held and self._is_answered(pull, codes):
                        self.held.remove(pull)
                    yield
        finally:
            del self._waking[queue]

    def _is_answered(self, pull: HeldPull, codes: dict[int, list[int]]) -> bool:
        if pull.connection.closed:
            return True
        tags, match, units = pull.selection
        if tags is not None and match is None and units is None and self._passes_over(pull, tags, codes):
            return False
        return self._answer(pull)

    def _passes_over(self, pull: HeldPull, tags: Tags, codes: dict[int, list[int]]) -> bool:
        """Whether none of a few new messages has the tags that a pull waits for. `codes` caches their tags codes."""
        queue, offset = pull.queue, pull.looked_at
        if queue.ext is not None or not queue.min_offset <= offset < queue.max_offset <= offset + _FEW:
            return False
        found = codes.get(offset)
        if found is None:
            found = codes[offset] = [code for _, _, code in ENTRY.iter_unpack(queue.entries(offset, _FEW))]
        if any(map(tags, found)):
            return False
        pull.looked_at = offset + len(found)
        return True

    def _answer(self, pull: HeldPull) -> bool:
        """Answer a held pull if there is something for it now."""
        header = pull.request.header(PullMessage)
        began = time.monotonic()
        found = self._found(pull, header, pull.looked_at)
        if found is None:
            return True
        if found.status is not GetStatus.FOUND:
            if found.status is GetStatus.NO_MATCHED_MESSAGE:
                pull.looked_at = found.next_offset
            if found.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MATCHED_MESSAGE):
                return False
        self._stats.throughput.pulled(found.count)
        pull.connection.reply(pull.request, self._reply(pull.request, header, pull.offset, found, began), held=True)
        return True

    def expire(self) -> None:
        """Answer pulls that have waited long enough or whose client is gone. Call it now and then.

        Also those that messages were passed over for: their consumers learn how far they are, and commit that.
        """
        in_turns(self._loop, self._expire(self._loop.time()))

    def _expire(self, now: float) -> Iterator[None]:
        for queue in self.held.queues():
            for pull in self.held.waiting_for(queue):
                if not pull.goes_on_waiting(now) and self.held.remove(pull):
                    self._give_up(pull)
                yield

    def forget(self, topic: str) -> None:
        """The queues of `topic` are gone: answer the pulls that wait for them."""
        self.pulled.forget_topic(topic)
        for queue in self.held.queues():
            if queue.topic == topic:
                for pull in self.held.waiting_for(queue):
                    self.held.remove(pull)
                    self._give_up(pull)

    def stop(self) -> None:
        """Answer all pulls that wait; the broker is about to stop."""
        for pull in self.held.clear():
            self._give_up(pull)

    def _give_up(self, pull: HeldPull) -> None:
        if pull.connection.closed:
            return
        header = pull.request.header(PullMessage)
        began = time.monotonic()
        # From where it began: what was passed over is then not asked for again.
        found = self._found(pull, header, pull.offset)
        if found is not None:
            pull.connection.reply(pull.request, self._reply(pull.request, header, pull.offset, found, began), held=True)

    def _found(self, pull: HeldPull, header: PullMessage, offset: int) -> GetResult | None:
        """What there is for a held pull. None if it cannot be read: then that was the answer.

        Errors must not reach the senders, other pulls and the timer that call this.
        """
        try:
            return self._get(pull.queue, offset, wanted(header), pull.selection)
        except StoreError as exc:
            pull.connection.reply(pull.request, pull.request.reply(ResponseCode.SYSTEM_ERROR, str(exc)), held=True)
            return None

    # The rules

    def checked(self, connection: Connection, request: Command, header: PullMessage) -> Selection:
        """The checks of 6.2 in their order. Returns what the pull selects messages by."""
        config = self._live.config
        group_name, topic = header.consumer_group, header.topic
        is_lite = request.code == RequestCode.LITE_PULL_MESSAGE
        if not config.broker_permission & PERM_READ:
            raise NoPermission(f"the broker[{config.broker_ip1}] pulling message is forbidden")
        if is_lite and not config.lite_pull:
            raise NoPermission(f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden")
        group = self._groups.get(group_name)
        if group is None:
            raise SubscriptionGroupNotExist(f"subscription group [{group_name}] does not exist, {FAQ}")
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {group_name}")
        topic_config = self._topics.get(topic)
        if topic_config is None:
            raise TopicNotFound(f"topic[{topic}] not exist, apply first please! {FAQ}")
        if not topic_config.perm & PERM_READ:
            raise NoPermission(f"the topic[{topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic_config.read_queue_nums:
            raise ServerError(
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{topic_config.read_queue_nums}] consumer:[/{connection.peer}]"
            )
        selection: Selection
        if header.sys_flag & PULL_SUBSCRIPTION:
            expression_type = header.expression_type
            if not expression_type or expression_type == TAG:
                selection = tags_of_expression(header.subscription), None, None
            else:
                selection = selection_of_expression(expression_type, header.subscription)
                if not config.enable_property_filter:
                    raise not_allowed(expression_type)
        else:
            selection = self._subscribed(header, group.consume_broadcast_enable)
        if config.filter_support_retry and config.enable_property_filter and topic.startswith(RETRY_PREFIX):
            return self._filters.for_retries(selection, topic)
        return selection

    def _subscribed(self, header: PullMessage, may_broadcast: bool) -> Selection:
        live_group = self._clients.consumer_group(header.consumer_group)
        if live_group is None:
            raise SubscriptionNotExist(f"the consumer's group info not exist{FAQ}")
        if live_group.message_model is MessageModel.BROADCASTING and not may_broadcast:
            raise NoPermission(f"the consumer group[{header.consumer_group}] can not consume by broadcast way")
        subscription = live_group.subscriptions.get(header.topic)
        if subscription is None:
            raise SubscriptionNotExist(f"the consumer's subscription not exist{FAQ}")
        if subscription.sub_version < header.sub_version:
            if header.expression_type == TAG and subscription.expression_type in (None, "", TAG):
                # A rebalance gives a subscription a new version, and the heartbeat that says so may be lost: 5.x
                # clients drop it while another is under way, and would be refused until the next, for 30 seconds.
                # A client that selects by tags checks every message again, so sending it too many does no harm.
                return _EVERYTHING
            raise SubscriptionNotLatest("the consumer's subscription not latest")
        if is_tag_type(subscription.expression_type):
            return tags_of_subscription(subscription), None, None
        return self._registered(header, subscription.expression_type)

    def _registered(self, header: PullMessage, expression_type: str) -> Selection:
        """What a group registered to filter by, with the rest of the checks."""
        data = self._filters.get(header.topic, header.consumer_group)
        if data is None:
            raise FilterDataNotExist("The broker's consumer filter data is not exist!Your expression may be wrong!")
        if data.client_version < header.sub_version:
            raise FilterDataNotLatest("the consumer's consumer filter data not latest")
        if not self._live.config.enable_property_filter:
            raise not_allowed(expression_type)
        return data.selection

    # Answers

    def _reply(self, request: Command, header: PullMessage, offset: int, found: GetResult, began: float) -> Command:
        code = _code(found, offset)
        next_offset: int = found.next_offset
        if (code is _MOVED or code is _NOT_FOUND) and self._slave_reads.keeps_offsets:
            next_offset = offset
            if code is _MOVED:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        response = request.reply(code, found.status.value)
        response.ext = {
            "suggestWhichBrokerId": self.suggested(header.consumer_group, found),
            "nextBeginOffset": str(next_offset),
            "minOffset": str(found.min_offset),
            "maxOffset": str(found.max_offset),
        }
        if found.count:
            response.body = found.slices
            self.count(header.consumer_group, header.topic, header.queue_id, found, began)
        elif code is _MOVED:
            self._offset_moved(header.consumer_group, header.topic, header.queue_id, offset, found.next_offset)
        return response

    def suggested(self, group: str, found: GetResult) -> str:
        """The id of the broker to pull from next."""
        return self._slave_reads.suggested(group, is_slow=found.suggest_slave)

    def count(self, group: str, topic: str, queue_id: int, found: GetResult, began: float) -> None:
        """Count messages that a group gets."""
        self.pulled.note(group, topic, queue_id, found.next_offset)
        key = f"{topic}@{group}"
        self._stats.add("GROUP_GET_NUMS", key, found.count)
        self._stats.add("GROUP_GET_SIZE", key, found.size)
        config = self._live.config
        self._stats.add("BROKER_GET_NUMS", config.cluster_name, found.count)
        millis = int((time.monotonic() - began) * 1000)
        self._stats.add_latency(topic, queue_id, group, millis, detailed=config.enable_detail_stat)


def wanted(header: PullMessage) -> int:
    """How many messages a pull gets at most."""
    return min(header.max_msg_nums, _MOST_WANTED)


def _code(found: GetResult, offset: int) -> ResponseCode:
    if found.status in _EMPTY:
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[found.status]


def tags_of_expression(expression: str | None) -> Tags | None:
    """What a tag expression, `A || B`, selects; None for everything."""
    if not expression or expression == ALL:
        return None
    tags = [tag for part in expression.split("||") if (tag := part.strip())]
    if not tags:
        raise SubscriptionParseFailed("parse the consumer's subscription failed")
    return _matcher(frozenset(map(java_hash, tags)))


def tags_of_subscription(subscription: SubscriptionData) -> Tags | None:
    """What a consumer's heartbeat said it wants; None for everything."""
    if not subscription.sub_string or subscription.sub_string == ALL:
        return None
    return (
        _matcher(frozenset(subscription.code_set))
        if subscription.code_set
        else tags_of_expression(subscription.sub_string)
    )


def _matcher(hashes: frozenset[int]) -> Tags:
    # Of a tags code only the lowest 32 bits are the hash of the tag.
    return lambda tags_code: ((tags_code + 2**31) & 0xFFFFFFFF) - 2**31 in hashes
