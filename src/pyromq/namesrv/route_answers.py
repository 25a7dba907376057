"""GET_ROUTEINFO_BY_TOPIC: the one request that every client keeps sending.

A route changes when a broker comes, goes or changes its topics, and clients ask for it thousands of times in between;
so its encoded body is cached until the tables change. `answer` is the fast path with cached bodies, `answer_plainly`
the general one without; they give the same replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import ServerError, TopicNotFound
from pyromq.protocol.headers import GetRouteInfo

from . import views
from .kv_config import ORDER_TOPIC_CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection

    from .kv_config import KVConfig
    from .live_settings import LiveSettings
    from .routes import RouteTables


class RouteAnswers:
    """Answers 105 from the tables. `clock` gives milliseconds; service counts from the moment this is made."""

    def __init__(
        self,
        tables: RouteTables,
        kv_config: KVConfig,
        settings: LiveSettings,
        clock: Callable[[], int],
    ) -> None:
        self._tables = tables
        self._kv_config = kv_config
        self._settings = settings
        self._clock = clock
        self._started = clock()
        self._bodies: dict[str, bytes] = {}
        self._revision = tables.revision  # of the tables that the cached bodies were made from

    def answer(self, connection: Connection, request: Command) -> Command:
        """The processor of 105."""
        ext = request.ext
        if ext is not None and self._revision == self._tables.revision and "__ZONE_MODE" not in ext:
            body = self._bodies.get(ext.get("topic", ""))
            if body is not None:
                return request.reply(body=body)
        return self.answer_plainly(request)

    def forget(self) -> None:
        """Drop the cached bodies because KV config or settings changed. Changes of the tables need no call."""
        self._bodies.clear()

    def answer_plainly(self, request: Command) -> Command:
        """Like `answer`, straight from the tables. TopicNotFound if nobody serves the topic."""
        config = self._settings.config
        waited = self._clock() - self._started
        if config.need_wait_for_service and waited < config.wait_seconds_for_service * 1000:
            raise ServerError("name server not ready")
        header = request.header(GetRouteInfo)
        zone = (header.zone_name or "").strip() if header.zone_mode else ""
        body = self.body(header.topic, zone or None)
        if body is None:
            raise not_found(header.topic)
        if not zone:
            self._keep(header.topic, body)
        return request.reply(body=body)

    def body(self, topic: str, zone: str | None = None) -> bytes | None:
        """The encoded route, without the cache."""
        config = self._settings.config
        wants_order = config.order_message_enable or config.cluster_test
        found = views.route(
            self._tables,
            topic,
            order_conf=self._kv_config.get(ORDER_TOPIC_CONFIG, topic) if wants_order else None,
            acting_masters=config.support_acting_master,
            zone=zone,
        )
        return found.encode() if found is not None else None

    def _keep(self, topic: str, body: bytes) -> None:
        if self._revision != self._tables.revision:
            self._revision = self._tables.revision
            self._bodies.clear()
        self._bodies[topic] = body


def not_found(topic: str) -> TopicNotFound:
    """Clients act on the code alone; people search for the first line."""
    return TopicNotFound(
        f"No topic route info in name server for the topic: {topic}\n"
        "Create the topic, or check that its brokers are registered here."
    )
