"""Server-side resets: the broker moves a group's offsets itself and tells its members when they pull (5.x).

An operator's 222 stores the new offsets at once and marks the queues. While a queue is marked, no client can commit
another offset there; the group's next pull from that queue is answered with 21 and the offset to continue at, and
clears the mark. So even an offline group can be reset (docs/spec/broker.md 9). Marks do not survive a restart:
by then the offsets are in their file, and consumers ask for them again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import ServerError, SubscriptionGroupNotExist, TopicNotFound
from pyromq.protocol.bodies import ResetOffsetBody
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import PullMessage, ResetOffset, UpdateConsumerOffset
from pyromq.protocol.message_queue import MessageQueue

from ..replication.slave_reads import SlaveReads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pyromq.protocol.bodies import TopicConfig
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor

    from ..context import Context, Tables

    Answer = Command | Awaitable[Command | None] | None

logger = logging.getLogger(__name__)

_NOT_GIVEN = -1  # of an offset or a queue id in the request
_ALREADY_RESET = "Offset has been previously reset"
_OFFSET_RESET = "OFFSET_RESET"


class ServerSideResets:
    """Stands in front of the processors that resets concern. With the setting off, every request goes through to them.

    `wake` is called with a topic whose held pulls should be answered: their clients pull again and learn of the reset.
    """

    def __init__(self, context: Context, tables: Tables, wake: Callable[[str], None]) -> None:
        self._store = context.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._live = context.live
        self._slave_reads = SlaveReads(context.live, tables.groups)
        self._wake = wake
        self._marks: dict[tuple[str, str, int], int] = {}

    def before(self, table: Mapping[int, Processor]) -> dict[int, Processor]:
        """The processors of `table` that resets concern, each wrapped in its check."""
        reset = table[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET]
        commit = table[RequestCode.UPDATE_CONSUMER_OFFSET]
        pulls = {code: table[code] for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)}
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: lambda *asked: self.reset(reset, *asked),
            RequestCode.UPDATE_CONSUMER_OFFSET: lambda *asked: self.commit(commit, *asked),
            **{code: self._pull(pull) for code, pull in pulls.items()},
        }

    # Resetting

    def reset(self, otherwise: Processor, connection: Connection, request: Command) -> Answer:
        """222"""
        if not self._live.config.server_side_reset:
            return otherwise(connection, request)
        header = request.header(ResetOffset)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise TopicNotFound(f"Topic {header.topic} does not exist")
        if self._groups.find(header.group) is None:
            raise SubscriptionGroupNotExist(f"Group {header.group} does not exist")
        targets = self._targets(header, topic)
        if not targets:
            raise ServerError("No queues to reset.")
        for queue_id, offset in targets.items():
            self._offsets.commit(header.group, header.topic, queue_id, offset)
            self._marks[header.group, header.topic, queue_id] = offset
        logger.info(
            "offsets of group %s in topic %s reset by %s: %s", header.group, header.topic, connection.peer, targets
        )
        self._wake(header.topic)
        name = self._live.config.broker_name
        table = {
            MessageQueue(broker_name=name, queue_id=queue_id, topic=header.topic): offset
            for queue_id, offset in targets.items()
        }
        return request.reply(body=ResetOffsetBody(table).encode())

    def _targets(self, header: ResetOffset, topic: TopicConfig) -> dict[int, int]:
        """The new offset of each queue concerned. The request's offset counts only if it names a queue."""
        queue_id = _NOT_GIVEN if header.queue_id is None else header.queue_id
        if queue_id < 0:
            return {each: self._offset_at(header, each) for each in range(topic.read_queue_nums)}
        if queue_id >= topic.read_queue_nums:
            raise ServerError(f"queueId[{queue_id}] is illegal, topic:[{header.topic}]")
        if header.offset is None or header.offset == _NOT_GIVEN:
            return {queue_id: self._offset_at(header, queue_id)}
        queue = self._store.queues.find(header.topic, queue_id)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        if not low <= header.offset <= high + 1:
            raise ServerError(f"Target offset {header.offset} not in consume queue range [{low}-{high}]")
        return {queue_id: header.offset}

    def _offset_at(self, header: ResetOffset, queue_id: int) -> int:
        queue = self._store.queues.find(header.topic, queue_id)
        if queue is None:
            return 0
        timestamp = header.timestamp
        return queue.max_offset if timestamp < 0 else self._store.reader.offset_by_time(queue, timestamp)

    # What a mark means to others

    def commit(self, otherwise: Processor, connection: Connection, request: Command) -> Answer:
        """15: a member that has not heard of the reset yet would undo it."""
        if self._marks:
            header = request.header(UpdateConsumerOffset)
            if (header.consumer_group, header.topic, header.queue_id) in self._valid_marks():
                return request.reply(ResponseCode.SUCCESS, _ALREADY_RESET)
        return otherwise(connection, request)

    def _pull(self, otherwise: Processor) -> Processor:
        def pull(connection: Connection, request: Command) -> Answer:
            # Nearly always there is no mark, and then this costs 0.02 µs (CPython 3.11).
            if self._marks:
                header = request.header(PullMessage)
                mark = (header.consumer_group, header.topic, header.queue_id)
                offset = self._valid_marks().pop(mark, None)
                if offset is not None:
                    return self._moved(request, header, offset)
            return otherwise(connection, request)

        return pull

    def _moved(self, request: Command, header: PullMessage, offset: int) -> Command:
        """21. The offset that the pull would commit predates the reset and is ignored."""
        queue = self._store.queues.find(header.topic, header.queue_id)
        response = request.reply(ResponseCode.PULL_OFFSET_MOVED, _OFFSET_RESET)
        response.ext = {
            "suggestWhichBrokerId": self._slave_reads.suggested(header.consumer_group, is_slow=False),
            "nextBeginOffset": str(offset),
            "minOffset": str(0 if queue is None else queue.min_offset),
            "maxOffset": str(0 if queue is None else queue.max_offset),
        }
        return response

    def _valid_marks(self) -> dict[tuple[str, str, int], int]:
        """The marks; none if the setting is off by now."""
        if not self._live.config.server_side_reset:
            self._marks.clear()
        return self._marks

    def forget_topic(self, topic: str) -> None:
        """The queues of `topic` are gone."""
        self._marks = {mark: offset for mark, offset in self._marks.items() if mark[1] != topic}

    def forget_group(self, group: str) -> None:
        """`group` is gone."""
        self._marks = {mark: offset for mark, offset in self._marks.items() if mark[0] != group}
