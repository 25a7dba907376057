"""`pyromq`: knows every command by name and a sentence, and imports only the one that is asked for."""

from __future__ import annotations

import difflib
import importlib
import sys
from typing import NamedTuple

from pyromq import __version__


class Noun(NamedTuple):
    """A command. Its module has `main(arguments: list[str]) -> int`, the exit code."""

    module: str
    help: str


NOUNS = {
    "up": Noun("pyromq.cli.up", "Run a name server and a broker in one process, with no configuration."),
    "broker": Noun("pyromq.cli.broker", "Run a broker: it keeps messages and hands them out."),
    "check": Noun("pyromq.cli.check", "Look for damage in the files of a store."),
    "install-unit": Noun("pyromq.cli.install_unit", "Print a systemd unit for a broker or a name server."),
    "namesrv": Noun("pyromq.cli.namesrv", "Run a name server: brokers register with it, clients find them."),
}


def main(arguments: list[str] | None = None) -> None:
    """The console script."""
    sys.exit(_run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    name, *rest = arguments
    if name in ("-V", "--version", "version"):
        print(f"pyromq {__version__}")
        return 0
    noun = NOUNS.get(name)
    if noun is None:
        nearest = difflib.get_close_matches(name, NOUNS, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else "pyromq --help lists what there is"
        print(f"pyromq: no command {name!r}; {hint}", file=sys.stderr)
        return 1
    code: int = importlib.import_module(noun.module).main(rest)
    return code


def _help() -> str:
    width = max(map(len, NOUNS))
    lines = [f"  {name:<{width}}  {noun.help}" for name, noun in NOUNS.items()]
    return "\n".join(
        [
            "Usage: pyromq COMMAND [OPTIONS] [KEY=VALUE ...]",
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
