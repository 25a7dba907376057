"""The table of subcommands: each is a coroutine function and the options that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from ..session import Session

    Run = Callable[[Session, argparse.Namespace], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Opt:
    """An option; its value is found by its letter. Without `value` it is a switch."""

    letter: str
    name: str
    help: str
    required: bool = False
    value: bool = True
    kind: type = str


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand. `timeout` is for all of it, None for one that reads as long as there is something."""

    name: str
    run: Run
    options: tuple[Opt, ...]
    timeout: float | None


COMMANDS: dict[str, Command] = {}


def classic(name: str, *options: Opt, timeout: float | None = 10.0) -> Callable[[Run], Run]:
    """Put a function into the table. Names are matched without regard to upper and lower case."""

    def register(run: Run) -> Run:
        COMMANDS[name.lower()] = Command(name, run, options, timeout)
        return run

    return register


BROKER_ADDR = Opt("b", "brokerAddr", "Address of a broker.")
CLUSTER = Opt("c", "clusterName", "A cluster.")
TOPIC = Opt("t", "topic", "The topic.", required=True)
