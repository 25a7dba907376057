"""Puts the parts of POP together for the broker's assembly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.store.metadata.json_files import pop_orders_file, request_modes_file

from .access import PopAccess
from .acks import AckProcessors
from .assignment import AssignmentProcessors, RequestModes
from .context import PopContext
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
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..context import Context, Tables
    from ..kept_files import BrokerState
    from ..timers.delivery import TimerService

_LONGEST_TOPIC = 255
_LONGEST_TOPIC_49 = 127


class PopParts:
    """POP of one broker. Call `load` after loading the kept files, and `settle` before their last save."""

    def __init__(
        self,
        context: Context,
        tables: Tables,
        state: BrokerState,
        client: RemotingClient,
        *,
        timers: TimerService,
        name_servers: Callable[[], Sequence[str]],
    ) -> None:
        """`state` keeps its files; `timers` tell how far they have been delivered."""
        store = self._store = context.store
        self._live = context.live
        self._offsets = tables.offsets
        offsets = PopOffsets(tables.offsets)
        orders = PopOrders(context.clock)
        pop = self._pop = PopContext(
            access=PopAccess(context, tables),
            offsets=offsets,
            orders=orders,
            log=PopLog(context),
            reader=PopReader(context, tables.topics, offsets, orders),
            held=HeldPops(),
            notifications=HeldPops(),
        )
        self._waiting = pop.held, pop.notifications
        self._reviver = Reviver(context, tables, pop, timers)
        state.keep(pop_orders_file(store.root), orders)
        modes = self.modes = RequestModes()
        modes_file = state.keep(request_modes_file(store.root), modes)

        longest_topic = _LONGEST_TOPIC_49 if store.config.compatible_49 else _LONGEST_TOPIC
        self._pops = PopProcessor(context, pop, longest_topic=longest_topic)
        assignments = AssignmentProcessors(
            context, tables, modes, client, name_servers=name_servers, saved=modes_file.saved
        )
        self.processors: dict[int, Processor] = {
            **self._pops.table(),
            **AckProcessors(context, pop, self._revive_queues).table(),
            **LookProcessors(context, pop, self._pops).table(),
            **assignments.table(),
        }

    @property
    def _revive_queues(self) -> int:
        """How many there are, counting those left from a time when more were configured."""
        numbers = (queue.queue_id + 1 for queue in self._store.queues.of_topic(self._pop.log.topic))
        return max((self._live.config.revive_queues, *numbers))

    def load(self) -> None:
        """Continue where the last run ended."""
        follow_checkpoints(self._store, self._pop.log.topic, self._offsets)
        self._reviver.load(self._revive_queues)

    def services(self) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        yield "revive popped messages", self._reviver.run()
        yield "commit pops", self._reviver.follow()

    def arrived(self, queue: ConsumeQueue) -> None:
        """A queue got messages."""
        for held in self._waiting:
            held.arrived(queue)

    def stop(self) -> None:
        """Answer all waiting pops, and store the acks of this turn."""
        self._pops.stop()
        for held in self._waiting:
            held.stop()
        self._pop.log.flush()

    async def settle(self) -> None:
        """Commit the offsets of all groups."""
        await self._reviver.settle()

    def forget_topic(self, topic: str) -> None:
        for held in self._waiting:
            held.forget(topic)
        self._pop.orders.forget_topic(topic)
        self._pop.offsets.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        self._pop.orders.forget_group(group)
