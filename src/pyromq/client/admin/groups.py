"""`admin.groups`: consumer groups, their settings, members and progress; producer groups and their members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import ConsumerNotOnline, PyroMQError, ServerError, SubscriptionGroupNotExist
from pyromq.protocol.bodies import (
    ConsumerConnection,
    ConsumeStats,
    ProducerConnection,
    ProducerTableInfo,
    QueryConsumeTimeSpanBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import (
    DeleteSubscriptionGroup,
    GetConsumerConnectionList,
    GetConsumeStats,
    GetProducerConnectionList,
    QueryConsumeTimeSpan,
)
from pyromq.protocol.names import dlq_topic, retry_topic

from ..names import check_group
from .fan_out import fan_out
from .progress import progress_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.bodies import (
        Connection,
        ConsumerRunningInfo,
        MessageRequestMode,
        ProducerInfo,
        QueueTimeSpan,
        SubscriptionData,
    )
    from pyromq.protocol.message_queue import MessageQueue

    from .addresses import Addresses
    from .clients import ClientAdmin
    from .fan_out import Answers
    from .progress import GroupProgress
    from .requests import Requests
    from .topics import TopicAdmin


class _DeleteGroup(DeleteSubscriptionGroup):
    """207 for both: 5.x calls the field otherwise."""

    clean_offset: bool = False


class GroupAdmin:
    """Operations on groups. Names are the brokers' own: no namespace is added."""

    def __init__(self, requests: Requests, addresses: Addresses, topics: TopicAdmin, clients: ClientAdmin) -> None:
        self._requests = requests
        self._addresses = addresses
        self._topics = topics
        self._clients = clients

    # Changes

    async def create(
        self,
        config: SubscriptionGroupConfig | str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Create a group, or replace all its settings; on `brokers`, the masters of a cluster, or everywhere.

        Returns the addresses. A name alone means RocketMQ's defaults.
        """
        if isinstance(config, str):
            config = SubscriptionGroupConfig(group_name=config)
        check_group(config.group_name)
        addresses = await self._addresses.masters(cluster, brokers)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        return await self._requests.tell(f"create group {config.group_name}", addresses, code, body=config.encode())

    async def delete(
        self,
        group: str,
        *,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
        remove_offsets: bool = False,
    ) -> None:
        """Delete a group, and with `remove_offsets` its offsets. It need not exist.

        Without `brokers`, its retry and dead-letter topics are deleted too, with their messages.
        """
        addresses = await self._addresses.masters(cluster, brokers)
        header = _DeleteGroup(group, remove_offsets, remove_offsets)
        await self._requests.tell(f"delete group {group}", addresses, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        if brokers is None:
            await self._topics.delete(retry_topic(group), cluster=cluster)
            await self._topics.delete(dlq_topic(group), cluster=cluster)

    async def set_request_mode(
        self,
        group: str,
        topic: str,
        mode: MessageRequestMode,
        *,
        share_queues: int = 0,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Choose whether a group pulls or pops a topic (5.x, for members that let the broker decide).

        With pop, each member shares the queues of `share_queues` others; 0 means all. Returns the addresses.
        """
        body = SetMessageRequestModeRequestBody(
            consumer_group=group, topic=topic, mode=mode, pop_share_queue_num=share_queues
        ).encode()
        addresses = await self._addresses.masters(cluster, brokers)
        what, code = f"set the mode of group {group}", RequestCode.SET_MESSAGE_REQUEST_MODE
        return await self._requests.tell(what, addresses, code, body=body)

    # Settings

    async def names(self, cluster: str | None = None) -> list[str]:
        """All groups known to any broker, sorted."""
        tables = await self._tables(cluster)
        return sorted({name for table in tables.values() for name in table})

    async def config(self, group: str, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]:
        """The settings of a group by broker address. Raises SubscriptionGroupNotExist if no broker knows it.

        Fetches all groups: asked for one (352), a 5.x broker would create it.
        """
        tables = await self._tables(cluster)
        found = {address: table[group] for address, table in tables.items() if group in table}
        if not found:
            raise SubscriptionGroupNotExist(f"no broker knows group {group}")
        return found

    async def configs(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """All groups of one broker."""
        return await self._table(await self._addresses.address(broker))

    async def _tables(self, cluster: str | None) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        answers = await fan_out(await self._addresses.masters(cluster), self._table, "groups")
        return answers.check(answers.results)

    async def _table(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        reply = await self._requests.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupWrapper.decode(reply.body_bytes).subscription_group_table

    # Progress

    async def progress(self, group: str, topic: str | None = None, *, clients: bool = False) -> GroupProgress:
        """The progress of a group in one topic or all. Raises ConsumerNotOnline if it has no offset anywhere.

        `clients` adds which consumer has which queue, and asks every one of them. If a broker does not answer,
        PartialFailure has the rows of the others in `partial`.
        """
        brokers = await (self._addresses.serving(topic) if topic else self._addresses.serving_group(group))
        what = f"progress of group {group}"
        answers = await fan_out(brokers, lambda address: self.stats_at(address, group, topic), what)
        owners = await self.owners(group) if clients else {}
        progress = progress_of(group, answers.results.values(), owners)
        answers.check(progress)
        if not progress.rows:
            raise ConsumerNotOnline(f"group {group} has no offset{f' in topic {topic}' if topic else ''} on any broker")
        return progress

    async def stats_at(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """A group's progress on one broker; no rows if it has none there."""
        reply = await self._requests.ask(address, RequestCode.GET_CONSUME_STATS, GetConsumeStats(group, topic))
        return ConsumeStats.decode(reply.body_bytes)

    async def time_span(self, group: str, topic: str) -> list[QueueTimeSpan]:
        """The times of the first, the last and the last consumed message of each queue. Raises TopicNotFound."""
        brokers = await self._addresses.serving(topic)
        what, code = f"time span of {group} in {topic}", RequestCode.QUERY_CONSUME_TIME_SPAN
        answers = await self._requests.ask_each(what, brokers, code, QueryConsumeTimeSpan(topic, group))
        spans = [
            span
            for reply in answers.results.values()
            for span in QueryConsumeTimeSpanBody.decode(reply.body_bytes).consume_time_span_set
        ]
        answers.check(spans)
        return sorted(spans, key=lambda span: span.message_queue)

    async def owners(self, group: str) -> dict[MessageQueue, str]:
        """Which consumer has which queue. The queues of silent consumers stay unknown."""
        try:
            infos = await self._running_infos(group)
        except PyroMQError:
            return {}
        return {queue: client_id for client_id, info in infos.results.items() for queue in info.mq_table}

    # Members

    async def running_infos(self, group: str, *, stacks: bool = False) -> dict[str, ConsumerRunningInfo]:
        """The running info of each consumer of a group, by id. Raises ConsumerNotOnline if there are none.

        If some do not answer, PartialFailure has the others' in `partial`.
        """
        answers = await self._running_infos(group, stacks=stacks)
        return answers.check(answers.results)

    async def _running_infos(self, group: str, *, stacks: bool = False) -> Answers[ConsumerRunningInfo]:
        members = [member.client_id for member in (await self.connections(group)).connection_set]
        what = f"consumers of group {group}"
        return await fan_out(members, lambda name: self._clients.running_info(group, name, stacks=stacks), what)

    async def connections(self, group: str) -> ConsumerConnection:
        """The members of a group and their subscriptions. Raises ConsumerNotOnline if there are none.

        Consumers connect to all brokers; all are asked, to find those that some brokers lost.
        """
        brokers = await self._addresses.serving_group(group)
        what, code = f"consumers of group {group}", RequestCode.GET_CONSUMER_CONNECTION_LIST
        answers = await self._requests.ask_each(what, brokers, code, GetConsumerConnectionList(group))
        found = [ConsumerConnection.decode(reply.body_bytes) for reply in answers.results.values()]
        if not found:
            raise _most_telling(answers.failures.values(), ConsumerNotOnline)
        return _joined(found)

    async def producers(self, group: str, topic: str) -> list[Connection]:
        """The members of a producer group connected to brokers of `topic`. Raises ServerError if there are none."""
        brokers = await self._addresses.serving(topic)
        what, code = f"producers of group {group}", RequestCode.GET_PRODUCER_CONNECTION_LIST
        answers = await self._requests.ask_each(what, brokers, code, GetProducerConnectionList(group))
        members = {
            member.client_id: member
            for reply in answers.results.values()
            for member in ProducerConnection.decode(reply.body_bytes).connection_set
        }
        if not members:
            raise _most_telling(answers.failures.values(), ServerError)
        return [members[client_id] for client_id in sorted(members)]

    async def all_producers(self, broker: str) -> dict[str, list[ProducerInfo]]:
        """All producers connected to one broker, by group."""
        reply = await self._requests.ask(await self._addresses.address(broker), RequestCode.GET_ALL_PRODUCER_INFO)
        return ProducerTableInfo.decode(reply.body_bytes).data


def _joined(found: list[ConsumerConnection]) -> ConsumerConnection:
    """Combine what several brokers know of a group. The newer of two subscriptions to a topic counts."""
    members = {member.client_id: member for heard in found for member in heard.connection_set}
    subscriptions: dict[str, SubscriptionData] = {}
    for heard in found:
        for topic, subscription in heard.subscription_table.items():
            known = subscriptions.get(topic)
            if known is None or known.sub_version < subscription.sub_version:
                subscriptions[topic] = subscription
    first = found[0]
    return ConsumerConnection(
        connection_set=[members[client_id] for client_id in sorted(members)],
        consume_from_where=first.consume_from_where,
        consume_type=first.consume_type,
        message_model=first.message_model,
        subscription_table=subscriptions,
    )


def _most_telling(failures: Iterable[PyroMQError], absent: type[PyroMQError]) -> PyroMQError:
    """Why nothing was found: preferably not `absent`, which may be wrong if others failed."""
    failed = list(failures)
    return next((failure for failure in failed if not isinstance(failure, absent)), failed[0])
