"""Change settings while a server runs (requests 25 and 318): what may change, and the result.

Only `hot` settings can change. Everything else (paths, ports, roles, file sizes, security switches) is read at a start
only, so it has to be changed in the file: otherwise a request could leave a surprise there for the next start, weeks
later.
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

# Of the unknown settings in a request, this many are named in the answer, by this many characters.
_NAMED = 3
_SHOWN = 100
# The origin of a setting that was changed while its server ran begins like this.
BY_REQUEST = "request from "


def changed_by_request(
    settings: Settings,
    text: bytes,
    peer: str,
    *,
    black_list: Container[str],
    check: Callable[[Settings], None],
    file: str,
) -> Update:
    """Apply a properties text to `settings`: all of it, or none of it with a BrokerError.

    `check` is the check at a start: ConfigError for settings that no server can have. `file` is the settings file.
    """
    try:
        entries = parse(decode(text))
    except ConfigError as exc:
        raise ServerError("string2Properties error") from exc
    if any(entry.key in black_list for entry in entries):
        raise NoPermission("Can not update config in black list.")
    source = f"{BY_REQUEST}{peer}"
    try:
        update = settings.updated(Assignment(key, value, source) for key, value, _ in entries)
    except ConfigError as exc:
        raise ServerError(exc.reason) from exc
    try:
        check(update.settings)
    except ConfigError as exc:
        # Call a value that a start would refuse wrong, instead of pointing to the file.
        if exc.source == source or not update.at_restart:
            raise ServerError(exc.reason) from exc
    if update.at_restart:
        keys = ", ".join(update.at_restart)
        raise ServerError(f"{keys} cannot be changed while the server runs; set it in {file} and restart")
    return update


def log_change(update: Update, peer: str) -> None:
    """Log what changed."""
    for key in update.changed:
        if key in update.without_effect:
            logger.warning("%s; %s set it anyway", update.settings.why_no_effect(key), peer)
        else:
            logger.info("setting %s changed by %s", key, peer)
    if update.ignored:
        logger.warning("%s tried to change %d unknown settings: %s", peer, len(update.ignored), update.ignored[:_NAMED])


def remark_on(update: Update) -> str | None:
    """The remark for the answer: which keys have no effect, and why; some of those that nobody knows."""
    sentences = [*map(update.settings.why_no_effect, update.without_effect)]
    sentences += [update.settings.unknown_key(key[:_SHOWN]) for key in update.ignored[:_NAMED]]
    return "; ".join(sentences) or None
