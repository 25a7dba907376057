"""The one rule of a commit, whichever format keeps the table: a queue moves on from where the table is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..source.offsets import place
from .table import LakeConflict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from .table import LakeCommit


def check_moves(commit: LakeCommit, positions: Mapping[MessageQueue, int], where: str) -> None:
    """Raises LakeConflict if a move starts elsewhere: nothing can be left out, nothing taken twice."""
    if doubled := [queue for queue, times in Counter(move.queue for move in commit.moves).items() if times > 1]:
        raise ValueError(f"{place(doubled[0])} moves twice in one commit")
    for move in commit.moves:
        if not 0 <= move.start <= move.end:
            raise ValueError(f"{place(move.queue)} cannot move from {move.start} to {move.end}")
        at = positions.get(move.queue)
        if at is not None and at != move.start:
            raise LakeConflict(f"{place(move.queue)} is at {at} in {where}, not at {move.start}")
