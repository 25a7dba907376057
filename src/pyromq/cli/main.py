"""`pyromq`: the table of all commands; imports only the one you call."""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from pyromq import __version__, _native

if TYPE_CHECKING:
    from collections.abc import Sequence


class Noun(NamedTuple):
    """A command. Its module has `main(arguments: list[str]) -> int`, the exit code.

    If the first argument matches `verbs`, another module takes over: `pyromq broker` runs a broker, `pyromq broker
    status` shows the running ones.
    """

    module: str
    help: str
    verbs: str = ""
    verbs_module: str = ""


_WORD = "[a-z][a-z-]*"

NOUNS = {
    "up": Noun(
        "pyromq.cli.servers.up", "Run a name server, a broker and a dashboard in one process, without configuration."
    ),
    "broker": Noun(
        "pyromq.cli.servers.broker",
        "Run a broker, or inspect and manage running ones.",
        _WORD,
        "pyromq.cli.nouns.broker",
    ),
    "namesrv": Noun(
        "pyromq.cli.servers.namesrv", "Run a name server, or manage running ones.", _WORD, "pyromq.cli.nouns.namesrv"
    ),
    "controller": Noun(
        "pyromq.cli.servers.controller",
        "Run a controller, which decides who is master of each broker group, or manage fail-over.",
        _WORD,
        "pyromq.cli.nouns.controller",
    ),
    "dashboard": Noun("pyromq.cli.servers.dashboard", "Show clusters in the browser, ours or RocketMQ's own."),
    "topic": Noun("pyromq.cli.nouns.topic", "List, inspect, create and delete topics."),
    "group": Noun("pyromq.cli.nouns.group", "Show and manage consumer groups: lag, members, settings, offsets."),
    "message": Noun("pyromq.cli.nouns.message.message", "Find, read, follow, send and export messages."),
    "dlq": Noun("pyromq.cli.nouns.dlq", "List dead letters and send them again."),
    "trace": Noun("pyromq.cli.nouns.trace", "Show the trace of a message: who sent it, who consumed it, and when."),
    "queue": Noun("pyromq.cli.nouns.queue", "Show the entries of a consume queue."),
    "producer": Noun("pyromq.cli.nouns.producer", "List producers that are connected to brokers."),
    "user": Noun("pyromq.cli.nouns.user", "List, create, change and delete users, who sign requests (5.x)."),
    "policy": Noun("pyromq.cli.nouns.policy", "Show and change what users may do (5.x)."),
    "cluster": Noun("pyromq.cli.nouns.cluster", "Show clusters and their brokers, with rates and disk use."),
    "acl": Noun("pyromq.cli.nouns.acl", "List and change accounts of RocketMQ 4.x access control."),
    "check": Noun(
        "pyromq.cli.nouns.store_check",
        "Check a store's files for damage, or lag, brokers and disks against limits.",
        "lag|broker|disk",
        "pyromq.cli.nouns.check",
    ),
    "store": Noun("pyromq.cli.nouns.store", "Inspect and verify a store that no broker has open."),
    "config": Noun("pyromq.cli.nouns.config", "Validate settings files without starting a server."),
    "apply": Noun("pyromq.cli.nouns.apply", "Make topics and groups match a file: plan first, then apply."),
    "export": Noun("pyromq.cli.nouns.export", "Export a cluster's topics, groups, settings or load as a document."),
    "top": Noun("pyromq.cli.nouns.top", "Watch the rates and lag of topics and groups."),
    "doctor": Noun("pyromq.cli.nouns.doctor", "Find out what is wrong with a cluster, and how to fix it."),
    "exporter": Noun("pyromq.cli.nouns.exporter", "Show the metrics of a whole cluster to Prometheus."),
    "sql": Noun("pyromq.cli.nouns.sql", "Ask topics, their archive, or both, in SQL."),
    "spark": Noun("pyromq.cli.nouns.spark", "Work with topics in Spark: a shell, programs, pipelines, a health check."),
    "lake": Noun("pyromq.cli.nouns.lake", "Look at the tables of archived topics, and take care of them."),
    "pipelines": Noun("pyromq.cli.nouns.pipelines", "Make a project of Spark Declarative Pipelines."),
    "bench": Noun("pyromq.cli.nouns.bench", "Measure how fast messages are sent and read."),
    "context": Noun("pyromq.cli.nouns.context", "Manage named connections, for --context."),
    "tls": Noun("pyromq.cli.nouns.tls", "Make certificates for TLS, and look at those that servers show."),
    "mqadmin": Noun("pyromq.cli.mqadmin", "Run RocketMQ's own admin commands, with their names, options and headings."),
    "completion": Noun(
        "pyromq.cli.nouns.completion", "Print a shell script that completes commands, topics and groups."
    ),
    "install-unit": Noun("pyromq.cli.servers.install_unit", "Print a systemd unit for a server."),
}
# Commands for programs; the help leaves them out.
_HIDDEN = {"complete": Noun("pyromq.cli.nouns.complete", "Suggest the next word of a command line.")}
_BAD_USAGE = 2
# Options of every verb.
_WITH_VALUE = ("-n", "--namesrv", "--context", "--access-key", "-o", "--output", "--timeout", "--watch")
_WITHOUT = ("--tls", "--no-color", "--yes", "-y", "--dry-run")


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
        print(f"pyromq {__version__}, {_native.state()}")
        return 0
    noun = NOUNS.get(name) or _HIDDEN.get(name)
    if noun is None:
        import difflib

        nearest = difflib.get_close_matches(name, NOUNS, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else "pyromq --help lists all commands"
        print(f"pyromq: no command {name!r}; {hint}", file=sys.stderr)
        return _BAD_USAGE
    code: int = importlib.import_module(module_of(noun, rest)).main(rest)
    return code


def common_last(arguments: Sequence[str]) -> list[str]:
    """The arguments, with common options moved from the front to the end.

    So `pyromq -n mq1:9876 topic list` works too.
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
    """The module that handles this command line."""
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
