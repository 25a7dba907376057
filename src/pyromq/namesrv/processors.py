"""The requests of a name server: each code is one entry in a table and one short function.

Every class takes only what its requests need. A function reads the header, lets `routes`, `views` or the KV config
decide, and makes the reply; an error it raises becomes the answer (docs/spec/namesrv.md 3).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from pyromq.errors import MissingField, QueryNotFound, ServerError
from pyromq.protocol.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicRouteData, body_crc32
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import (
    AddWritePermReply,
    BrokerHeartbeat,
    BrokerIdentity,
    DeleteTopicInNamesrv,
    GetBrokerMemberGroup,
    GetKVConfig,
    GetKVConfigReply,
    GetKVListByNamespace,
    GetTopicsByCluster,
    PutKVConfig,
    QueryDataVersionReply,
    RegisterBroker,
    RegisterBrokerReply,
    RegisterTopicInNamesrv,
    WipeWritePerm,
    WipeWritePermReply,
)
from pyromq.remoting import with_body, with_read

from . import views
from .kv_config import ORDER_TOPIC_CONFIG
from .routes import Registration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyromq.protocol.bodies import TopicList
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.settings.saved_file import SavedFile

    from .kv_config import KVConfig
    from .live_settings import LiveSettings
    from .routes import MinBrokerChange, RouteTables

logger = logging.getLogger(__name__)


class BrokerProcessors:
    """Requests of brokers: register, heartbeat, unregister. `tell` receives the news for other brokers."""

    def __init__(
        self,
        tables: RouteTables,
        kv_config: KVConfig,
        settings: LiveSettings,
        clock: Callable[[], int],
        tell: Callable[[Iterable[MinBrokerChange]], None],
    ) -> None:
        self._tables = tables
        self._kv_config = kv_config
        self._settings = settings
        self._clock = clock
        self._tell = tell

    def table(self) -> dict[int, Processor]:
        return {
            # A compressed body may be a thousand times as large inside.
            RequestCode.REGISTER_BROKER: with_read(_registered, self.register, on_loop=1024),
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.QUERY_DATA_VERSION: with_body(_data_version, self.query_data_version),
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: with_body(_route, self.register_topic),
        }

    def register(self, connection: Connection, request: Command, body: RegisterBrokerBody | None) -> Command:
        header = request.header(RegisterBroker)
        if body is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "crc32 not match", header=RegisterBrokerReply())
        registration = Registration(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr,
            data_version=body.topic_config_serialize_wrapper.data_version,
            topics=body.topic_config_serialize_wrapper.topic_config_table,
            filter_servers=body.filter_server_list,
            heartbeat_timeout_ms=header.heartbeat_timeout_millis,
            enable_acting_master=header.enable_acting_master,
            zone=header.zone_name,
        )
        if registration.address not in self._tables.live:
            most = self._settings.config.max_brokers
            if len(self._tables.live) >= most:
                raise ServerError(f"{registration.address} is not registered: there are {most} brokers (maxBrokers)")
            logger.info(
                "broker registered name=%s id=%d addr=%s cluster=%s topics=%d",
                registration.broker_name,
                registration.broker_id,
                registration.address,
                registration.cluster,
                len(registration.topics),
            )
        config = self._settings.config
        registered = self._tables.register(
            registration,
            connection,
            self._clock(),
            drop_absent_topics=config.delete_topic_with_broker_registration,
        )
        if registered.news is not None:
            self._tell([registered.news])
        return request.reply(
            header=RegisterBrokerReply(registered.master_ha_address, registered.master_address),
            body=self._order_topics() if config.return_order_topic_config_to_broker else None,
        )

    def unregister(self, connection: Connection, request: Command) -> Command:
        header = request.header(BrokerIdentity)
        departed = self._tables.unregister(header.broker_name, header.broker_addr)
        logger.info("broker unregistered name=%s addr=%s", header.broker_name, header.broker_addr)
        self._tell(departed.news)
        return request.reply()

    def query_data_version(self, connection: Connection, request: Command, version: DataVersion | None) -> Command:
        address = request.header(BrokerIdentity).broker_addr
        known = self._tables.data_version(address)
        changed = known is None or version is None or version != known
        self._tables.heard_of(address, self._clock())
        return request.reply(header=QueryDataVersionReply(changed), body=known.encode() if known is not None else None)

    def heartbeat(self, connection: Connection, request: Command) -> Command:
        self._tables.heard_of(request.header(BrokerHeartbeat).broker_addr, self._clock())
        return request.reply()

    def register_topic(self, connection: Connection, request: Command, route: TopicRouteData | None) -> Command:
        topic = request.header(RegisterTopicInNamesrv).topic
        if route is not None and not self._tables.register_topic(topic, route.queue_datas):
            logger.warning("topic %s not registered by %s: it names an unknown broker", topic, connection.peer)
        return request.reply()

    def _order_topics(self) -> bytes | None:
        namespace = self._kv_config.namespace(ORDER_TOPIC_CONFIG)
        return KVTable(table=dict(namespace)).encode() if namespace is not None else None


class TopicProcessors:
    """Queries of admins and clients, and the few changes that admins make."""

    def __init__(self, tables: RouteTables, settings: LiveSettings) -> None:
        self._tables = tables
        self._settings = settings

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.member_group,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_list(views.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_list(views.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_list(views.unit_sub_topics_outside_units),
        }

    def cluster_info(self, connection: Connection, request: Command) -> Command:
        return request.reply(body=views.cluster_info(self._tables).encode())

    def member_group(self, connection: Connection, request: Command) -> Command:
        header = request.header(GetBrokerMemberGroup)
        return request.reply(body=views.member_group(self._tables, header.cluster_name, header.broker_name).encode())

    def wipe_write_perm(self, connection: Connection, request: Command) -> Command:
        broker_name = request.header(WipeWritePerm).broker_name
        count = self._tables.wipe_write_perm(broker_name)
        logger.info("write permission removed from broker %s by %s topics=%d", broker_name, connection.peer, count)
        return request.reply(header=WipeWritePermReply(count))

    def add_write_perm(self, connection: Connection, request: Command) -> Command:
        broker_name = request.header(WipeWritePerm).broker_name
        count = self._tables.add_write_perm(broker_name)
        logger.info("write permission restored to broker %s by %s topics=%d", broker_name, connection.peer, count)
        return request.reply(header=AddWritePermReply(count))

    def delete_topic(self, connection: Connection, request: Command) -> Command:
        header = request.header(DeleteTopicInNamesrv)
        self._tables.delete_topic(header.topic, header.cluster_name or None)
        logger.info("topic %s deleted by %s cluster=%s", header.topic, connection.peer, header.cluster_name or "all")
        return request.reply()

    def all_topics(self, connection: Connection, request: Command) -> Command:
        _refuse_unless(self._settings.config.enable_all_topic_list)
        return request.reply(body=views.all_topics(self._tables).encode())

    def topics_of_cluster(self, connection: Connection, request: Command) -> Command:
        _refuse_unless(self._settings.config.enable_topic_list)
        return request.reply(
            body=views.topics_of_cluster(self._tables, request.header(GetTopicsByCluster).cluster).encode()
        )

    def system_topics(self, connection: Connection, request: Command) -> Command:
        return request.reply(body=views.system_topics(self._tables).encode())

    def _unit_list(self, view: Callable[[RouteTables], TopicList]) -> Processor:
        def unit_list(connection: Connection, request: Command) -> Command:
            _refuse_unless(self._settings.config.enable_topic_list)
            return request.reply(body=view(self._tables).encode())

        return unit_list


class KVConfigProcessors:
    """KV config. A change is saved before it takes effect and `changed` is called.

    A change that cannot be saved is refused.
    """

    def __init__(self, config: KVConfig, settings: LiveSettings, file: SavedFile, changed: Callable[[], None]) -> None:
        self._config = config
        self._settings = settings
        self._file = file
        self._changed = changed
        self._turn = asyncio.Lock()

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list_namespace,
        }

    async def put(self, connection: Connection, request: Command) -> Command:
        header = request.header(PutKVConfig)
        value = None
        with suppress(MissingField):
            value = header.value
        try:
            namespace, key = header.namespace, header.key
        except MissingField:
            raise ServerError("namespace or key is null") from None
        await self._change(lambda config: config.put(namespace, key, value))
        logger.info("KV config set by %s namespace=%s key=%s", connection.peer, header.namespace, header.key)
        return request.reply()

    def get(self, connection: Connection, request: Command) -> Command:
        header = request.header(GetKVConfig)
        value = self._config.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, header=GetKVConfigReply())
        return request.reply(header=GetKVConfigReply(value))

    async def delete(self, connection: Connection, request: Command) -> Command:
        header = request.header(GetKVConfig)
        namespace, key = header.namespace, header.key
        await self._change(lambda config: config.delete(namespace, key))
        logger.info("KV config deleted by %s namespace=%s key=%s", connection.peer, header.namespace, header.key)
        return request.reply()

    def list_namespace(self, connection: Connection, request: Command) -> Command:
        namespace = request.header(GetKVListByNamespace).namespace
        keys = self._config.namespace(namespace)
        if keys is None:
            raise QueryNotFound(f"No config item, Namespace: {namespace}")
        return request.reply(body=KVTable(table=dict(keys)).encode())

    async def _change(self, change: Callable[[KVConfig], None]) -> None:
        """Make one change at a time. NotSaved leaves everything unchanged."""
        async with self._turn:
            changed = self._config.copy()
            change(changed)
            content = changed.encode()
            most = self._settings.config.max_kv_config
            if len(content) > most and len(content) > len(self._config.encode()):
                raise ServerError(f"the KV config would have {len(content)} bytes; at most {most} (maxKvConfigSize)")
            await self._file.save(content)
            self._config.take(changed)
            self._changed()


def _registered(request: Command) -> RegisterBrokerBody | None:
    """What a broker registers; None if the body is not the one that was sent."""
    header = request.header(RegisterBroker)
    content = request.body_bytes
    if header.body_crc32 and header.body_crc32 != body_crc32(content):
        return None
    return RegisterBrokerBody.decode(content, version=request.version, compressed=header.compressed)


def _data_version(content: bytes) -> DataVersion | None:
    return DataVersion.decode(content) if content else None


def _route(content: bytes) -> TopicRouteData | None:
    return TopicRouteData.decode(content) if content else None


def _refuse_unless(enabled: bool) -> None:
    if not enabled:
        raise ServerError("disable")
