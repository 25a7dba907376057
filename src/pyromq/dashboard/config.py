"""How a dashboard is run: where it listens, whom it lets in, where it keeps its history."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - a field

from pyromq.errors import ConfigError

PORT = 8082
LOOPBACK = "127.0.0.1"

_SEGMENT = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardConfig:
    """`folder` keeps history, users, jobs and audit; without one they end with the process.

    `login` asks visitors who they are; `insecure` serves other machines without asking. `hosts` are further names under
    which browsers reach it. Headers of `proxies` (addresses) are believed about who asks. `lake` is where the tables of
    archived topics are.
    """

    host: str = LOOPBACK
    port: int = PORT
    base_path: str = ""
    folder: Path | None = None
    login: bool = False
    insecure: bool = False
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    lake: str | None = None
    sample_every: float = 10.0

    def check(self) -> None:
        """Raise ConfigError for what would be unsafe or cannot work."""
        if not is_loopback(self.host) and not self.login and not self.insecure:
            raise ConfigError(
                f"the dashboard would serve anyone who can reach {self.host}: add --login, which asks for a password, "
                "or --insecure, if everybody there may change everything"
            )
        if self.sample_every <= 0:
            raise ConfigError("the time between two samples must be more than 0 seconds")

    @property
    def asks_for_host(self) -> bool:
        """Whether a browser must call it by a known name.

        Without a login only that keeps pages of other sites out: they can give any name this machine's address.
        """
        return not self.login and not self.insecure


def normal_base_path(text: str) -> str:
    """`/mq` for `mq`, `/mq/` and `/mq`; empty for `/`. Raises ConfigError."""
    segments = [segment for segment in text.split("/") if segment]
    if not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise ConfigError(f"the base path {text!r} may have letters, digits, and . _ ~ - only")
    return "".join(f"/{segment}" for segment in segments)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
