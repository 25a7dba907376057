"""`admin.brokers`: the brokers of all clusters, their settings and figures, and cleaning up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.protocol.bodies import BrokerStatsData, ConsumeStatsList, EpochEntryCache, HARuntimeInfo, KVTable
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import (
    AddWritePermReply,
    GetBrokerConsumeStats,
    ViewBrokerStatsData,
    WipeWritePerm,
    WipeWritePermReply,
)

from .config_text import config_from, config_text
from .requests import SLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyromq.protocol.bodies import ClusterInfo

    from .addresses import Addresses
    from .requests import Requests


class BrokerAdmin:
    """Operations on brokers. `broker` is an address, or a name, which means its master."""

    def __init__(self, requests: Requests, addresses: Addresses) -> None:
        self._requests = requests
        self._addresses = addresses

    async def cluster_info(self) -> ClusterInfo:
        """All brokers by name, and the broker names of each cluster. A name may be without addresses."""
        return await self._addresses.cluster_info()

    async def of_topic(self, topic: str) -> dict[str, str]:
        """The brokers of a topic, by name: the master, or a slave while it is down. Raises TopicNotFound."""
        return await self._addresses.serving(topic)

    async def config(self, broker: str) -> dict[str, str]:
        """All settings of a broker, by RocketMQ's keys."""
        address = await self._addresses.address(broker)
        return config_from(await self._requests.ask(address, RequestCode.GET_BROKER_CONFIG), address)

    async def set_config(
        self,
        changes: Mapping[str, str],
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Change settings at once and in the brokers' files; `cluster` includes slaves. Returns the addresses.

        A broker that refuses one of the keys (NoPermission) changes nothing. Unknown keys are ignored.
        """
        addresses = await self._addresses.everyone(cluster, brokers)
        what, body = f"set {', '.join(changes)}", config_text(changes)
        return await self._requests.tell(what, addresses, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def runtime(self, broker: str) -> dict[str, str]:
        """A broker's runtime figures, as text under RocketMQ's keys (docs/spec/broker.md 12.2)."""
        reply = await self._requests.ask(await self._addresses.address(broker), RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(reply.body_bytes).table

    async def ha_status(self, broker: str) -> HARuntimeInfo:
        """Who follows a master, or whom a slave follows. Raises RequestCodeNotSupported from a broker of 4.9."""
        reply = await self._requests.ask(await self._addresses.address(broker), RequestCode.GET_BROKER_HA_STATUS)
        return HARuntimeInfo.decode(reply.body_bytes)

    async def epochs(self, broker: str) -> EpochEntryCache:
        """The epochs of a broker's log, and its end. Raises BrokerError from one that is not in controller mode."""
        reply = await self._requests.ask(await self._addresses.address(broker), RequestCode.GET_BROKER_EPOCH_CACHE)
        return EpochEntryCache.decode(reply.body_bytes)

    async def stats(self, broker: str, name: str, key: str) -> BrokerStatsData:
        """A counter over the last minute, hour and day: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group`.

        Raises ServerError if there is no such counter, as is the case until something was counted.
        """
        address = await self._addresses.address(broker)
        reply = await self._requests.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsData(name, key))
        return BrokerStatsData.decode(reply.body_bytes)

    async def consume_stats(self, broker: str, *, ordered: bool = False) -> ConsumeStatsList:
        """The progress of all groups on one broker, in one answer; `ordered` limits it to ordered topics."""
        header = GetBrokerConsumeStats(ordered)
        reply = await self._requests.ask(
            await self._addresses.address(broker), RequestCode.GET_BROKER_CONSUME_STATS, header, slow=SLOW
        )
        return ConsumeStatsList.decode(reply.body_bytes)

    # Cleaning

    async def clean_queues(
        self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Delete consume queues whose messages have all left the log. Returns the addresses."""
        return await self._clean("clean expired queues", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, brokers)

    async def clean_topics(
        self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Delete consume queues of topics that do not exist. Returns the addresses."""
        return await self._clean("clean unused topics", RequestCode.CLEAN_UNUSED_TOPIC, cluster, brokers)

    async def clean_log(self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None) -> list[str]:
        """Delete expired log files now instead of at night. Returns the addresses."""
        return await self._clean("delete expired log", RequestCode.DELETE_EXPIRED_COMMITLOG, cluster, brokers)

    async def _clean(self, what: str, code: int, cluster: str | None, brokers: str | Iterable[str] | None) -> list[str]:
        return await self._requests.tell(what, await self._addresses.everyone(cluster, brokers), code, slow=SLOW)

    # Write permission, which name servers take from the routes they give

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Stop sends to a broker; consumers go on. Returns the number of its topics, by name server."""
        what, code = f"wipe write permission of {broker_name}", RequestCode.WIPE_WRITE_PERM_OF_BROKER
        answers = await self._requests.ask_name_servers(what, code, WipeWritePerm(broker_name))
        replies = answers.results.items()
        counts = {address: reply.header(WipeWritePermReply).wipe_topic_count for address, reply in replies}
        answers.check(counts)
        return counts

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Undo `wipe_write_perm`: all topics of the broker become readable and writable, whatever was set before."""
        what, code = f"add write permission of {broker_name}", RequestCode.ADD_WRITE_PERM_OF_BROKER
        answers = await self._requests.ask_name_servers(what, code, WipeWritePerm(broker_name))
        replies = answers.results.items()
        counts = {address: reply.header(AddWritePermReply).add_topic_count for address, reply in replies}
        answers.check(counts)
        return counts
