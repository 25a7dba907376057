"""Connected clients: the consumers of a group and what they are doing, and producers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import brokers_in
from pyromq.client.admin.fan_out import fan_out
from pyromq.client.admin.times import from_millis
from pyromq.errors import ConsumerNotOnline
from pyromq.protocol.names import RETRY_PREFIX
from pyromq.protocol.versions import version_name

from ..listing import Listing

if TYPE_CHECKING:
    from pyromq.client.admin import AdminClient
    from pyromq.protocol.bodies import Connection, ConsumerConnection, ConsumerRunningInfo


@dataclass(frozen=True, slots=True)
class ClientRow:
    client: str
    address: str
    language: str
    version: str


@dataclass(frozen=True, slots=True)
class InspectedClient:
    """A consumer's report about itself; None if it did not answer. Rates and times cover the last minute."""

    client: str
    version: str
    queues: int | None
    cached: int | None
    ok_tps: float | None
    failed_tps: float | None
    consume_ms: float | None
    pull_ms: float | None
    subscriptions: dict[str, str] | None
    queue_list: tuple[str, ...] | None = field(default=None, metadata={"hidden": True})
    properties: dict[str, str] | None = field(default=None, metadata={"hidden": True})
    stacks: str | None = field(default=None, metadata={"hidden": True})


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """A producer and the brokers it is connected to."""

    group: str
    client: str
    address: str
    language: str
    version: str
    last_seen: datetime | None
    brokers: tuple[str, ...]


async def group_clients(admin: AdminClient, group: str) -> Listing[ClientRow]:
    """The members of a group. Raises ConsumerNotOnline if there are none."""
    found = await admin.groups.connections(group)
    return Listing.make(ClientRow, map(client_row, found.connection_set), summary=_what(found))


async def connections(admin: AdminClient, group: str) -> ConsumerConnection | None:
    """The members of a group; None if there are none."""
    try:
        return await admin.groups.connections(group)
    except ConsumerNotOnline:
        return None


async def group_inspect(
    admin: AdminClient, group: str, client: str | None = None, *, stacks: bool = False
) -> Listing[InspectedClient]:
    """What one consumer or all are doing; `stacks` adds their threads' stacks.

    The summary names members whose subscriptions differ: they take messages from each other.
    """
    members = (await admin.groups.connections(group)).connection_set
    if client is not None:
        members = [member for member in members if member.client_id == client] or members
    versions = {member.client_id: version_name(member.version) for member in members}
    answers = await fan_out(list(versions), lambda name: admin.clients.running_info(group, name, stacks=stacks))
    rows = [inspected(name, versions[name], answers.results.get(name)) for name in sorted(versions)]
    return Listing.make(InspectedClient, rows, answers.missing, subscription_mismatch(rows))


def subscription_mismatch(rows: list[InspectedClient]) -> str:
    """What is wrong with the subscriptions of a group; empty if nothing is."""
    forms: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row in rows:
        if row.subscriptions is not None:
            forms.setdefault(tuple(sorted(row.subscriptions.items())), []).append(row.client)
    if len(forms) < 2:
        return ""
    each = "; ".join(
        f"{', '.join(clients)}: {', '.join(f'{topic} {expression}' for topic, expression in form) or 'nothing'}"
        for form, clients in forms.items()
    )
    return f"subscriptions differ, so members get messages they do not want while others miss them: {each}"


async def producer_list(admin: AdminClient, broker: str | None = None) -> Listing[ProducerRow]:
    """All producers connected to one broker, or to any."""
    brokers = brokers_in(await admin.brokers.cluster_info())
    if broker is not None:
        brokers = {broker: brokers.get(broker, broker)}
    answers = await fan_out(brokers, admin.groups.all_producers)
    found: dict[tuple[str, str], ProducerRow] = {}
    for name, table in answers.some().items():
        for group, members in table.items():
            for member in members:
                before = found.get((group, member.client_id))
                found[group, member.client_id] = ProducerRow(
                    group,
                    member.client_id,
                    member.remote_ip.removeprefix("/"),
                    member.language,
                    version_name(member.version),
                    from_millis(member.last_update_timestamp),
                    (*(before.brokers if before else ()), name),
                )
    return Listing.make(ProducerRow, (found[key] for key in sorted(found)), answers.missing)


def client_row(member: Connection) -> ClientRow:
    return ClientRow(member.client_id, member.client_addr, member.language, version_name(member.version))


def _what(found: ConsumerConnection) -> str:
    kinds = [each.value for each in (found.consume_type, found.message_model, found.consume_from_where) if each]
    topics = ", ".join(f"{topic} {each.sub_string}" for topic, each in sorted(found.subscription_table.items()))
    return f"{', '.join(kinds)}; subscribed: {topics or 'nothing'}"


def inspected(client: str, version: str, info: ConsumerRunningInfo | None) -> InspectedClient:
    if info is None:
        return InspectedClient(client, version, None, None, None, None, None, None, None)
    # Clients subscribe to their group's retry topic automatically.
    subscriptions = {
        each.topic: each.sub_string
        for each in sorted(info.subscription_set, key=lambda each: each.topic)
        if not each.topic.startswith(RETRY_PREFIX)
    }
    table = info.status_table.values()
    return InspectedClient(
        client,
        version,
        len(info.mq_table),
        sum(queue.cached_msg_count for queue in info.mq_table.values()),
        sum(each.consume_ok_tps for each in table),
        sum(each.consume_failed_tps for each in table),
        max((each.consume_rt for each in table), default=None),
        max((each.pull_rt for each in table), default=None),
        subscriptions,
        tuple(f"{queue.topic}@{queue.broker_name}:{queue.queue_id}" for queue in sorted(info.mq_table)),
        info.properties,
        info.jstack,
    )
