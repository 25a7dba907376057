"""Which cluster a command talks to, and with which credentials.

The address: `-n`, then `--context`, then NAMESRV_ADDR, then the current context, then this machine. Credentials:
`--access-key` with PYROMQ_SECRET_KEY or a secret that is asked for at the terminal, then those of the context that gave
the address or was named, then PYROMQ_ACCESS_KEY and PYROMQ_SECRET_KEY, then `$ROCKETMQ_HOME/conf/tools.yml`, as in
mqadmin. They are never sent to an address they were not saved for. No option takes a secret, since every user of a
machine can see the command lines of all others.

TLS: as the context says, or `--tls`, with the variables of the settings `tls.client.*`: PYROMQ_TLS_ENABLE,
PYROMQ_TLS_CLIENT_TRUST_CERT_PATH and so on, or PYROMQ_TLS_CONFIG_FILE for a file of them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from . import context_file
from .failures import CommandFailed, Exit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client import Client
    from pyromq.remoting import TlsConfig

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
    tls: TlsConfig | None = None
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
        return Client(self.namesrv, credentials=credentials, tls=self.tls or False)


def target(
    namesrv: str | None,
    context: str | None,
    environ: Mapping[str, str] = os.environ,
    *,
    access_key: str | None = None,
    tls: bool = False,
) -> Target:
    """Raises CommandFailed for an unknown context or a missing secret, ConfigError for a malformed context file."""
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
    if access_key:
        keys = access_key, environ.get("PYROMQ_SECRET_KEY") or _asked_secret(access_key), None
    elif chosen is not None and chosen.access_key:
        keys = (chosen.access_key, chosen.secret_key, chosen.security_token)
    else:
        keys = _keys(environ)
    if chosen is None:
        return Target(address, source, *keys, _tls(environ, wanted=tls))
    # Controllers belong to the context's cluster; with -n it may be another one.
    controller = None if namesrv else chosen.controller
    encrypted = _tls_of(chosen) if chosen.tls else _tls(environ, wanted=tls)
    return Target(address, source, *keys, encrypted, chosen.timeout, controller)


def _asked_secret(access_key: str) -> str:
    import getpass
    import sys

    if sys.stdin.isatty():
        secret = getpass.getpass(f"Secret key of {access_key}: ")
        if secret:
            return secret
    raise CommandFailed("--access-key needs a secret key: set PYROMQ_SECRET_KEY, or save a context", Exit.USAGE)


def _tls_of(context: context_file.Context) -> TlsConfig:
    from pyromq.remoting.tls import TlsConfig

    return TlsConfig(
        client_enable=True,
        client_auth_server=context.tls_ca is not None,
        client_trust=context.tls_ca or "",
        client_cert=context.tls_cert or "",
        client_key=context.tls_key or "",
    )


def _tls(environ: Mapping[str, str], *, wanted: bool) -> TlsConfig | None:
    """What the environment says; None for plain text. ConfigError for a malformed value."""
    if not wanted and not any(name.startswith("PYROMQ_TLS_") for name in environ):
        return None
    from pyromq.remoting.tls import TlsConfig, with_tls_file
    from pyromq.settings import Settings

    config = with_tls_file(Settings.load(TlsConfig, environ=environ))[TlsConfig]
    return config if wanted or config.client_enable else None


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
