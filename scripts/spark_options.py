"""The tables of options in docs/: made anew from the declarations, or compared with them (`--check`)."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

from pyromq.spark.lake.decoding import DecodeOptions
from pyromq.spark.lake.options import LakeOptions
from pyromq.spark.meta.options import MetaOptions
from pyromq.spark.option_values import OptionInfo, declared, duration, size
from pyromq.spark.options import ConnectionOptions, LogOptions, SinkOptions, SourceOptions
from pyromq.spark.pipelines import settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "spark.md"
KINDS: dict[str, type] = {
    "connection": ConnectionOptions,
    "source": SourceOptions,
    "sink": SinkOptions,
    "log": LogOptions,
    "meta": MetaOptions,
}
LAKE_PAGE = ROOT / "docs" / "lake.md"
LAKE_KINDS: dict[str, type] = {"decode": DecodeOptions, "lake": LakeOptions}
PIPELINES_PAGE = ROOT / "docs" / "how-to" / "pipelines.md"
PIPELINE_KINDS: dict[str, type] = dict(settings.KINDS)
REQUIRED = frozenset(("namesrv", "path", "table"))

_BLOCK = re.compile(r"(?<=<!-- options: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
_SETTINGS = re.compile(r"(?<=<!-- settings: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
_UNITS = ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k"))
_TIMES = ((3600, "h"), (60, "m"), (1, "s"))


def table(kind: type) -> str:
    """The options of a kind; those of every connection, and those of decoding, only in their own tables."""
    others = [each for each in (ConnectionOptions, DecodeOptions) if kind is not each and issubclass(kind, each)]
    shared = {name for other in others for name, _ in declared(other)}
    defaults = {each.name: each.default for each in dataclasses.fields(kind)}
    lines = ["| Option | Default | Meaning |", "|---|---|---|"]
    lines += [row(info, defaults[name]) for name, info in declared(kind) if name not in shared]
    return "\n".join([*lines, ""])


def row(info: OptionInfo, default: object) -> str:
    also = f" Also `{'`, `'.join(info.aliases)}`." if info.aliases else ""
    meaning = f"{info.doc}{also}".replace("|", "\\|").replace("<", "&lt;")
    return f"| `{info.key}` | {shown(info, default)} | {meaning} |"


def shown(info: OptionInfo, default: object) -> str:
    if info.key in REQUIRED and default == "":
        return "required"
    if default in (None, (), ""):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    units = _UNITS if info.parse is size else _TIMES if info.parse is duration else ()
    for unit, name in units:
        if isinstance(default, int | float) and default >= unit and default % unit == 0:
            return f"`{default // unit:.0f}{name}`"
    return f"`{default}`"


def render(page: str) -> str:
    """`page` with its tables as they should be."""
    page = _SETTINGS.sub(lambda found: f"{found[1]}{found[2]}{table(PIPELINE_KINDS[found[1]])}", page)
    return _BLOCK.sub(lambda found: f"{found[1]}{found[2]}{table({**KINDS, **LAKE_KINDS}[found[1]])}", page)


def main(arguments: list[str]) -> int:
    wrong = 0
    for path in (PAGE, LAKE_PAGE, PIPELINES_PAGE):
        page = path.read_text()
        if arguments != ["--check"]:
            path.write_text(render(page))
        elif render(page) != page:
            name = path.relative_to(ROOT)
            print(f"{name} does not list the options as they are; python scripts/spark_options.py makes it do so")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
