"""Assigns queues to members that let the broker decide (400), and keeps whether a group pulls or pops (401).

Clients that do not rebalance themselves ask every 20 seconds. In POP mode each may have all queues of every broker, as
queue -1, or, with `popShareQueueNum`, those of some members.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import (
    NoPermission,
    PyroMQError,
    SubscriptionGroupNotExist,
    TopicNotFound,
)
from pyromq.protocol.bodies import (
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModeTable,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    TopicRouteData,
)
from pyromq.protocol.bodies.heartbeat import MessageModel
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import GetRouteInfo
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import RETRY_PREFIX
from pyromq.protocol.permissions import PERM_READ
from pyromq.remoting import with_body
from pyromq.remoting.name_servers import NameServers

from .held_pops import ANY_QUEUE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyromq.remoting import Connection, Processor, RemotingClient

    from ..context import Context, Tables

logger = logging.getLogger(__name__)

_FRESH_MS = 5000
_REMEMBERED = 10_000
_PATIENCE = 3.0  # seconds
_MOST_QUEUES = 65_536  # of a topic on one broker, whatever a route says


class RequestModes:
    """How groups consume topics, where an operator set it. Each change sets `dirty`."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        self.dirty = False

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        return self._by_topic.get(topic, {}).get(group)

    def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        self._by_topic.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.dirty = True

    def snapshot(self) -> MessageRequestModeTable:
        """A copy of the table that does not change, for another thread."""
        table = {topic: groups.copy() for topic, groups in self._by_topic.items()}
        return MessageRequestModeTable(message_request_mode_map=table)

    def load(self, saved: MessageRequestModeTable) -> None:
        self._by_topic = {topic: dict(groups) for topic, groups in saved.message_request_mode_map.items()}
        self.dirty = False

    def take_over(self, masters: MessageRequestModeTable) -> bool:
        """Become what the master's table is. False if it is that."""
        if masters == self.snapshot():
            return False
        self.load(masters)
        self.dirty = True
        return True


