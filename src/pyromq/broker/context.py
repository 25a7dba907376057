"""What processors and services work with: the tables, and everything below them. None of it knows a processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.auth.assembly import AccessControl
    from pyromq.remoting.latencies import RequestLatencies
    from pyromq.store import MessageStore

    from .appends import Appends
    from .clients.connected import Clients
    from .config import LiveConfig
    from .durability import DurabilityGate
    from .filters.consumer_filters import Filters
    from .groups import GroupTable
    from .offsets.consumer_offsets import ConsumerOffsets
    from .stats.statistics import Statistics
    from .topics import TopicTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What the broker knows about topics and their users."""

    topics: TopicTable
    groups: GroupTable
    offsets: ConsumerOffsets
    filters: Filters
    clients: Clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the broker works with.

    `clock` gives epoch milliseconds, for what is stored or shown, and for what falls due at a time of day. `monotonic`
    gives milliseconds that never jump, for leases and limits. `address` is what clients are told,
    `store_host` the bytes that stand for it in every message. What is acknowledged passes `gate`, and `access` decides
    who may do what. `latencies` counts how long requests take, if somebody wants to know.
    `began` is when the broker started, by `monotonic`: like `stats` it outlives a change of role.
    """

    live: LiveConfig
    clock: Callable[[], int]
    monotonic: Callable[[], int]
    began: int
    store: MessageStore
    gate: DurabilityGate
    appends: Appends
    stats: Statistics
    address: str
    store_host: bytes
    access: AccessControl
    latencies: RequestLatencies | None = None
