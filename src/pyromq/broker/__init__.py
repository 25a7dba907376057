"""The broker: keeps messages and hands them out.

`broker` runs it, `assembly` puts it together. `send`, `appends`, `pull`, `held_pulls`, `send_back` and `request_reply`
move messages; `topics`, `groups` and `offsets/` are its tables, `kept_files` keeps them over a restart; `registration`
keeps the name servers up to date. Rooms: `timers/` (delay levels and timers), `transactions/`, `pop/`, `filters/`,
`clients/` (who is connected), `offsets/` (consumer progress), `stats/`, `admin/` (requests of operators).
"""

from __future__ import annotations

from .broker import Broker
from .config import BrokerConfig, cautions, check_settings, important, load_settings

__all__ = ["Broker", "BrokerConfig", "cautions", "check_settings", "important", "load_settings"]
