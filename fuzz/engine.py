"""The loop: pick a sample, damage it, give it to a target, keep it if something new came of it.

What is new is told by the outcome: the lines through which a refusal came, or the shape of an accepted value. That
costs a microsecond where tracing every line would cost a hundred.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .corpus import Sample, read
from .mutate import MAX_LENGTH, Mutator
from .targets import REFUSALS, TARGETS

if TYPE_CHECKING:
    from mmap import mmap

MAX_POOL = 4096
_LONG_EVERY = 5000
_SHRINK_TRIES = 2000


class Hang(BaseException):
    """An input took too long. No Exception, so that no decoder catches it."""


@dataclass(slots=True)
class Failure:
    """An input that broke an invariant, as small as it could be made."""

    sample: Sample
    error: str


@dataclass(slots=True)
class Report:
    inputs: int = 0
    accepted: int = 0
    rejected: int = 0
    failed: int = 0
    outcomes: int = 0  # kinds of refusals and shapes that were told apart
    seconds: float = 0.0
    slowest: float = 0.0  # seconds of CPU that one input took
    slowest_sample: Sample | None = None
    failures: list[Failure] = field(default_factory=list)  # the first of each kind

    def add(self, other: Report) -> None:
        """Take in what another process did meanwhile."""
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.rejected += other.rejected
        self.failed += other.failed
        self.outcomes = max(self.outcomes, other.outcomes)
        self.seconds = max(self.seconds, other.seconds)
        if other.slowest > self.slowest:
            self.slowest, self.slowest_sample = other.slowest, other.slowest_sample
        self.failures += other.failures


class Fuzzer:
    """Fuzzes one target in this process.

    `current` is memory shared with a parent process: it holds the input under way, should this process die of it.
    """

    def __init__(self, target: str, seed: int, current: mmap | None = None) -> None:
        self._target = TARGETS[target]
        self._mutator = Mutator(seed, self._target.tokens)
        self._pool = read(target)
        self._corpus = list(self._pool)
        self._current = current
        self._outcomes: set[int] = set()
        self._known_failures: set[tuple[object, ...]] = set()
        self.report = Report()

    def run(self, *, inputs: int | None = None, seconds: float | None = None) -> Report:
        """The corpus as it is, then mutated inputs until there were `inputs` of them or `seconds` are over."""
        report = self.report
        started = time.perf_counter()
        last = time.process_time()
        while (inputs is None or report.inputs < inputs) and (
            seconds is None or report.inputs % 16 or time.perf_counter() - started < seconds
        ):
            self._try(sample := self._next_sample())
            now = time.process_time()  # what the input took, however busy the machine is
            if now - last > report.slowest:
                report.slowest, report.slowest_sample = now - last, sample
            last = now
        report.seconds = time.perf_counter() - started
        report.outcomes = len(self._outcomes)
        return report

    def _next_sample(self) -> Sample:
        number = self.report.inputs
        if number < len(self._corpus):
            return self._corpus[number]
        pool, mutator = self._pool, self._mutator
        # Half of the inputs start from the corpus, which is whole; the pool is full of what was refused.
        start = pool if mutator.below(2) else self._corpus
        label, data = start[mutator.below(len(start))]
        other = pool[mutator.below(len(pool))]
        if not mutator.below(_LONG_EVERY):
            return Sample(label, mutator.lengthen(data))
        if not mutator.below(20):
            label = other.label
        data = mutator.mutate(data, other.data)
        if self._target.repair is not None and mutator.below(2):
            data = self._target.repair(data)
        return Sample(label, data)

    def _try(self, sample: Sample) -> None:
        report = self.report
        if self._current is not None:
            _put(self._current, report.inputs, sample)
        report.inputs += 1
        try:
            outcome = self._target.check(*sample)
            report.accepted += 1
        except REFUSALS as exc:
            outcome = hash((sample.label, *_way(exc)[-2:]))  # further up there is a way for every depth of nesting
            report.rejected += 1
        except (Exception, Hang) as exc:  # whatever it is, it is what we look for
            report.failed += 1
            self._record_failure(sample, exc)
            return
        if outcome not in self._outcomes:
            self._outcomes.add(outcome)
            if len(self._pool) < MAX_POOL and len(sample.data) <= MAX_LENGTH:
                self._pool.append(sample)

    def _record_failure(self, sample: Sample, exc: BaseException) -> None:
        way = _way(exc)
        if way in self._known_failures:
            return
        self._known_failures.add(way)
        if not isinstance(exc, Hang):
            sample = self._shrunk(sample, way)
        self.report.failures.append(Failure(sample, f"{type(exc).__name__}: {exc}"))

    def _shrunk(self, sample: Sample, way: tuple[object, ...]) -> Sample:
        """A shorter input that fails the same way: stretches are left out as long as it does."""
        size, tries = len(sample.data) // 2, 0
        while size:
            start = 0
            while start < len(sample.data) and tries < _SHRINK_TRIES:
                tries += 1
                shorter = Sample(sample.label, sample.data[:start] + sample.data[start + size :])
                if self._fails(shorter, way):
                    sample = shorter
                else:
                    start += size
            size //= 2
        return sample

    def _fails(self, sample: Sample, way: tuple[object, ...]) -> bool:
        try:
            self._target.check(*sample)
        except REFUSALS:
            return False
        except Exception as exc:
            return _way(exc) == way
        return False


def _way(exc: BaseException) -> tuple[object, ...]:
    """The kind of an error and the lines through which it came, the innermost last."""
    way: list[object] = [type(exc).__name__]
    step = exc.__traceback__ and exc.__traceback__.tb_next  # past the caller, which is one or the other of ours
    while step is not None:
        way.append((step.tb_frame.f_code.co_name, step.tb_lineno))
        step = step.tb_next
    return tuple(way)


def _put(memory: mmap, number: int, sample: Sample) -> None:
    head = b"%d %d %b\n" % (number, len(sample.data), sample.label.encode())
    memory[: len(head)] = head
    memory[len(head) : len(head) + len(sample.data)] = sample.data


def under_way(memory: mmap) -> tuple[int, Sample] | None:
    """The number and the content of the input that a process works on, None if it has not begun."""
    head, _, rest = memory[:].partition(b"\n")
    if b" " not in head:
        return None
    number, length, label = head.split(b" ", 2)
    return int(number), Sample(label.decode(), rest[: int(length)])
