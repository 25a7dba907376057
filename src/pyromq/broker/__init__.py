"""The broker: keeps messages and hands them out.

`broker` runs it, `parts` puts it together. Tables with their rules (`topics`, `groups`, `consumer_offsets`, `clients`,
`locks`) know no network; `*_requests`, `consumer_calls` and `server_side_resets` serve requests from them; `send`,
`appends`, `pull`, `reply` and `schedule` move messages; `state` keeps the tables over a restart, `registration` keeps
the name servers told, `protection` stops slow consumers.
"""

from __future__ import annotations

from .broker import Broker
from .config import BrokerConfig, check_settings, important, load_settings

__all__ = ["Broker", "BrokerConfig", "check_settings", "important", "load_settings"]
