"""Reading from slaves: which broker of its group a pull is sent to next, and what a slave leaves to its master.

    slaveReadEnable   the reader is far behind   suggested broker id
    false             -                          0
    true              yes                        whichBrokerWhenConsumeSlowly of the consumer group
    true              no                         brokerId of the consumer group

A slave serves pulls in any setting, since it is the only source while its master is away (docs/spec/ha.md 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import ServiceNotAvailable
from pyromq.protocol.codes import RequestCode

from .config import ReplicationConfig

if TYPE_CHECKING:
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.settings import Settings

    from ..config import LiveConfig
    from ..groups import GroupTable

# What only one broker of a group may give away: two that did would give the same message or queue to two consumers.
_OF_MASTERS = (
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
)


class SlaveReads:
    """What the answers to pulls say about masters and slaves."""

    def __init__(self, live: LiveConfig, groups: GroupTable) -> None:
        self._live = live
        self._groups = groups
        self._settings: Settings | None = None
        self._is_on = self._keeps = False

    def suggested(self, group_name: str, *, is_slow: bool) -> str:
        """The id of the broker that a consumer group should pull from next, as text for the answer."""
        if self._live.settings is not self._settings:
            self._read_settings()
        if not self._is_on or (group := self._groups.find(group_name)) is None:
            return "0"
        return str(group.which_broker_when_consume_slowly if is_slow else group.broker_id)

    @property
    def keeps_offsets(self) -> bool:
        """Whether offsets outside of a queue are left as they are: a slave may merely lag behind its master."""
        if self._live.settings is not self._settings:
            self._read_settings()
        return self._keeps

    def _read_settings(self) -> None:
        # Looked up when they change only: every answer to a pull comes this way.
        settings = self._settings = self._live.settings
        config = settings[ReplicationConfig]
        self._is_on = config.slave_read
        self._keeps = self._live.config.is_slave and not config.offset_check_in_slave


def refused_by_slaves() -> dict[int, Processor]:
    """Who answers, on a slave, what only masters may do."""

    def refuse(connection: Connection, request: Command) -> Command:
        raise ServiceNotAvailable("this broker is a slave; only its master locks queues and serves POP")

    return dict.fromkeys(_OF_MASTERS, refuse)
