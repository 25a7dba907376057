"""The controller: who is master of each broker name, since when, and who has everything that was acknowledged.

`replicas` holds the state and the events that change it, `verdicts` and `election` decide, `liveness` knows who is
alive, `decisions` is the interface to where decisions are kept (`journal`), `server` puts it all on the network.
"""

from __future__ import annotations

from .config import ControllerConfig, check_settings, load_settings
from .server import Controller, check_folders

__all__ = ["Controller", "ControllerConfig", "check_folders", "check_settings", "load_settings"]
