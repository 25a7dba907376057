"""The certificates that servers show, to see which expire soon."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pyromq.errors import ConnectFailed
from pyromq.remoting import split_address
from pyromq.remoting.certificates import expiry, expiry_problem, shown_by

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["certificate_expires", "expiry_problem"]


async def certificate_expires(address: str, timeout: float) -> datetime:
    """Until when the certificate of a server is valid. ConnectFailed if it shows none."""
    host, port = split_address(address)
    try:
        return await asyncio.to_thread(lambda: expiry(shown_by(host, port, timeout)))
    except (OSError, ValueError) as exc:
        raise ConnectFailed(address, f"shows no certificate: {exc}") from exc
