"""Who becomes master (docs/spec/controller.md 3.3).

Only a member of the in-sync set has everything that was acknowledged, so nobody else is elected unless the operator
allows it and accepts the loss (`enableElectUncleanMaster`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LOWEST_PRIORITY = 2**31 - 1


class Standing(NamedTuple):
    """What a live broker last said of itself. A lower number is a higher priority."""

    epoch: int = -1
    max_offset: int = -1
    priority: int = LOWEST_PRIORITY


def elected(
    in_sync: Collection[int],
    alive: Mapping[int, Standing],
    *,
    old_master: int | None = None,
    designated: int | None = None,
    unclean: Collection[int] = (),
) -> int | None:
    """The id of the master to be, which may be the old one; None if nobody can be.

    `unclean` are the members that may be chosen if nobody of the in-sync set is alive.
    """
    for candidates in ([key for key in in_sync if key in alive], [key for key in unclean if key in alive]):
        if not candidates:
            continue
        if old_master in candidates and designated in (None, old_master):
            return old_master
        if designated is not None:
            return designated if designated in candidates else None
        return max(candidates, key=lambda key: _rank(key, alive[key]))
    return None


def _rank(broker_id: int, standing: Standing) -> tuple[int, int, int, int]:
    # The last tie-break is ours: the same question has the same answer.
    return standing.epoch, standing.max_offset, -standing.priority, -broker_id
