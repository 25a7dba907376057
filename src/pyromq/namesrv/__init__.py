"""The name server: which broker serves which topic, and who is alive. It knows nothing of messages.

`routes` holds the tables and the rules that change them, `views` reads them, `processors` serves the request codes,
`server` puts it all on the network.
"""

from __future__ import annotations

from .config import NamesrvConfig, check_settings, load_settings
from .server import NameServer, check_folders

__all__ = ["NameServer", "NamesrvConfig", "check_folders", "check_settings", "load_settings"]
