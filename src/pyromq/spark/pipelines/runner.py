"""Runs pipelines: once, one after the other; or on and on, side by side, until somebody stops them.

One that fails does not stop the others. Run once, its failure is part of the result. Otherwise it is tried again, after
pauses that grow to a minute, unless its settings are wrong, which time does not cure. Nothing but the lake, checkpoints
and state files is remembered, so a run may be killed at any point and started again.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError, PyroMQError

from ..sessions.connect import is_connect
from ..sessions.programs import reason
from ..sessions.session import NAMESRV
from .failing import spark_words
from .pipelines_file import read_pipelines
from .progress import span, streamed
from .surroundings import Lasting, Surroundings, active

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from .settings import AnySettings
    from .surroundings import Outcome, Pipeline

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_PATIENCE = 60.0  # seconds for running rounds to end before their jobs are cancelled


@dataclass(slots=True)
class Result:
    """What became of one pipeline. `outcome` is that of its last round."""

    name: str
    rounds: int = 0
    rows: int = 0
    outcome: Outcome | None = None
    error: PyroMQError | None = None
    problems: set[str] = field(default_factory=set)

    @property
    def is_failed(self) -> bool:
        return self.error is not None or (self.outcome is not None and bool(self.outcome.failures))


def make(kind: str, settings: AnySettings, where: Surroundings) -> Pipeline:
    """The pipeline of this kind. Imports only that one."""
    chosen: Any = settings
    match kind:
        case "archive":
            from .archive import Archive

            return Archive(chosen, where)
        case "replay":
            from .replay import Replay

            return Replay(chosen, where)
        case "transform":
            from .transform import Transform

            return Transform(chosen, where)
        case "audit":
            from .audit import Audit

            return Audit(chosen, where)
        case "lag":
            from .lag import Lag

            return Lag(chosen, where)
        case "latency":
            from .latency import Latency

            return Latency(chosen, where)
    raise ConfigError(f"there is no pipeline {kind}")


def run_file(
    spark: SparkSession, file: str, *, once: bool, namesrv: str | None, say: Callable[[object], None]
) -> list[Result]:
    """See `pyromq.spark.run_pipelines`."""
    from ..source.lag_listener import LagListener

    known = namesrv or spark.conf.get(NAMESRV, "") or os.environ.get("NAMESRV_ADDR")
    found = read_pipelines(Path(file), namesrv=known)
    where = Surroundings(spark, dict(found.connection), found.lake, found.state, found.folder, say, say)
    listener = LagListener(lambda at: say(streamed(at)))
    spark.streams.addListener(listener)
    try:
        pipelines = [make(entry.kind, entry.settings, where) for entry in found.entries]

        def tell(outcome: Outcome) -> None:
            say("\n".join([outcome.summary, *(f"  found: {problem}" for problem in outcome.problems)]))

        return run_once(pipelines, tell) if once else keep_running(pipelines, where, tell)
    finally:
        spark.streams.removeListener(listener)


def run_once(pipelines: Sequence[Pipeline], tell: Callable[[Outcome], None]) -> list[Result]:
    """One round of each, in order. `tell` hears of every outcome."""
    results = []
    for pipeline in pipelines:
        result = Result(pipeline.name)
        results.append(result)
        try:
            _take(result, _tried(pipeline.run), tell)
        except PyroMQError as exc:
            result.error = exc
    return results


def keep_running(pipelines: Sequence[Pipeline], where: Surroundings, tell: Callable[[Outcome], None]) -> list[Result]:
    """All of them until `where.stopping` is set, or all have ended."""
    results = [Result(pipeline.name) for pipeline in pipelines]
    threads = [
        threading.Thread(target=_keep, args=(pipeline, result, where, tell), name=pipeline.name, daemon=True)
        for pipeline, result in zip(pipelines, results, strict=True)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not where.stopping.wait(0.2):
        pass
    deadline = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        where.say("some pipelines take too long to come to an end; their jobs are cancelled")
        if is_connect(where.spark):
            where.spark.interruptAll()
        else:
            where.spark.sparkContext.cancelAllJobs()
        for thread in threads:
            thread.join(_PATIENCE / 6)
    return results


def _keep(pipeline: Pipeline, result: Result, where: Surroundings, tell: Callable[[Outcome], None]) -> None:
    pause = _FIRST_PAUSE
    with active(where.spark):
        while not where.stopping.is_set():
            began = time.monotonic()
            try:
                _take(result, _tried(pipeline.keep if isinstance(pipeline, Lasting) else pipeline.run), tell)
            except ConfigError as exc:
                result.error = exc
                where.say(f"{pipeline.name}: {exc}")
                return
            except PyroMQError as exc:
                if where.stopping.is_set():
                    return
                result.error = exc
                where.say(f"{pipeline.name}: {exc}; trying again in {span(pause)}")
                where.stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            result.error, pause = None, _FIRST_PAUSE
            if pipeline.every is None or isinstance(pipeline, Lasting):
                return
            where.stopping.wait(max(0.0, pipeline.every - (time.monotonic() - began)))


def _take(result: Result, outcome: Outcome, tell: Callable[[Outcome], None]) -> None:
    result.rounds += 1
    result.rows += outcome.rows
    result.outcome = outcome
    result.problems |= set(outcome.problems)
    tell(outcome)


def _tried(work: Callable[[], Outcome]) -> Outcome:
    """The outcome; any error as one of ours, since all that a user does about it is read it."""
    try:
        with spark_words():
            return work()
    except (PyroMQError, ConfigError):
        raise
    except Exception as exc:
        raise PyroMQError(f"{type(exc).__name__}: {reason(str(exc))}") from exc
