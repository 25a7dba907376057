"""What docs/ takes from the code: docs/reference made anew, and the files that pages show put into them.

    settings.md    every setting of a broker, a name server and a controller, as declared
    limits.md      those of them that bound what clients can ask for, and what happens beyond
    cli.md         every command with its options, as typer knows them
    metrics.md     every metric with its labels
    pages          a block after `<!-- file: examples/send.py -->` is that file

`--check` compares instead, for `make check`.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pyromq.broker.config import CONFIGS as BROKER_CONFIGS
from pyromq.cli.main import NOUNS
from pyromq.controller.config import CONFIGS as CONTROLLER_CONFIGS
from pyromq.metrics.broker_metrics import BROKER
from pyromq.metrics.exporter_metrics import EXPORTER
from pyromq.metrics.server_metrics import CONTROLLER, NAMESRV, PROCESS
from pyromq.namesrv.config import CONFIGS as NAMESRV_CONFIGS
from pyromq.remoting import ServerConfig
from pyromq.settings import options_of
from pyromq.settings.options import Computed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyromq.settings import Option

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NOTE = "<!-- Made by scripts/reference.py; not edited by hand. -->"

_SHOWN_FILE = re.compile(r"(<!-- file: (\S+) -->\n```(\w+)\n).*?(^```$)", re.DOTALL | re.MULTILINE)
# Options that every verb has, said once.
_COMMON = ("output", "watch", "namesrv", "context", "timeout", "no_color", "yes", "dry_run", "help")

_SETTINGS_HEAD = """\
# Settings

Keys are those of RocketMQ's `broker.conf` and name server properties, and our own where RocketMQ has none. The last of
these that says something counts: defaults, the file (`-c`), the environment (`PYROMQ_BROKER_IP1` for `brokerIP1`),
`--set KEY=VALUE`, bare `KEY=VALUE` arguments. `--print-config` prints every value with where it came from. A *live*
setting can be changed while the server runs (`pyromq broker config set`); for any other, edit the file and restart.
*No effect* marks a setting that RocketMQ has and this server does not need: it is accepted, and the log says so if you
set it.
"""
_LIMITS_HEAD = """\
# Limits

What clients can make a server keep or do is bounded, so that one of them cannot take it away from all others. Honest
programs do not meet the defaults. Where RocketMQ has no text of its own, a refusal names the setting, so you know what
to raise. A *live* limit can be changed while the server runs (`pyromq broker config set`): it counts from then on, and
nothing that is there already is taken away.

Requests whose body is not a message or a list, such as changed settings (25, 318, 1009), may have 64 KiB; that is not a
setting. What access control refuses is in [security](../security.md).
"""
_CLI_HEAD = """\
# Commands

`pyromq COMMAND [VERB] --help` says the same. Verbs that ask a cluster have these options, too:

| Option | |
|---|---|
| `-n`, `--namesrv HOST:PORT` | name servers, by `;`; else the context, `NAMESRV_ADDR`, this machine |
| `--context NAME` | a connection that `pyromq context` keeps |
| `-o`, `--output` | `table`, `json`, `ndjson`, `csv`, `yaml` or `name` |
| `--timeout SEC` | for the whole command |
| `--watch SEC` | repeat until Ctrl-C; for verbs that look |
| `-y`, `--yes` · `--dry-run` | do not ask · only say what would be done; for verbs that change something |
| `--no-color` | plain text; also with `NO_COLOR` set |

Exit codes: 0 done, 1 refused by a server or done in part, 2 usage, 3 not found, 4 not authorised, 5 unreachable or no
answer in time, 6 a limit of `pyromq check` was crossed or `pyromq doctor` found something. Those of `pyromq broker` and
`pyromq namesrv` are RocketMQ's: 1 usage, 253 surroundings, 255 settings.

Times are `now`, milliseconds since 1970, ISO 8601, `-15m`, or `yyyy-MM-dd#HH:mm:ss:SSS`.
"""


_METRICS_HEAD = """\
# Metrics

