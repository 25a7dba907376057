"""The broker: keeps messages and hands them out.

`broker` runs it, `parts` puts it together. Tables with their rules (`topics`, `groups`, `consumer_offsets`, `clients`,
`locks`) know no network; `*_requests` and `consumer_calls` serve requests from them; `send`, `appends`, `pull` and
`schedule` move messages; `state` keeps the tables over a restart, `registration` keeps the name servers told.
"""

from __future__ import annotations

from .broker import Broker
from .config import BrokerConfig, check_settings, important, load_settings

__all__ = ["Broker", "BrokerConfig", "check_settings", "important", "load_settings"]
