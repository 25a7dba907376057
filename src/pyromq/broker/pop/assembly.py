"""The parts of POP, put together for the broker's assembly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.store.metadata.json_files import pop_orders_file, request_modes_file

from .access import PopAccess
from .acks import AckProcessors
from .assignment import AssignmentProcessors, RequestModes
from .held_pops import HeldPops
from .log import PopLog
from .offsets import PopOffsets
from .orders import PopOrders
from .peek import LookProcessors
from .pop import PopProcessor
from .reading import PopReader
from .recovery import follow_checkpoints
from .revive import Reviver

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from pyromq.remoting import Processor, RemotingClient
    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..appends import Appends
    from ..clients.connected import Clients
    from ..config import LiveConfig
    from ..groups import GroupTable
    from ..kept_files import BrokerState
    from ..offsets.consumer_offsets import ConsumerOffsets
    from ..stats.statistics import Statistics
    from ..timers.delivery import TimerService
    from ..topics import TopicTable

_LONGEST_TOPIC = 255
_LONGEST_TOPIC_49 = 127


class PopParts:
    """POP of one broker. `load` it after the state, and `settle` it before the state is saved for good."""

    def __init__(
        self,
        store: MessageStore,
        appends: Appends,
        timers: TimerService,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        stats: Statistics,
        live: LiveConfig,
        clock: Callable[[], int],
        *,
        store_host: bytes,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._live = live
        self._clock = clock
        held = self._held = HeldPops()
        self._notifications = HeldPops()
        self._log = PopLog(store, appends, live, clock, store_host)
        self._pop_offsets = PopOffsets(offsets)
        self._orders = PopOrders(clock)
        self._modes = RequestModes()
        self._access = PopAccess(store, topics, groups, live)
        self._reader = PopReader(store, topics, self._pop_offsets, self._orders, live)
        self._pops = PopProcessor(
            *(self._access, self._reader, self._log, self._orders, held, stats, live, clock),
            longest_topic=_LONGEST_TOPIC_49 if store.config.compatible_49 else _LONGEST_TOPIC,
        )
        self._reviver = Reviver(
            *(store, appends, self._log, topics, groups, offsets, self._pop_offsets, stats, live),
            delivered_before=lambda: timers.delivered_before,
        )

    @property
    def _revive_queues(self) -> int:
        """How many there are; those of a time when more were set are looked at, too."""
        numbers = (queue.queue_id + 1 for queue in self._store.queues.of_topic(self._log.topic))
        return max((self._live.config.revive_queues, *numbers))

    def keep(self, state: BrokerState) -> None:
        """Let what must be remembered have its files."""
        state.keep(pop_orders_file(self._store.root), self._orders)
        self._modes_file = state.keep(request_modes_file(self._store.root), self._modes)

    def load(self) -> None:
        """Go on where the last broker ended."""
        follow_checkpoints(self._store, self._log.topic, self._offsets)
        self._reviver.load(self._revive_queues)

    def processors(
        self, clients: Clients, client: RemotingClient, name_servers: Callable[[], Sequence[str]]
    ) -> dict[int, Processor]:
        acks = AckProcessors(
            *(self._access, self._log, self._pop_offsets, self._orders, self._held, self._live, self._clock),
            revive_queues=self._revive_queues,
        )
        looks = LookProcessors(self._access, self._reader, self._pops, self._held, self._notifications, self._clock)
        assignments = AssignmentProcessors(
            *(self._modes, clients, self._topics, self._groups, self._live, self._clock, client, name_servers),
            saved=self._modes_file.saved,
        )
        return self._pops.table() | acks.table() | looks.table() | assignments.table()

    def services(self) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        yield "revive popped messages", self._reviver.run()
        yield "commit pops", self._reviver.follow()

    def arrived(self, queue: ConsumeQueue) -> None:
        """A queue got messages."""
        self._held.arrived(queue)
        self._notifications.arrived(queue)

    def stop(self) -> None:
        """Answer all who wait, and store what was acknowledged in this turn."""
        self._pops.stop()
        self._held.stop()
        self._notifications.stop()
        self._log.flush()

    async def settle(self) -> None:
        """Commit how far groups are."""
        await self._reviver.settle()

    def forget_topic(self, topic: str) -> None:
        self._held.forget(topic)
        self._notifications.forget(topic)
        self._orders.forget_topic(topic)
        self._pop_offsets.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        self._orders.forget_group(group)
