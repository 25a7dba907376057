"""The registration requests that a broker sends to name servers (docs/spec/namesrv.md 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyromq.protocol.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper, body_crc32
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import PROTOCOL_VERSION, Command
from pyromq.protocol.headers import BrokerIdentity, RegisterBroker
from pyromq.protocol.permissions import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.bodies import DataVersion, TopicConfig

    from .config import LiveConfig
    from .topics import TopicTable

READ_AND_WRITE = PERM_READ | PERM_WRITE


class RegistrationRequests:
    """Makes the requests of one broker. `address` is what clients are told, `ha_address` what slaves are."""

    def __init__(self, live: LiveConfig, topics: TopicTable, *, address: str, ha_address: str) -> None:
        self._live = live
        self._topics = topics
        self._address = address
        self._ha_address = ha_address
        # The last full body, and what it was made from: many topics take a while to encode, and seldom change.
        self._made_of: tuple[DataVersion, int, bool] | None = None
        self._body = b""

    @property
    def version(self) -> DataVersion:
        """The current version of the topics."""
        return self._topics.data_version

    def register_all(self, *, oneway: bool = False) -> Command:
        """103 with every topic."""
        config = self._live.config
        made_of = (self.version, config.broker_permission, config.compressed_register)
        if self._made_of != made_of:
            self._body = self._encoded(self._topics.snapshot().topic_config_table)
            self._made_of = made_of
        return self._register(self._body, oneway)

    def changed_since(self, version: DataVersion) -> Iterable[TopicConfig] | None:
        """The topics that changed after this version; None if a list of topics cannot express all changes."""
        return self._topics.changed_since(version.counter)

    def register_topics(self, topics: Iterable[TopicConfig]) -> Command:
        """103 with some topics, which the name server adds to those it has."""
        return self._register(self._encoded({topic.topic_name: topic for topic in topics}), oneway=False)

    def query_version(self) -> Command:
        """322: does the name server have another version of the topics?"""
        return Command.request(RequestCode.QUERY_DATA_VERSION, self._identity(), self.version.encode())

    def unregister(self) -> Command:
        """104"""
        return Command.request(RequestCode.UNREGISTER_BROKER, self._identity())

    def _register(self, body: bytes, oneway: bool) -> Command:
        config = self._live.config
        header = RegisterBroker(
            broker_name=config.broker_name,
            broker_addr=self._address,
            cluster_name=config.cluster_name,
            ha_server_addr=self._ha_address,
            broker_id=config.broker_id,
            compressed=config.compressed_register,
            body_crc32=body_crc32(body),
        )
        return Command.request(RequestCode.REGISTER_BROKER, header, body, oneway=oneway)

    def _encoded(self, topics: dict[str, TopicConfig]) -> bytes:
        config = self._live.config
        permission = config.broker_permission
        if permission & READ_AND_WRITE != READ_AND_WRITE:
            # No topic may permit more than the broker as a whole.
            topics = {
                name: msgspec.structs.replace(topic, perm=topic.perm & permission) for name, topic in topics.items()
            }
        wrapper = TopicConfigSerializeWrapper(data_version=self.version, topic_config_table=topics)
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        return body.encode_compressed(PROTOCOL_VERSION) if config.compressed_register else body.encode()

    def _identity(self) -> BrokerIdentity:
        config = self._live.config
        return BrokerIdentity(
            broker_name=config.broker_name,
            broker_addr=self._address,
            cluster_name=config.cluster_name,
            broker_id=config.broker_id,
        )
