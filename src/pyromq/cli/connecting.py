"""Which cluster a command talks to, and with which credentials.

The address: `-n`, then `--context`, then NAMESRV_ADDR, then the current context, then this machine. Credentials: those
of the context that gave the address or was named, then PYROMQ_ACCESS_KEY and PYROMQ_SECRET_KEY, then
`$ROCKETMQ_HOME/conf/tools.yml`, as in mqadmin. They are never sent to an address they were not saved for.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from . import context_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client import Client

DEFAULT = "127.0.0.1:9876"

_TOOLS_LINE = re.compile(r"\s*(accessKey|secretKey)\s*:\s*(.*?)\s*(?:#.*)?")


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect. `source` says where the address came from."""

    namesrv: str
    source: str
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: bool = False
    timeout: float | None = None
    controller: str | None = None

    @property
    def addresses(self) -> list[str]:
        return [part.strip() for part in self.namesrv.replace(",", ";").split(";") if part.strip()]

    def client(self) -> Client:
        """A client for this target, not yet started."""
        from pyromq.client import Client, Credentials

        credentials = None
        if self.access_key and self.secret_key:
            credentials = Credentials(self.access_key, self.secret_key, self.security_token)
        return Client(self.namesrv, credentials=credentials, tls=self.tls)


def target(namesrv: str | None, context: str | None, environ: Mapping[str, str] = os.environ) -> Target:
    """Raises CommandFailed for an unknown context, ConfigError for a malformed context file."""
    variable = environ.get("NAMESRV_ADDR", "").strip()
    chosen = None
    if context is not None:
        chosen = context_file.load(context_file.path(environ)).get(context)
    elif not namesrv and not variable:
        contexts = context_file.load(context_file.path(environ))
        chosen = contexts.table.get(contexts.current or "")
    if namesrv:
        address, source = namesrv, "-n"
    elif chosen is not None:
        address, source = chosen.namesrv, f"context {chosen.name}"
    elif variable:
        address, source = variable, "NAMESRV_ADDR"
    else:
        address, source = DEFAULT, "default"
    keys: tuple[str | None, str | None, str | None]
    if chosen is not None and chosen.access_key:
        keys = (chosen.access_key, chosen.secret_key, chosen.security_token)
    else:
        keys = _keys(environ)
    if chosen is None:
        return Target(address, source, *keys)
    # Controllers belong to the context's cluster; with -n it may be another one.
    controller = None if namesrv else chosen.controller
    return Target(address, source, *keys, chosen.tls, chosen.timeout, controller)


def _keys(environ: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    if environ.get("PYROMQ_ACCESS_KEY"):
        return environ["PYROMQ_ACCESS_KEY"], environ.get("PYROMQ_SECRET_KEY"), environ.get("PYROMQ_SECURITY_TOKEN")
    home = environ.get("ROCKETMQ_HOME")
    if not home:
        return None, None, None
    try:
        text = (Path(home) / "conf" / "tools.yml").read_text()
    except (OSError, UnicodeDecodeError):
        return None, None, None
    found = {match[1]: match[2].strip("'\"") for line in text.splitlines() if (match := _TOOLS_LINE.fullmatch(line))}
    return found.get("accessKey") or None, found.get("secretKey") or None, None
