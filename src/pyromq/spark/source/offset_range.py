"""Where a new query starts and where a batch read ends: resolves the options to one offset per queue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

from ..moments import shown
from .offsets import LATEST, place, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from ..options import SourceOptions
    from .broker_metadata import BrokerMetadata

    Bounds = Mapping[MessageQueue, tuple[int, int]]

logger = logging.getLogger(__name__)


async def starts(
    metadata: BrokerMetadata, options: SourceOptions, bounds: Bounds, *, default: str
) -> dict[MessageQueue, int]:
    """Where each queue in `bounds`, which has minimum and maximum, starts."""
    given = options.starting_offsets_by_timestamp
    archived = _archived(options, bounds) if options.starting_offsets == "lake" else None
    if given is not None or options.starting_timestamp is not None:
        option = "startingOffsetsByTimestamp" if given is not None else "startingTimestamp"
        times = _times(given, options.starting_timestamp, bounds, option)
        found = await _at_times(metadata, times, bounds)
        too_late = [queue for queue, offset in found.items() if offset >= bounds[queue][1]]
        strategy = options.starting_offsets_by_timestamp_strategy or ("error" if default == "latest" else "latest")
        if too_late and strategy == "error":
            raise ConfigError(
                f"{option}: nothing in {place(min(too_late))} was stored at {shown(times[min(too_late)])} or later; "
                "startingOffsetsByTimestampStrategy=latest starts such queues at their end"
            )
        if found and len(too_late) == len(found) and any(first < end for first, end in bounds.values()):
            logger.warning("%s: nothing was stored at %s or later", option, shown(min(times.values())))
        if archived is not None:
            return not_before(archived, found, bounds)
        # Queues left out start where the query would without times.
        return {**_edge(bounds, default), **found}
    wanted = options.starting_offsets or default
    if isinstance(wanted, dict):
        edge = _edge(bounds, default)
        return resolve(wanted, bounds, edge.__getitem__, "startingOffsets")
    if archived is not None:
        return archived
    if wanted == "group":
        assert options.consumer_group is not None
        fallback = _edge(bounds, options.group_fallback)
        committed = await metadata.committed(options.consumer_group, bounds)
        return {queue: fallback[queue] if offset is None else offset for queue, offset in committed.items()}
    return _edge(bounds, wanted)


def _archived(options: SourceOptions, bounds: Bounds) -> dict[MessageQueue, int]:
    """Where the lake ends. A queue that it does not have yet starts at its minimum: it is new, or was empty."""
    from ..lake.history import History, check_all_there

    positions = History(options).positions(sorted({queue.topic for queue in bounds}))
    check_all_there(positions, bounds.keys(), fail=options.fail_on_data_loss)
    return {queue: positions.get(queue, minimum) for queue, (minimum, _) in bounds.items()}


def not_before(
    archived: Mapping[MessageQueue, int], found: Mapping[MessageQueue, int], bounds: Bounds
) -> dict[MessageQueue, int]:
    """Where queues start that continue after the lake, but not before some time, whose offsets are `found`.

    A time before everything that a broker has says nothing: what lies between the lake and there is lost.
    """
    return {
        queue: max(start, found[queue]) if found.get(queue, 0) > bounds[queue][0] else start
        for queue, start in archived.items()
    }


async def ends(metadata: BrokerMetadata, options: SourceOptions, bounds: Bounds) -> dict[MessageQueue, int]:
    """Where a batch read ends in each queue, exclusive."""
    latest = _edge(bounds, "latest")
    given = options.ending_offsets_by_timestamp
    if given is not None or options.ending_timestamp is not None:
        option = "endingOffsetsByTimestamp" if given is not None else "endingTimestamp"
        times = _times(given, options.ending_timestamp, bounds, option)
        return {**latest, **await _at_times(metadata, times, bounds)}
    if isinstance(options.ending_offsets, dict):
        return resolve(options.ending_offsets, bounds, lambda queue: LATEST, "endingOffsets")
    return latest


async def _at_times(
    metadata: BrokerMetadata, times: dict[MessageQueue, int], bounds: Bounds
) -> dict[MessageQueue, int]:
    filled = {queue: time for queue, time in times.items() if bounds[queue][0] < bounds[queue][1]}
    found = await metadata.at_times(filled, dict(bounds))
    return {queue: found.get(queue, bounds[queue][1]) for queue in times}


def _times(
    given: Mapping[MessageQueue, int] | None, everywhere: int | None, bounds: Bounds, option: str
) -> dict[MessageQueue, int]:
    if given is None:
        assert everywhere is not None
        return dict.fromkeys(bounds, everywhere)
    unknown = given.keys() - bounds.keys()
    if unknown:
        raise ConfigError(f"{option}: there is no {', no '.join(sorted(map(place, unknown)))}")
    return dict(given)


def _edge(bounds: Bounds, name: str) -> dict[MessageQueue, int]:
    side = 1 if name == "latest" else 0
    return {queue: both[side] for queue, both in bounds.items()}
