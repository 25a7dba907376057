"""A change of settings while a server runs (requests 25 and 318): what it may touch, and what it comes to.

The `hot` settings are the list of what can change. Everything else (paths, ports, roles, sizes of files, switches of
security) counts at a start only, so it is changed where a start reads it: nobody should find out weeks later, at the
next start, what a request had left in the file.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, NoPermission, ServerError

from .loading import Assignment
from .properties import decode, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from .loading import Settings, Update

logger = logging.getLogger(__name__)


def changed_by_request(
    settings: Settings,
    text: bytes,
    peer: str,
    *,
    black_list: Container[str],
    check: Callable[[Settings], None],
    file: str,
) -> Update:
    """What a properties text would make of `settings`: all of it, or a BrokerError and none of it.

    `check` is what a start does: ConfigError for settings that no server can have. `file` is where a start reads them.
    """
    try:
        entries = parse(decode(text))
    except ConfigError as exc:
        raise ServerError("string2Properties error") from exc
    if any(entry.key in black_list for entry in entries):
        raise NoPermission("Can not update config in black list.")
    source = f"request from {peer}"
    try:
        update = settings.updated(Assignment(key, value, source) for key, value, _ in entries)
    except ConfigError as exc:
        raise ServerError(exc.reason) from exc
    try:
        check(update.settings)
    except ConfigError as exc:
        # A value that a start refuses is called wrong, not sent to the file.
        if exc.source == source or not update.at_restart:
            raise ServerError(exc.reason) from exc
    if update.at_restart:
        keys = ", ".join(update.at_restart)
        raise ServerError(f"{keys} cannot be changed while the server runs; set it in {file} and restart")
    return update


def log_change(update: Update, peer: str) -> None:
    """Say what changed, once it has."""
    for key in update.changed:
        if key in update.without_effect:
            logger.warning("%s; %s has set it all the same", update.settings.why_no_effect(key), peer)
        else:
            logger.info("setting %s changed by %s", key, peer)
    if update.ignored:
        logger.warning("%s tried to change %d unknown settings: %s", peer, len(update.ignored), update.ignored[:3])


def remark_on(update: Update) -> str | None:
    """What the answer to such a request has to say: which of the keys change nothing, and why."""
    return "; ".join(map(update.settings.why_no_effect, update.without_effect)) or None
