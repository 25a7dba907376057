"""The settings of a server on the wire: the text of a properties file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.settings import dump, parse
from pyromq.settings.properties import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.protocol.command import Command


def config_from(reply: Command, server: str) -> dict[str, str]:
    """Parse the settings that a server reports."""
    try:
        return {entry.key: entry.value for entry in parse(decode(reply.body_bytes))}
    except ConfigError as exc:
        raise RemoteProtocolError(f"{server}: its settings cannot be read: {exc}") from exc


def config_text(changes: Mapping[str, str]) -> bytes:
    return dump(changes.items()).encode()
