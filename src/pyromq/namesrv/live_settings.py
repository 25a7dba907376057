"""The settings of a running name server, and their change at run time (UPDATE_NAMESRV_CONFIG)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.remoting.live_settings import LiveSettings as ServerSettings

from .config import NamesrvConfig, check_settings

if TYPE_CHECKING:
    from pyromq.settings import Settings


class LiveSettings(ServerSettings[NamesrvConfig]):
    """Settings that can change at run time. Read `config` afresh each time."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, NamesrvConfig, check_settings)
