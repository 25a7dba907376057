"""AssignedQueues: the queues a pull consumer reads now, its buffered messages and its positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .poll_buffer import PollBuffer
from .poll_reader import PollReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyromq.protocol.bodies.heartbeat import SubscriptionData
    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client
    from ..tasks import Tasks
    from .poll_reader import ReadSettings
    from .process_queue import ProcessQueue


class AssignedQueues:
    """One PollReader and task per queue, and the buffer they all fill. Only those tasks ever wait.

    `moved` has the positions that changed since they were last collected, for the next commit.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        tasks: Tasks,
        settings: ReadSettings,
        max_buffered: int,
        *,
        subscription: Callable[[str], SubscriptionData | None],
        start: Callable[[MessageQueue], Awaitable[int | None]],
    ) -> None:
        self._client = client
        self._group = group
        self._tasks = tasks
        self._settings = settings
        self._subscription = subscription
        self._start = start
        self.buffer: PollBuffer[PollReader, MessageExt] = PollBuffer(max_buffered)
        self.readers: dict[MessageQueue, PollReader] = {}
        self.moved: dict[MessageQueue, int] = {}

    def add(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int | None) -> None:
        """Read `queue` from `offset` on, or from where `start` says."""
        reader = PollReader(
            self._client,
            self._group,
            queue,
            process_queue,
            self.buffer,
            self._settings,
            subscription=self._subscription,
            start=self._start,
            passed=self._note,
            offset=offset,
        )
        self.readers[queue] = reader
        self._run(reader)

    def remove(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        """Stop reading `queue`, if it is still read into `process_queue`."""
        reader = self.readers.get(queue)
        if reader is None or reader.process_queue is not process_queue:
            return
        process_queue.dropped = True
        del self.readers[queue]
        self.moved.pop(queue, None)
        self.buffer.discard(reader)
        if reader.task is not None:
            reader.task.cancel()

    def clear(self) -> None:
        """Stop reading."""
        for queue, reader in tuple(self.readers.items()):
            self.remove(queue, reader.process_queue)

    def take(self, most: int | None) -> list[tuple[MessageQueue, Sequence[MessageExt]]]:
        """Hand out what is buffered: the first batch, or up to `most` messages."""
        taken = self.buffer.take(most)
        for reader, messages in taken:
            reader.hand_out(messages)
            self._note(reader)
        return [(reader.queue, messages) for reader, messages in taken]

    def go_on_at(self, reader: PollReader, offset: int) -> None:
        """Drop what was pulled from a queue, and read it from `offset` on."""
        # A cancelled task does not get past its await: no answer to an old pull can come in between.
        if reader.task is not None:
            reader.task.cancel()
        reader.seek(offset)
        self._note(reader)
        self._run(reader)

    def positions(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """The next offset to hand out for each queue, as far as known."""
        return {
            queue: reader.position
            for queue, reader in self.readers.items()
            if reader.position is not None and topic in (None, queue.topic)
        }

    def _run(self, reader: PollReader) -> None:
        reader.task = self._tasks.spawn(f"pull {reader.queue}", reader.run)

    def _note(self, reader: PollReader) -> None:
        if reader.position is not None:
            self.moved[reader.queue] = reader.position