What `/metrics` shows; [the guide](../how-to/monitor.md) says how to read it. A histogram has the suffixes `_bucket`,
`_sum` and `_count`. All metrics of a broker also have the labels `cluster`, `node_type` and `node_id`, those of a name
server and a controller the last two, and all have those of `metricsLabel`. With `metricsUnitSuffix=false` names have no
units.
"""


# Metrics


def metrics_page() -> str:
    lines = [NOTE, _METRICS_HEAD]
    for title, table in (
        ("Broker", BROKER),
        ("Name server", NAMESRV),
        ("Controller", CONTROLLER),
        ("Every process", PROCESS),
        ("pyromq exporter", EXPORTER),
    ):
        lines += [f"## {title}", "", "| Metric | Kind | Labels | |", "|---|---|---|---|"]
        for metric in table:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.exposed()}` | {metric.kind} | {labels} | {_cell(metric.help)} |")
        lines.append("")
    return "\n".join(lines)


# Settings


def settings_page() -> str:
    return "\n".join(
        [
            NOTE,
            _SETTINGS_HEAD,
            *_settings("Broker", BROKER_CONFIGS),
            *_settings("Name server", NAMESRV_CONFIGS),
            *_settings("Controller", CONTROLLER_CONFIGS),
        ]
    )


def _settings(title: str, configs: Iterable[type]) -> Iterator[str]:
    yield from (f"## {title}", "")
    for config in configs:
        options = options_of(config)
        if not options:
            continue
        sentence = (config.__doc__ or "").strip().splitlines()[0]
        yield from (f"### {_title(config)}", "", sentence, "")
        yield from ("| Key | Default | Values | Live | |", "|---|---|---|---|---|")
        for option, default in _with_defaults(config):
            yield _setting(option, default)
        yield ""


def limits_page() -> str:
    """The settings that say what happens beyond them."""
    lines = [NOTE, _LIMITS_HEAD]
    shared = {option.key for option in options_of(ServerConfig)}
    for title, configs, left_out in (
        ("All servers", (ServerConfig,), frozenset()),
        ("Broker", BROKER_CONFIGS, shared),
        ("Name server", NAMESRV_CONFIGS, shared),
        ("Controller", CONTROLLER_CONFIGS, shared),
    ):
        rows = [
            f"| `{option.key}` | {_default_of(option, default)} | {'yes' if option.hot else ''} | {_cell(option.doc)} "
            f"| {_cell(option.limit)} |"
            for config in configs
            for option, default in _with_defaults(config)
            if option.limit and option.key not in left_out
        ]
        if rows:
            head = ("| Key | Default | Live | Bounds | Beyond it |", "|---|---|---|---|---|")
            lines += [f"## {title}", "", *head, *rows, ""]
    return "\n".join(lines)


def _with_defaults(config: type) -> Iterator[tuple[Option, Any]]:
    defaults = {field.name: field.default for field in config.__dataclass_fields__.values()}  # type: ignore[attr-defined]
    return ((option, defaults[option.name]) for option in options_of(config))


def _title(config: type) -> str:
    words = re.findall(r"[A-Z][a-z]*", config.__name__.removesuffix("Config"))
    return " ".join(words).capitalize()


def _setting(option: Option, default: Any) -> str:
    live = "no effect" if option.no_effect else "yes" if option.hot else ""
    return f"| `{option.key}` | {_default_of(option, default)} | {_values(option)} | {live} | {_cell(option.doc)} |"


def _default_of(option: Option, default: Any) -> str:
    if default is dataclasses.MISSING or isinstance(default, Computed):
        return "by the machine"  # worked out when it starts, and another one wherever this page is made
    if option.secret or default in ("", None):
        return ""
    if option.size:
        for unit, name in ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")):
            if default and default % unit == 0:
                return f"`{default // unit}{name}`"
    return f"`{option.text(default)}`"


def _values(option: Option) -> str:
    if issubclass(option.kind, Enum):
        return ", ".join(f"`{option.text(each)}`" for each in option.kind)
    if option.choices:
        return ", ".join(f"`{option.text(each)}`" for each in option.choices)
    if option.min is not None and option.max is not None:
        return f"{option.kind.__name__}, {option.min:g} to {option.max:g}"
    return f"{option.kind.__name__}, at least {option.min:g}" if option.min is not None else option.kind.__name__


# Commands


def cli_page() -> str:
    lines = [NOTE, _CLI_HEAD]
    for name, noun in NOUNS.items():
        lines += [f"## pyromq {name}", "", noun.help, ""]
        for module in filter(None, (noun.module, noun.verbs_module)):
            app = getattr(importlib.import_module(module), "app", None)
            if isinstance(app, typer.Typer):
                lines += command_section(f"pyromq {name}", command_of(app), top=True)
    return "\n".join(lines)


def command_of(app: typer.Typer) -> Any:
    return typer.main.get_command(app)


def command_section(path: str, command: Any, *, top: bool = False) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, verb in command.commands.items():
            yield from command_section(f"{path} {name}", verb)
        return
    if command.hidden:
        return
    own = [each for each in command.params if each.name not in _COMMON and not getattr(each, "hidden", False)]
    arguments = [each for each in own if each.param_type_name == "argument"]
    options = [each for each in own if each.param_type_name == "option"]
    words = " ".join([path, *("[OPTIONS]",) * bool(options), *(_metavar(each) for each in arguments)])
    if not top:
        yield from (f"### {path}", "")
    yield from (f"`{words}`", "", *_paragraphs(command.help or ""))
    if own:
        yield from ("| | |", "|---|---|")
        for each in arguments:
            if help_text := getattr(each, "help", None):
                yield f"| `{_metavar(each)}` | {_cell(help_text)} |"
        for each in options:
            yield _option(each)
        yield ""


def _metavar(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()).strip("[]{}")
    many = "…" if parameter.nargs == -1 else ""
    return f"{name}{many}" if parameter.required else f"[{name}{many}]"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" `{_value(option)}`"
    default = option.default
    said = (
        ""
        if option.is_flag or default in (None, "", [], ()) or callable(default)
        else f" Default `{_default(default)}`."
    )
    return f"| {names}{value} | {_cell(option.help or '')}{said} |"


def _value(option: Any) -> str:
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum) and not option.metavar:
        return " \\| ".join(str(each.value) for each in kind)
    return str(option.metavar or option.name.upper())


def _default(default: Any) -> str:
    return str(getattr(default, "value", default))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.replace("\b", "").strip()):
        yield from (_cell(paragraph), "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# Files in pages


def with_files(page: str) -> str:
    """`page` with what its blocks show as it is now."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}{(ROOT / match[2]).read_text().rstrip()}\n{match[4]}"

    return _SHOWN_FILE.sub(block, page)


def pages() -> dict[Path, str]:
    """Every page that is made here, whole or in part, as it should be."""
    made = {
        path: with_files(path.read_text()) for path in sorted(DOCS.rglob("*.md")) if "<!-- file:" in path.read_text()
    }
    made[DOCS / "reference" / "settings.md"] = settings_page().rstrip() + "\n"
    made[DOCS / "reference" / "limits.md"] = limits_page().rstrip() + "\n"
    made[DOCS / "reference" / "metrics.md"] = metrics_page().rstrip() + "\n"
    made[DOCS / "reference" / "cli.md"] = cli_page().rstrip() + "\n"
    return made


def main(arguments: list[str]) -> int:
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the code says; run `python scripts/reference.py`")
        return 1 if stale else 0
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"{path.relative_to(ROOT)} made anew")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
