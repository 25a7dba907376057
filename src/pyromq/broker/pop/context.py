"""What POP processors share beyond what every processor gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .access import PopAccess
    from .held_pops import HeldPops
    from .log import PopLog
    from .offsets import PopOffsets
    from .orders import PopOrders
    from .reading import PopReader


@dataclass(frozen=True, slots=True, kw_only=True)
class PopContext:
    """Shared state of POP. `held` are waiting pops, `notifications` waiting requests that only want to be told."""

    access: PopAccess
    offsets: PopOffsets
    orders: PopOrders
    log: PopLog
    reader: PopReader
    held: HeldPops
    notifications: HeldPops
