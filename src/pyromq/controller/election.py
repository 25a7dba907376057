"""Who becomes master (docs/spec/controller.md 3.3).

Only a member of the in-sync set has everything that was acknowledged, so nobody else is elected unless the operator
allows it and accepts the loss (`enableElectUncleanMaster`).

A member may say that it is doubtful: it came back from a power failure, and may lack what it acknowledged. Somebody
else of the set then has it, who may be away at the moment. So it is not elected, unless it is certain that nobody has
more: all of the set are there, and all of them are doubtful. Operators who know that the others are gone for good
designate it.
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
    doubtful: bool = False


def elected(
    in_sync: Collection[int],
    alive: Mapping[int, Standing],
    *,
    old_master: int | None = None,
    designated: int | None = None,
    unclean: Collection[int] = (),
) -> int | None:
    """The id of the master to be, which may be the old one; None if nobody can be.

    `unclean` are the members that may be chosen if nobody of the in-sync set can be. A doubtful master has ended as
    one: if it is chosen, that begins a new epoch.
    """
    there = [key for key in in_sync if key in alive]
    able = [key for key in there if not alive[key].doubtful]
    if not able and (designated is not None or len(there) == len(in_sync)):
        able = there
    for candidates in (able, [key for key in unclean if key in alive]):
        if not candidates:
            continue
        if old_master in candidates and designated in (None, old_master) and not alive[old_master].doubtful:
            return old_master
        if designated is not None:
            return designated if designated in candidates else None
        return max(candidates, key=lambda key: _rank(key, alive[key]))
    return None


def _rank(broker_id: int, standing: Standing) -> tuple[int, int, int, int]:
    # The last tie-break is ours: the same question has the same answer.
    return standing.epoch, standing.max_offset, -standing.priority, -broker_id
