"""Contexts: named connections, kept in a file that only its owner can read.

    {"current": "prod", "contexts": {"prod": {"namesrv": "mq1:9876;mq2:9876", "accessKey": "…", "secretKey": "…"}}}

The file is `$XDG_CONFIG_HOME/pyromq/contexts.json`, otherwise under `~/.config`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

from .failures import CommandFailed, Exit, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Context:
    """How to reach a cluster. Printing it hides the secrets."""

    name: str
    namesrv: str
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: bool = False
    timeout: float | None = None
    controller: str | None = None
    # Paths: the certificates to trust, and the client's own with its key. Without the first, any server is trusted.
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts by name, and the one used by default."""

    table: dict[str, Context] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Context:
        """Raises CommandFailed for an unknown name."""
        if name not in self.table:
            near = nearest(name, self.table) or sorted(self.table)
            hint = f"known contexts: {', '.join(near)}" if near else "`pyromq context add` creates one"
            raise CommandFailed(f"there is no context {name}; {hint}", Exit.NOT_FOUND)
        return self.table[name]

    def with_context(self, context: Context) -> Contexts:
        return replace(self, table=self.table | {context.name: context})

    def without(self, name: str) -> Contexts:
        table = {each: context for each, context in self.table.items() if each != name}
        return Contexts(table, None if self.current == name else self.current)


def path(environ: Mapping[str, str] = os.environ) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".config")
    return Path(base) / "pyromq" / "contexts.json"


def load(file: Path) -> Contexts:
    """Read the file; a missing file means no contexts. Raises ConfigError."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"cannot be read: {exc}", str(file)) from exc
    try:
        data = json.loads(text)
        table = {str(name): _context(str(name), value) for name, value in data["contexts"].items()}
        current = data.get("current")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise ConfigError(f"not a contexts file: {exc}", str(file)) from exc
    return Contexts(table, current if current in table else None)


def save(file: Path, contexts: Contexts) -> None:
    """Replace the whole file, readable by its owner only. Raises ConfigError."""
    import tempfile

    data = {
        "current": contexts.current,
        "contexts": {name: _fields(context) for name, context in sorted(contexts.table.items())},
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)  # created with mode 0600
        with os.fdopen(handle, "w") as out:
            out.write(json.dumps(data, indent=2) + "\n")
        Path(name).replace(file)
    except OSError as exc:
        raise ConfigError(f"cannot be written: {exc.strerror}", str(file)) from exc


def _context(name: str, value: dict[str, Any]) -> Context:
    timeout = value.get("timeout")
    keys = ("namesrv", "accessKey", "secretKey", "securityToken", "controller", "tlsCa", "tlsCert", "tlsKey")
    texts = [value.get(key) for key in keys]
    if not all(text is None or isinstance(text, str) for text in texts) or not texts[0]:
        raise ValueError(f"context {name} is malformed")
    namesrv, access_key, secret_key, security_token, controller, *files = texts
    return Context(
        name,
        str(namesrv),
        access_key,
        secret_key,
        security_token,
        bool(value.get("tls", False)),
        None if timeout is None else float(timeout),
        controller,
        *files,
    )


def _fields(context: Context) -> dict[str, Any]:
    fields = {
        "namesrv": context.namesrv,
        "accessKey": context.access_key,
        "secretKey": context.secret_key,
        "securityToken": context.security_token,
        "tls": context.tls or None,
        "timeout": context.timeout,
        "controller": context.controller,
        "tlsCa": context.tls_ca,
        "tlsCert": context.tls_cert,
        "tlsKey": context.tls_key,
    }
    return {key: value for key, value in fields.items() if value is not None}
