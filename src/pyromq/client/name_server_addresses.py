"""Name server addresses: from the user, the environment, or an address server.

host:port;host:port                         the usual form
http://MQ_INST_<a>_<b>.<domain>:port        an endpoint of a managed service; its first label is a namespace
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError
from pyromq.remoting import split_addresses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIABLE = "NAMESRV_ADDR"

_INSTANCE_ENDPOINT = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\..*")


@dataclass(frozen=True, slots=True)
class NameServerAddresses:
    """A list of addresses, and the namespace that one of them names."""

    addresses: tuple[str, ...] = ()
    namespace: str | None = None


def configured(namesrv: str | Sequence[str] | None, environ: Mapping[str, str] | None = None) -> NameServerAddresses:
    """The addresses set by the user, or else by the environment; empty without either. Raises ConfigError."""
    if namesrv:
        return _parse(namesrv, "namesrv")
    variable = (os.environ if environ is None else environ).get(VARIABLE, "")
    return _parse(variable, f"environment {VARIABLE}") if variable.strip() else NameServerAddresses()


def _parse(namesrv: str | Sequence[str], source: str) -> NameServerAddresses:
    text = namesrv if isinstance(namesrv, str) else ";".join(namesrv)
    parts = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    namespace = None
    for part in parts:
        if namespace is None and (match := _INSTANCE_ENDPOINT.fullmatch(part)):
            namespace = match[1]
    try:
        addresses = split_addresses(";".join(_without_scheme(part) for part in parts))
    except ValueError as exc:
        raise ConfigError(str(exc), source) from exc
    return NameServerAddresses(tuple(addresses), namespace)


def _without_scheme(part: str) -> str:
    return part.rpartition("/")[2] if part.startswith("http://") else part
