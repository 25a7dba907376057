"""`pyromq`: knows every command by name and a sentence, and imports only the one that is asked for."""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from pyromq import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence


class Noun(NamedTuple):
    """A command. Its module has `main(arguments: list[str]) -> int`, the exit code.

    Where the first argument matches `verbs`, another module is meant: `pyromq broker` runs a broker, `pyromq broker
    status` looks at brokers that run.
    """

    module: str
    help: str
    verbs: str = ""
    verbs_module: str = ""


_WORD = "[a-z][a-z-]*"

NOUNS = {
    "up": Noun("pyromq.cli.servers.up", "Run a name server and a broker in one process, with no configuration."),
    "broker": Noun(
        "pyromq.cli.servers.broker", "Run a broker, or look at brokers that run.", _WORD, "pyromq.cli.nouns.broker"
    ),
    "namesrv": Noun(
        "pyromq.cli.servers.namesrv", "Run a name server, or change those that run.", _WORD, "pyromq.cli.nouns.namesrv"
    ),
    "topic": Noun("pyromq.cli.nouns.topic", "Topics: what there is, where, how big; making and deleting them."),
    "group": Noun("pyromq.cli.nouns.group", "Consumer groups: lag, members, settings, offsets."),
    "message": Noun(
        "pyromq.cli.nouns.message.message", "Messages: finding, reading, following, sending, exporting them."
    ),
    "dlq": Noun("pyromq.cli.nouns.dlq", "Dead letters: what groups failed at, and sending it once more."),
    "trace": Noun("pyromq.cli.nouns.trace", "What clients did with a message, as they traced it."),
    "queue": Noun("pyromq.cli.nouns.queue", "Consume queues, entry by entry."),
    "producer": Noun("pyromq.cli.nouns.producer", "Producers that brokers know."),
    "cluster": Noun("pyromq.cli.nouns.cluster", "Clusters and their brokers, with what they measure."),
    "check": Noun(
        "pyromq.cli.nouns.store_check",
        "Look for damage in the files of a store; check lag, broker, disk against limits.",
        "lag|broker|disk",
        "pyromq.cli.nouns.check",
    ),
    "store": Noun("pyromq.cli.nouns.store", "A store that no broker has open: what is in it, and whether all is well."),
    "config": Noun("pyromq.cli.nouns.config", "Files of settings: what a server would say about them."),
    "apply": Noun("pyromq.cli.nouns.apply", "Topics and groups as a file says they should be: plan, then apply."),
    "export": Noun(
        "pyromq.cli.nouns.export", "What a cluster is, as a document: topics and groups, settings, its load."
    ),
    "top": Noun("pyromq.cli.nouns.top", "Topics and groups with their rates and lag, again and again."),
    "doctor": Noun("pyromq.cli.nouns.doctor", "What is wrong with a cluster, seen from here, and what to do about it."),
    "spark": Noun("pyromq.cli.nouns.spark", "Work with topics in Spark: a prompt, programs, a look at its health."),
    "bench": Noun("pyromq.cli.nouns.bench", "How fast messages are sent and read here."),
    "context": Noun("pyromq.cli.nouns.context", "Named connections, for --context."),
    "mqadmin": Noun("pyromq.cli.mqadmin", "RocketMQ's own admin commands, by their names, options and headings."),
    "completion": Noun("pyromq.cli.nouns.completion", "Print a script that completes commands, topics and groups."),
    "install-unit": Noun("pyromq.cli.servers.install_unit", "Print a systemd unit for a broker or a name server."),
}
# Commands for programs, which the help leaves out.
_HIDDEN = {"complete": Noun("pyromq.cli.nouns.complete", "What could stand next on a command line.")}
_BAD_USAGE = 2
# Options that every verb has.
_WITH_VALUE = ("-n", "--namesrv", "--context", "-o", "--output", "--timeout", "--watch")
_WITHOUT = ("--no-color", "--yes", "-y", "--dry-run")


def main(arguments: list[str] | None = None) -> None:
    """The console script."""
    sys.exit(_run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    arguments = common_last(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    name, *rest = arguments
    if name in ("-V", "--version", "version"):
        print(f"pyromq {__version__}")
        return 0
    noun = NOUNS.get(name) or _HIDDEN.get(name)
    if noun is None:
        import difflib

        nearest = difflib.get_close_matches(name, NOUNS, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else "pyromq --help lists what there is"
        print(f"pyromq: no command {name!r}; {hint}", file=sys.stderr)
        return _BAD_USAGE
    code: int = importlib.import_module(module_of(noun, rest)).main(rest)
    return code


def common_last(arguments: Sequence[str]) -> list[str]:
    """The arguments with options that every verb has moved from the front behind everything else.

    So `pyromq -n mq1:9876 topic list` works, too.
    """
    rest = list(arguments)
    moved: list[str] = []
    while rest:
        name, equals, _ = rest[0].partition("=")
        if name in _WITHOUT or (name in _WITH_VALUE and equals):
            count = 1
        elif name in _WITH_VALUE and len(rest) > 1:
            count = 2
        else:
            break
        moved += rest[:count]
        del rest[:count]
    at = rest.index("--") if "--" in rest else len(rest)
    return rest[:at] + moved + rest[at:]


def module_of(noun: Noun, rest: list[str]) -> str:
    """The module that a command line is meant for."""
    if noun.verbs and rest and re.fullmatch(noun.verbs, rest[0]):
        return noun.verbs_module
    return noun.module


def _help() -> str:
    width = max(map(len, NOUNS))
    lines = [f"  {name:<{width}}  {noun.help}" for name, noun in NOUNS.items()]
    return "\n".join(
        [
            "Usage: pyromq COMMAND [VERB] [OPTIONS] [KEY=VALUE ...]",
            "",
            "Commands:",
            *lines,
            "",
            "Options:",
            "  -h, --help     Show this, or the help of a command: pyromq COMMAND --help",
            "  -V, --version  Show the version.",
        ]
    )


if __name__ == "__main__":
    main()
