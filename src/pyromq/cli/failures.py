"""Failures as one line and an exit code.

0 done · 1 refused by a server, or done in part · 2 usage · 3 not found · 4 not authorised
5 unreachable, or no answer in time · 6 `pyromq check` found a value over its threshold
"""

from __future__ import annotations

import difflib
from enum import IntEnum
from typing import TYPE_CHECKING

from pyromq.errors import (
    BrokerError,
    ConfigError,
    ConnectionLost,
    ConsumerNotOnline,
    InvalidMessage,
    LocalProtocolError,
    NoMessage,
    NoNameServer,
    NoPermission,
    PartialFailure,
    PyroMQError,
    QueryNotFound,
    RequestCodeNotSupported,
    RouteNotFound,
    SendFailed,
    SubscriptionGroupNotExist,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Collection


CREDENTIALS = "give credentials with --access-key, --context, or PYROMQ_ACCESS_KEY and PYROMQ_SECRET_KEY"


class Exit(IntEnum):
    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_AUTHORISED = 4
    UNREACHABLE = 5
    THRESHOLD = 6


class CommandFailed(PyroMQError):
    """A verb gives up with its own message and exit code."""

    def __init__(self, line: str, exit_code: Exit = Exit.REFUSED) -> None:
        super().__init__(line)
        self.exit_code = exit_code


_USAGE = (ConfigError, InvalidMessage, LocalProtocolError, NoNameServer)
_NOT_FOUND = (
    TopicNotFound,
    SubscriptionGroupNotExist,
    ConsumerNotOnline,
    QueryNotFound,
    NoMessage,
    RouteNotFound,
)
_UNREACHABLE = (ConnectionLost, TimeoutError)  # includes RequestTimeout
# 4.x answers with code 1, which may mean anything, and the name of its exception.
_ACL_WORDS = ("AclException", "AuthenticationException", "AuthorizationException")


def exit_code(error: BaseException) -> Exit:
    if isinstance(error, CommandFailed):
        return error.exit_code
    if isinstance(error, PartialFailure):
        codes = {exit_code(each) for _, each in error.failures}
        return codes.pop() if len(codes) == 1 and not error.done else Exit.REFUSED
    if isinstance(error, _USAGE):
        return Exit.USAGE
    if isinstance(error, _NOT_FOUND):
        return Exit.NOT_FOUND
    if isinstance(error, SendFailed) and {exit_code(each) for _, each in error.attempts} == {Exit.NOT_AUTHORISED}:
        return Exit.NOT_AUTHORISED
    if isinstance(error, NoPermission) or (
        isinstance(error, BrokerError) and any(word in error.remark for word in _ACL_WORDS)
    ):
        return Exit.NOT_AUTHORISED
    if isinstance(error, _UNREACHABLE):
        return Exit.UNREACHABLE
    return Exit.REFUSED


def next_step(error: BaseException) -> str:
    """What to try next, if something usually helps."""
    if isinstance(error, RequestCodeNotSupported):
        return "its version does not support this request"
    match exit_code(error):
        case Exit.UNREACHABLE:
            return "is it running? `pyromq up` starts one here; -n, --context or NAMESRV_ADDR name another"
        case Exit.NOT_AUTHORISED:
            return CREDENTIALS
        case _:
            return ""


def not_found(kind: str, name: str, known: Collection[str], where: str) -> CommandFailed:
    """No topic or group has that name; suggest similar ones."""
    near = nearest(name, known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"`pyromq {kind} list` lists them"
    return CommandFailed(f"there is no {kind} {name} at {where}; {hint}", Exit.NOT_FOUND)


def nearest(name: str, known: Collection[str], count: int = 3) -> list[str]:
    """Similar names, best match first, ignoring case."""
    by_lower = {each.lower(): each for each in sorted(known, reverse=True)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=count, cutoff=0.6)
    if len(close) < count and len(name) > 2:
        close += [each for each in by_lower if name.lower() in each and each not in close]
    return [by_lower[each] for each in close[:count]]
