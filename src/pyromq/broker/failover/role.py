"""What a broker is in its group, and what it tells its controllers about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class InSyncSet(NamedTuple):
    """The brokers of a group that have every acknowledged message, by their ids; any of them may become master."""

    members: frozenset[int]
    epoch: int


@dataclass(frozen=True, slots=True)
class Role:
    """Who is master of a group. Of two roles, the one of the larger epoch holds."""

    epoch: int
    master_id: int
    master_address: str
    in_sync: InSyncSet


class Standing(NamedTuple):
    """How far this broker is; controllers choose masters by it."""

    epoch: int  # the last in the table of epochs, -1 if that is empty
    max_offset: int  # where the log ends
    confirm_offset: int  # and how much of it is confirmed
