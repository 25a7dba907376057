"""How long brokers take to answer a small question."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.admin.listing import Listing
from pyromq.client.admin.fan_out import fan_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client import AdminClient


@dataclass(frozen=True, slots=True)
class Ping:
    """Times of one broker in milliseconds."""

    broker: str
    address: str
    count: int | None
    min_ms: float | None
    mean_ms: float | None
    max_ms: float | None


async def ping_brokers(admin: AdminClient, brokers: Mapping[str, str], count: int) -> Listing[Ping]:
    """Ask each of the brokers, given as names by address, `count` times, one after the other."""

    async def ask(address: str) -> list[float]:
        await admin.brokers.runtime(address)  # the first connects
        times = []
        for _ in range(count):
            began = time.perf_counter()
            await admin.brokers.runtime(address)
            times.append((time.perf_counter() - began) * 1000)
        return times

    answers = await fan_out({address: address for address in brokers}, ask)
    rows = []
    for address, name in brokers.items():
        times = answers.results.get(address)
        if times is None:
            rows.append(Ping(name, address, None, None, None, None))
        else:
            rows.append(Ping(name, address, len(times), min(times), sum(times) / len(times), max(times)))
    return Listing.make(Ping, rows, answers.missing)
