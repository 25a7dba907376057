"""AdminClient: everything an operator can ask of a cluster, by subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pyromq.protocol.names import ADMIN_GROUP

from ..client import Client
from .acl import AclAdmin
from .addresses import Addresses
from .brokers import BrokerAdmin
from .clients import ClientAdmin
from .controllers import ControllerAdmin
from .groups import GroupAdmin
from .messages import MessageAdmin
from .name_servers import NameServerAdmin
from .offsets import OffsetAdmin
from .requests import Requests
from .topics import TopicAdmin

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class AdminClient:
    """Inspects and changes a cluster.

        async with AdminClient("localhost:9876") as admin:
            await admin.topics.create("orders", write_queues=4, read_queues=4)
            print((await admin.groups.progress("billing")).lag)

    Something that does not exist raises. Several servers are asked at the same time; if some fail, the operation raises
    PartialFailure, which says who succeeded, who failed and why, and what was found out nevertheless. Names are used
    unchanged: a client's namespace is not added.

    `timeout` covers one request, in seconds. `client` may be shared with producers and consumers.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        timeout: float = 5.0,
        group: str = ADMIN_GROUP,
    ) -> None:
        self._client = client if client is not None else Client(namesrv)
        self._member = _Member(group)
        self._requests = requests = Requests(self._client, timeout)
        addresses = Addresses(requests)
        self.namesrv = NameServerAdmin(requests)
        self.brokers = BrokerAdmin(requests, addresses)
        self.clients = ClientAdmin(requests, addresses)
        self.controllers = ControllerAdmin(requests)
        self.topics = TopicAdmin(requests, addresses, self.namesrv)
        self.groups = GroupAdmin(requests, addresses, self.topics, self.clients)
        self.offsets = OffsetAdmin(requests, addresses, self.groups)
        self.messages = MessageAdmin(requests, addresses, self.topics, self.groups)
        self.acl = AclAdmin(requests, addresses)

    @property
    def client(self) -> Client:
        """The client it uses; producers and consumers may share it."""
        return self._client

    async def start(self) -> Self:
        """Does not need a server to be up. StateError if the client already has an admin of this group."""
        await self._client.join(self._member)
        self._requests.started = True
        return self

    async def close(self) -> None:
        """Always ends. Requests in flight on its own client fail with ConnectionLost."""
        self._requests.started = False
        await self._client.leave(self._member)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


class _Member:
    """The admin as a member of its client."""

    def __init__(self, group: str) -> None:
        self.group = group

    def topics(self) -> Collection[str]:
        return ()

    def route_changed(self, topic: str) -> None:
        """Nothing to do: routes are requested every time."""
