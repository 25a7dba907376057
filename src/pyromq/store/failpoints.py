"""Failpoints: named places where a crash would hurt, and where tests can cause one.

    failpoints.hit("log.roll.blank")                  # in the store; does nothing unless a test said otherwise

    with failpoints.active("log.roll.blank", crash):  # in a test; `crash` is called, and may raise
        ...

A separate process reads its environment: `PYROMQ_FAILPOINTS=log.roll.blank=exit:3` ends it at once, as SIGKILL
would, the third time it gets there; `raise` instead of `exit` raises Crashed. Separate several by
semicolons. None of these places is passed per message; an inactive one costs 50 ns.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VARIABLE = "PYROMQ_FAILPOINTS"
EXIT_CODE = 86  # exit code at a failpoint

NAMES = frozenset(
    {
        # Opening and closing.
        "open.marked",  # the mark of a crash is there; nothing was recovered yet
        "open.recovered",  # the log's end is known; queues and index are not synced
        "close.synced",  # everything is on disk, and files are still open
        "close.unmark",  # files are closed; the mark of a crash is about to go
        # The commit log.
        "log.create",  # a file was made; its folder is not synced
        "log.roll.begin",
        "log.roll.made",  # the next file is there; the blank record that leads to it is not
        "log.roll.blank",  # the blank record is there; nothing is in the next file
        "log.write.before",
        "log.write.after",  # a batch is in the log; neither queues nor index know of it
        "log.truncate.deleted",  # files behind the end are gone; the file it lies in still has its old bytes
        "log.truncate.zeroed",  # nothing is behind the end; that is not synced
        "log.recovered",  # one file was read back
        # Queues.
        "queue.create",
        "queue.write.before",
        "queue.write.after",
        "queue.cut",  # entries behind the end are about to go
        # The index: entries first, then the slots that lead to them, then the header that counts them.
        "index.create",
        "index.write.entries",
        "index.write.slots",
        "index.write.header",
        "index.cut_back",
        # The flush thread.
        "flush.before",
        "flush.after",  # a file of the log was synced; nobody was told
        "upkeep.synced",  # queues and index were synced; the checkpoint does not say so yet
        "checkpoint.written",  # it does, but is not synced itself
        # Clean-up.
        "clean.deleted",  # a file of the log was deleted, and what points to it was not; or not all of that
    }
)


class Crashed(BaseException):
    """The process counts as dead from here on. Not an Exception, so that the store does not handle it."""


_actions: dict[str, Callable[[], None]] = {}


def hit(name: str) -> None:
    """Run the action of an active failpoint."""
    if _actions:
        action = _actions.get(name)
        if action is not None:
            action()


def crash() -> None:
    """An action: the process counts as dead for the test."""
    raise Crashed


def exit_now() -> None:
    """An action: end the process as SIGKILL would. Nothing is written, closed or reported."""
    os._exit(EXIT_CODE)


def nth(count: int, action: Callable[[], None]) -> Callable[[], None]:
    """`action`, but only the `count`-th time the place is passed."""
    left = count

    def counted() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            action()

    return counted


@contextlib.contextmanager
def active(name: str, action: Callable[[], None]) -> Iterator[None]:
    """Call `action`, in any thread, whenever the failpoint `name` is passed. KeyError if there is no such name."""
    if name not in NAMES:
        raise KeyError(name)
    _actions[name] = action
    try:
        yield
    finally:
        _actions.pop(name, None)


def activate_from(text: str) -> None:
    """Activate for good the failpoints in `text`, the value of the variable. ConfigError if it makes no sense."""
    for part in filter(None, text.split(";")):
        name, _, what = part.partition("=")
        kind, _, count = what.partition(":")
        action = {"exit": exit_now, "raise": crash}.get(kind)
        if name not in NAMES or action is None or not (count or "1").isdecimal():
            raise ConfigError(f"{part!r} is not a failpoint such as log.roll.blank=exit:3", VARIABLE)
        _actions[name] = nth(int(count or 1), action)


if VARIABLE in os.environ:
    activate_from(os.environ[VARIABLE])
