"""`make fuzz`: mutated bytes for every decoder, from the committed corpus.

    python -m fuzz.run                                     every target for 20 seconds
    python -m fuzz.run --target frames --inputs 2000000    until so many inputs were tried
    python -m fuzz.run --replay fuzz/failures/frames-….bin one input once more, with its traceback

Any bytes must end in a value or in one of the errors for bad bytes; targets.py states the invariants. An input that
ends otherwise, takes more than two seconds or asks for memory that it only claims to need is saved to fuzz/failures/.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from . import corpus
from .engine import Failure, Fuzzer, Hang, Report, under_way
from .mutate import MAX_LONG
from .targets import REFUSALS, TARGETS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from types import FrameType

FAILURES = Path(__file__).parent / "failures"
MEMORY_LIMIT = 2 * 1024**3  # of address space; what asks for more fails
SLOW_SECONDS = 0.5  # an input worth looking at
HANG_SECONDS = 2.0
STUCK_SECONDS = 60  # in one call into C no signal handler runs: then the process is killed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description="Feed mutated bytes to the decoders of pyromq.protocol.")
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    parser.add_argument("--seconds", type=float, help="per target; 20 unless --inputs is given")
    parser.add_argument("--inputs", type=int, help="per target")
    parser.add_argument("--seed", type=int, help="repeat a run with as many inputs and jobs; random unless given")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, one per core unless given")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="try one saved input and show what happens")
    options = parser.parse_args(arguments)
    if options.replay:
        return replay(options.replay)
    seed = int.from_bytes(os.urandom(4), "big") if options.seed is None else options.seed
    seconds = 20.0 if options.seconds is None and options.inputs is None else options.seconds
    print(f"seed {seed}, {options.jobs} processes")
    failed = False
    for target in TARGETS if options.target == "all" else [options.target]:
        report = fuzz(target, seed, options.jobs, options.inputs, seconds)
        show(target, report)
        failed = failed or report.failed > 0
    return 1 if failed else 0


def fuzz(target: str, seed: int, jobs: int, inputs: int | None, seconds: float | None) -> Report:
    """Fuzz `target` in `jobs` processes, each with a seed of its own, and add up what they found."""
    context = multiprocessing.get_context("fork")
    workers = []
    for job in range(jobs):
        share = None if inputs is None else inputs // jobs + (job < inputs % jobs)
        memory = mmap.mmap(-1, 2 * MAX_LONG)
        ours, theirs = context.Pipe(duplex=False)
        arguments = (target, seed * 1000 + job, share, seconds, memory, theirs)
        process = context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        workers.append((process, memory, ours))
    total = Report()
    for process, memory, ours in workers:
        total.add(_result(process, memory, ours))
    return total


def _result(process: BaseProcess, memory: mmap.mmap, results: Connection) -> Report:
    """What a process reports; if it dies or is stuck, the input that did it is in the memory we share."""
    while True:
        before = under_way(memory)
        if results.poll(STUCK_SECONDS):
            break
        if before is not None and under_way(memory) == before:
            process.kill()
    try:
        report: Report = results.recv()
    except EOFError:
        process.join()
        last = under_way(memory)
        error = f"process ended with {process.exitcode}"
        return Report(failed=1, failures=[Failure(last[1], error)] if last else [])
    process.join()
    return report


def _work(
    target: str, seed: int, inputs: int | None, seconds: float | None, memory: mmap.mmap, results: Connection
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fuzzer = Fuzzer(target, seed, memory)
    _watch(fuzzer)
    report = fuzzer.run(inputs=inputs, seconds=seconds)
    signal.setitimer(signal.ITIMER_PROF, 0)
    results.send(report)


def _watch(fuzzer: Fuzzer) -> None:
    """End an input that takes too long, in CPU time. A timer that looks twice a second costs nothing per input."""
    seen = -1
    since = time.process_time()

    def tick(_signal: int, _frame: FrameType | None) -> None:
        nonlocal seen, since
        now = time.process_time()
        if fuzzer.report.inputs != seen:
            seen, since = fuzzer.report.inputs, now
        elif now - since > HANG_SECONDS:
            since = now
            raise Hang(f"more than {HANG_SECONDS:g} s")

    signal.signal(signal.SIGPROF, tick)
    signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS / 4, HANG_SECONDS / 4)


def show(target: str, report: Report) -> None:
    rate = report.inputs / report.seconds if report.seconds else 0.0
    print(
        f"{target:10} {report.inputs:,} inputs, {rate:,.0f}/s, {report.accepted:,} accepted, {report.rejected:,} "
        f"rejected, {report.failed:,} failures; {report.outcomes} outcomes, slowest {report.slowest * 1000:.0f} ms",
        flush=True,
    )
    for failure in report.failures:
        print(f"  {failure.error[:300]}")
        _keep(target, failure.sample)
    if report.slowest > SLOW_SECONDS and report.slowest_sample is not None:
        print(f"  {report.slowest:.2f} s for one input")
        _keep(target, report.slowest_sample)


def _keep(target: str, sample: corpus.Sample) -> None:
    path = corpus.save(FAILURES, target, sample)
    print(f"    {len(sample.data)} bytes; python -m fuzz.run --replay {path}")


def replay(path: Path) -> int:
    """Try a saved input without any net: a failure shows as what it is."""
    target, sample = corpus.load(path)
    print(f"{target} as {sample.label}, {len(sample.data)} bytes: {sample.data[:200]!r}")
    started = time.perf_counter()
    try:
        outcome: object = TARGETS[target].check(*sample)
        verdict = "accepted"
    except REFUSALS as exc:
        outcome, verdict = exc, "rejected"
    except Exception:
        traceback.print_exc()
        outcome, verdict = "see above", "FAILED"
    print(f"{verdict} after {(time.perf_counter() - started) * 1000:.1f} ms: {outcome}")
    return 1 if verdict == "FAILED" else 0


if __name__ == "__main__":
    sys.exit(main())
