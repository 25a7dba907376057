"""The table of subcommands: coroutine functions and their options, and helpers that many of them share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyromq.errors import RemoteProtocolError

from ..failures import CommandFailed, Exit
from ..times import parse_time

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from pyromq.protocol.bodies import Body

    from ..session import Session

    Run = Callable[[Session, argparse.Namespace], Awaitable[None]]

T = TypeVar("T", bound="Body")


@dataclass(frozen=True, slots=True)
class Opt:
    """An option, looked up by its letter. Without `value` it is a switch."""

    letter: str
    name: str
    help: str
    required: bool = False
    value: bool = True
    kind: type = str


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand. `timeout` covers the whole run; None lets it read as long as there is something."""

    name: str
    run: Run
    options: tuple[Opt, ...]
    timeout: float | None


COMMANDS: dict[str, Command] = {}


def classic(name: str, *options: Opt, timeout: float | None = 10.0) -> Callable[[Run], Run]:
    """Register a function in the table. Names are matched ignoring case."""

    def register(run: Run) -> Run:
        COMMANDS[name.lower()] = Command(name, run, options, timeout)
        return run

    return register


BROKER_ADDR = Opt("b", "brokerAddr", "Broker address.")
CLUSTER = Opt("c", "clusterName", "A cluster.")
TOPIC = Opt("t", "topic", "The topic.", required=True)
CONFIG_FILE = Opt("f", "filename", "File with a JSON array of their settings.", required=True)


def place_of(args: argparse.Namespace, *, anywhere: bool = False) -> dict[str, Any]:
    """Where to make a change: on the broker of -b, in the cluster of -c, or with `anywhere` on all without either."""
    if not args.b and not args.c and not anywhere:
        raise CommandFailed("give a broker with -b or a cluster with -c", Exit.USAGE)
    return {"cluster": None if args.b else args.c, "brokers": args.b}


def read_configs(name: str, kind: type[T]) -> list[T]:
    """The topics or groups from a file that holds a JSON array of them."""
    from pyromq.protocol import fastjson
    from pyromq.protocol.bodies.conversion import convert

    try:
        found = fastjson.loads(Path(name).read_bytes())
        if not isinstance(found, list):
            raise CommandFailed(f"{name} is not a JSON array", Exit.USAGE)
        return [convert(kind, each) for each in found]
    except OSError as exc:
        raise CommandFailed(f"{name} cannot be read: {exc.strerror}", Exit.USAGE) from exc
    except RemoteProtocolError as exc:
        raise CommandFailed(f"{name}: {exc}", Exit.USAGE) from exc


def write_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file where mqadmin writes it. Anyone may have created that folder, or a link in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(file, "wb") as target:
        target.write(data)


def moment(text: str | None) -> datetime | None:
    """The time a user typed."""
    return None if text is None else parse_time(text, datetime.now().astimezone())
