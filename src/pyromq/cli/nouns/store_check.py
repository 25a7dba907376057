"""`pyromq check`: check a store's files for damage, without changing them."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections import Counter
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated, TextIO, TypeAlias

import typer

from pyromq.errors import ConfigError, StoreError
from pyromq.settings import GiB, KiB, MiB, Settings, options_of
from pyromq.store.check.store_check import Severity, StoreCheck
from pyromq.store.config import StoreConfig

# As grep and diff do: 0 nothing found, 1 something found, 2 trouble.
FINDINGS = 1
NO_STORE = 2

_KEPT = 1000  # findings shown per severity; there may be millions

Counts: TypeAlias = Counter[Severity]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class Output(StrEnum):
    text = "text"
    json = "json"
    ndjson = "ndjson"


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    try:
        app(arguments, prog_name="pyromq check")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    return 0


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def check(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The store: the broker's storePathRootDir.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Check only the last two log files and the ends of the queues.")
    ] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Broker setting that differs from the default."),
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.text,
) -> None:
    """Check a store for damage.

    Reads the commit log, the consume queues, the index, the checkpoint and the config files, and prints every
    inconsistency. Changes nothing. The broker should not be running.

    File sizes are taken from the files. Other settings that matter are messageDelayLevel, storePathCommitLog and
    messageIndexEnable.

    The exit code is 0 if the store is sound (notes do not count), 1 if there are errors or warnings, and 2 if DIR is
    not a store or cannot be read. `pyromq store verify` is the same.

    Example: pyromq check --quick ~/store
    """
    try:
        settings = Settings.load(StoreConfig, sets=sets or [])
        for notice in settings.notices():
            print(f"{ctx.command_path}: {notice}", file=sys.stderr)
        given = [option.name for option in options_of(StoreConfig) if settings.origin(option.key) != "default"]
        progress = Progress(sys.stderr)
        store = StoreCheck(folder, settings[StoreConfig], progress, quick=quick, given=given)
        counts = _PRINTERS[output](store, progress)
    except (ConfigError, StoreError) as exc:
        # One line; a stack trace would only hide it.
        print(f"{ctx.command_path}: {exc}", file=sys.stderr)
        raise typer.Exit(NO_STORE) from exc
    if counts[Severity.ERROR] or counts[Severity.WARNING]:
        raise typer.Exit(FINDINGS)


class Progress:
    """A progress line for long checks on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()
        self._began = 0.0
        self._said = time.monotonic()
        self._width = 0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        self._began = self._began or now
        if not self._is_shown or now - self._said < 0.5:
            return
        self._said = now
        speed = done / max(now - self._began, 0.1)
        self._show(
            f"{100 * done // max(total, 1)} % of {size_text(total)}, {(total - done) / max(speed, 1):.0f} s left"
        )

    def clear(self) -> None:
        if self._width:
            self._show("")
            self._stream.write("\r")
            self._stream.flush()
            self._width = 0

    def _show(self, line: str) -> None:
        self._stream.write(f"\r{line:<{self._width}}")
        self._stream.flush()
        self._width = len(line)


# Printing


def _print_text(store: StoreCheck, progress: Progress) -> Counts:
    """Findings by severity, grouped by place."""
    counts: Counts = Counter()
    kept: dict[Severity, dict[str, list[str]]] = {severity: {} for severity in Severity}
    began = time.perf_counter()
    for finding in store.run():
        counts[finding.severity] += 1
        if counts[finding.severity] <= _KEPT:
            kept[finding.severity].setdefault(finding.where, []).append(finding.what)
    seconds = time.perf_counter() - began
    progress.clear()
    for severity, places in kept.items():
        if places:
            print(_counted(counts[severity], severity))
            for where, sentences in places.items():
                print(f"  {where}")
                print("".join(f"    {sentence}\n" for sentence in sentences), end="")
            if counts[severity] > _KEPT:
                print(f"  and {counts[severity] - _KEPT} more; -o ndjson lists them all")
            print()
    print(_summary_line(store, seconds))
    found = [_counted(counts[severity], severity) for severity in Severity if counts[severity]]
    print("found " + ", ".join(found) if found else "nothing is wrong")
    return counts


def _print_json(store: StoreCheck, progress: Progress) -> Counts:
    """One JSON object, at the end."""
    began = time.perf_counter()
    findings = list(store.run())
    summary = _summary(store, time.perf_counter() - began)
    progress.clear()
    print(json.dumps({"findings": [dataclasses.asdict(finding) for finding in findings], "summary": summary}, indent=2))
    return Counter(finding.severity for finding in findings)


def _print_ndjson(store: StoreCheck, progress: Progress) -> Counts:
    """One object per line: each finding at once, the summary last."""
    counts: Counts = Counter()
    began = time.perf_counter()
    for finding in store.run():
        counts[finding.severity] += 1
        progress.clear()
        print(json.dumps(dataclasses.asdict(finding)), flush=True)
    progress.clear()
    print(json.dumps({"summary": _summary(store, time.perf_counter() - began)}))
    return counts


_PRINTERS = {Output.text: _print_text, Output.json: _print_json, Output.ndjson: _print_ndjson}


def _summary(store: StoreCheck, seconds: float) -> dict[str, float]:
    return {
        "logFiles": store.log_files,
        "queueFiles": store.queue_files,
        "indexFiles": store.index_files,
        "queues": store.queues,
        "records": store.records,
        "bytes": store.bytes,
        "seconds": round(seconds, 3),
        "recordsPerSecond": round(store.records / max(seconds, 1e-9)),
    }


def _summary_line(store: StoreCheck, seconds: float) -> str:
    files = ((store.log_files, "log file"), (store.queue_files, "queue file"), (store.index_files, "index file"))
    return (
        f"{', '.join(_counted(*kind) for kind in files)}; {_counted(store.records, 'record')} in "
        f"{_counted(store.queues, 'queue')}, {size_text(store.bytes)}; {seconds:.2f} s, "
        f"{store.records / max(seconds, 1e-9):,.0f} records/s"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(count: int) -> str:
    for unit, name in ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
