"""What the processors of POP share, over and above what every processor is given."""

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
    """Who may pop, what was popped, and who waits: `held` for messages, `notifications` for word of them."""

    access: PopAccess
    offsets: PopOffsets
    orders: PopOrders
    log: PopLog
    reader: PopReader
    held: HeldPops
    notifications: HeldPops