class AssignmentProcessors:
    """Assigns queues. `name_servers` gives their addresses, to look up routes; `saved` waits for the modes' file."""

    def __init__(
        self,
        context: Context,
        tables: Tables,
        modes: RequestModes,
        client: RemotingClient,
        *,
        name_servers: Callable[[], Sequence[str]],
        saved: Callable[[], Awaitable[None]],
    ) -> None:
        self._modes = modes
        self._clients = tables.clients
        self._topics = tables.topics
        self._groups = tables.groups
        self._live = context.live
        self._clock = context.clock
        self._client = client
        self._name_servers = name_servers
        self._saved = saved
        self._routes: dict[str, tuple[int, list[MessageQueue] | None]] = {}

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.QUERY_ASSIGNMENT: with_body(QueryAssignmentRequestBody.decode, self.query),
            RequestCode.SET_MESSAGE_REQUEST_MODE: with_body(SetMessageRequestModeRequestBody.decode, self.set_mode),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    async def query(self, connection: Connection, request: Command, body: QueryAssignmentRequestBody) -> Command:
        mode = self._modes.get(body.topic, body.consumer_group) or self._default_mode(body.topic)
        queues = await self._assigned(body, mode)
        assignments = None
        if queues is not None:
            assignments = [MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in queues]
        return request.reply(body=QueryAssignmentResponseBody(message_queue_assignments=assignments).encode())

    async def set_mode(
        self, connection: Connection, request: Command, mode: SetMessageRequestModeRequestBody
    ) -> Command:
        if mode.topic.startswith(RETRY_PREFIX):
            raise NoPermission("retry topic is not allowed to set mode")
        if mode.topic not in self._topics:
            raise TopicNotFound(f"topic[{mode.topic}] not exist")
        if self._groups.get(mode.consumer_group) is None:
            raise SubscriptionGroupNotExist("subscription group does not exist")
        self._modes.set(mode)
        logger.info("group %s consumes %s by %s", mode.consumer_group, mode.topic, mode.mode.value)
        await self._saved()
        return request.reply()

    def all_modes(self, connection: Connection, request: Command) -> Command:
        return request.reply(body=self._modes.snapshot().encode())

    def _default_mode(self, topic: str) -> SetMessageRequestModeRequestBody:
        config = self._live.config
        # A group's own retry topic, which send-back fills, is always pulled from.
        mode = MessageRequestMode.PULL if topic.startswith(RETRY_PREFIX) else config.default_request_mode
        return SetMessageRequestModeRequestBody(mode=mode, pop_share_queue_num=config.default_pop_share)

    async def _assigned(
        self, body: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody
    ) -> list[MessageQueue] | None:
        """The queues of a member; None if they cannot be determined."""
        queues = await self._queues(body.topic)
        if queues is None or body.message_model is MessageModel.BROADCASTING:
            return queues
        if not self._live.config.server_load_balancer:
            return queues
        group = self._clients.consumer_group(body.consumer_group)
        if group is None:
            return None
        members = sorted({member.client_id for member in group.connections.values()})
        if mode.mode is MessageRequestMode.POP:
            return share_for_pop(body.strategy_name, body.client_id, queues, members, mode.pop_share_queue_num)
        return share(body.strategy_name, body.client_id, queues, members)

    async def _queues(self, topic: str) -> list[MessageQueue] | None:
        """All readable queues of a topic on all brokers, sorted."""
        now = self._clock()
        known = self._routes.get(topic)
        if known is not None and 0 <= now - known[0] < _FRESH_MS:
            return known[1]
        queues = await self._asked(topic)
        if queues is None:
            queues = self._own(topic)
        if len(self._routes) >= _REMEMBERED:
            self._routes.clear()
        self._routes[topic] = (now, queues)
        return queues

    async def _asked(self, topic: str) -> list[MessageQueue] | None:
        addresses = self._name_servers()
        if not addresses:
            return None
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic))
        try:
            reply = await NameServers(self._client, addresses).invoke(request, _PATIENCE)
            route = TopicRouteData.decode(reply.body_bytes) if reply.code == 0 else None
        except PyroMQError as exc:
            logger.warning("the route of %s is not known: %s; assigning queues of this broker", topic, exc)
            return None
        if route is None:
            return None
        return sorted(
            MessageQueue(topic=topic, broker_name=queue.broker_name, queue_id=number)
            for queue in route.queue_datas
            if queue.perm & PERM_READ
            for number in range(min(queue.read_queue_nums, _MOST_QUEUES))
        )

    def _own(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        name = self._live.config.broker_name
        return [
            MessageQueue(topic=topic, broker_name=name, queue_id=number) for number in range(config.read_queue_nums)
        ]


def share(
    strategy: str | None, member: str, queues: list[MessageQueue], members: list[str]
) -> list[MessageQueue] | None:
    """The queues of one member, as a client would compute them; None for an unknown strategy."""
    if strategy not in ("AVG", "AVG_BY_CIRCLE"):
        return None
    if member not in members:
        return []
    index, count = members.index(member), len(members)
    if strategy == "AVG_BY_CIRCLE":
        return queues[index::count]
    size, more = divmod(len(queues), count)
    start = index * size + min(index, more)
    return queues[start : start + size + (index < more)]


def share_for_pop(
    strategy: str | None, member: str, queues: list[MessageQueue], members: list[str], others: int
) -> list[MessageQueue] | None:
    """The queues of a member in POP mode: all, or its own and those of the next members."""
    if others <= 0 or others >= len(members) - 1:
        return [
            MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=ANY_QUEUE)
            for queue in {queue.broker_name: queue for queue in queues}.values()
        ]
    if member not in members:
        return []
    index = members.index(member)
    if len(members) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    found: dict[MessageQueue, None] = {}
    for number in range(index, index + others + 1):
        part = share(strategy, members[number % len(members)], queues, members)
        if part is None:
            return None
        found |= dict.fromkeys(part)
    return list(found)
