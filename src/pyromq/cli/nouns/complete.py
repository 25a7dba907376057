"""`pyromq complete`: suggestions for the next word of a command line, one per line; the shell calls it on each Tab.

It must never get in the way: anything that takes longer than a second is left out, silently.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import logging
import os
from typing import TYPE_CHECKING, Any

import typer

from pyromq.errors import PyroMQError

from .. import context_file
from ..connecting import target
from ..main import NOUNS, common_last
from ..output import Output
from ..verbs import narrowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WITHIN = 1.0


def main(arguments: list[str]) -> int:
    words = arguments[1:] if arguments[:1] == ["--"] else arguments
    logging.disable(logging.CRITICAL)
    for found in candidates(words or [""]):
        print(found)
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Suggestions for the last word, which may be empty or partly typed."""
    before, begun = common_last(words[:-1]), words[-1]
    return sorted({each for each in _possible(before, begun) if each.startswith(begun)})


def _possible(before: list[str], begun: str) -> Iterable[str]:
    if not before:
        return [*NOUNS, "--help", "--version"]
    noun = NOUNS.get(before[0])
    if noun is None:
        return ()
    app = getattr(importlib.import_module(noun.verbs_module or noun.module), "app", None)
    if app is None:
        return ()
    rest = before[1:]
    command: Any = typer.main.get_command(narrowed(app, rest))
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    if hasattr(command, "commands"):
        return list(command.commands)
    parameter = _parameter(command, rest)
    if begun.startswith("-") and not (rest and _takes_value(command, rest[-1])):
        return [name for option in command.params for name in (*option.opts, *option.secondary_opts) if name[0] == "-"]
    return _values(parameter, rest) if parameter is not None else ()


def _parameter(command: Any, rest: list[str]) -> Any:
    """What the next word is: the value of the option before it, or an argument."""
    if rest and (option := _takes_value(command, rest[-1])):
        return option
    given = 0
    words = iter(rest)
    for word in words:
        if not word.startswith("-"):
            given += 1
        elif _takes_value(command, word):
            next(words, None)
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    if given < len(arguments):
        return arguments[given]
    return arguments[-1] if arguments and arguments[-1].nargs == -1 else None


def _takes_value(command: Any, word: str) -> Any:
    """The option of that name, if it takes a value."""
    for each in command.params:
        if each.param_type_name == "option" and word in each.opts and not each.is_flag:
            return each
    return None


def _values(parameter: Any, rest: list[str]) -> Iterable[str]:
    if parameter.name == "output":
        return list(Output)
    if parameter.name in ("context", "name"):
        with contextlib.suppress(PyroMQError):
            return context_file.load(context_file.path(os.environ)).table
    if parameter.name in ("topic", "topics", "group", "to", "cluster", "broker", "brokers"):
        namesrv = next((word for option, word in itertools.pairwise(rest) if option in ("-n", "--namesrv")), None)
        with contextlib.suppress(PyroMQError, TimeoutError):
            return asyncio.run(_names(parameter.name, namesrv))
    return ()


async def _names(kind: str, namesrv: str | None) -> Iterable[str]:
    from pyromq.client.admin import AdminClient

    client = target(namesrv, None).client()
    async with asyncio.timeout(_WITHIN), AdminClient(client=client, timeout=_WITHIN) as admin:
        if kind.startswith("topic"):
            return await admin.topics.names()
        if kind in ("group", "to"):
            return await admin.groups.names()
        info = await admin.brokers.cluster_info()
        return info.cluster_addr_table if kind == "cluster" else info.broker_addr_table
