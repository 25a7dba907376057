"""The secret of somebody else, which a command is to set: never on the command line, where others can see it."""

from __future__ import annotations

import os
import sys
import time

from .failures import CommandFailed, Exit

VARIABLE = "PYROMQ_NEW_SECRET"


def new_secret(user: str) -> str:
    """The secret for `user`: from the environment, else asked for at the terminal, else the first line of stdin."""
    if given := os.environ.get(VARIABLE):
        return given
    secret = _typed(user) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise CommandFailed(f"no secret was given; {VARIABLE} or stdin has it", Exit.USAGE)
    return secret


def _typed(user: str) -> str:
    import getpass

    from pyromq.client.admin.fan_out import more_time

    began = time.monotonic()
    secret = getpass.getpass(f"New secret of {user}: ")
    again = getpass.getpass("The same again: ")
    more_time(time.monotonic() - began)
    if secret != again:
        raise CommandFailed("the two are not the same; nothing was changed", Exit.USAGE)
    return secret
