"""Outcomes: what a handler may say about the messages that it was given.

Returning nothing is success, raising is failure. The other answers are values of this module; where one needs no
argument, its class will do: `return DeadLetter`. The table of what each of them leads to is in `concurrent` and in
`ordered`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Ack:
    """Done."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Not done: deliver again later. `delay_level` 0 lets the broker choose, longer each time.

    An ordered consumer cannot let later messages pass: its queue waits a moment instead, whatever the level.
    """

    delay_level: int = 0

    def __post_init__(self) -> None:
        if self.delay_level < 0:
            raise ValueError("a delay level is 0 (the broker chooses) or more; for none at all there is DeadLetter")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Never to be done: put it among the dead letters of the group, and go on."""


@dataclass(frozen=True, slots=True)
class AckUpTo:
    """Of a batch the messages up to `index`, counted from 0, are done; the others are delivered again. -1: none."""

    index: int


@dataclass(frozen=True, slots=True)
class Suspend:
    """Ordered only: try again in `seconds`, and let the queue wait until then. None: as long as the settings say."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Ordered only, with `auto_commit` off: everything up to here is done."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """Ordered only, with `auto_commit` off: deliver everything since the last commit again."""


Outcome: TypeAlias = Ack | Retry | DeadLetter | AckUpTo | Suspend | Commit | Rollback

ACK = Ack()
RETRY = Retry()
DEAD_LETTER = DeadLetter()

_WITHOUT_ARGUMENT: dict[object, Outcome] = {
    Ack: ACK,
    Retry: RETRY,
    DeadLetter: DEAD_LETTER,
    Suspend: Suspend(),
    Commit: Commit(),
    Rollback: Rollback(),
}


def outcome_of(answer: object, *, ordered: bool) -> Outcome:
    """What a handler meant by `answer`.

    Raises TypeError for what is no answer, or none in this mode. A message is worth more than a guess: with a wrong
    answer it is delivered again, and the error says what would have been right.
    """
    if answer is None:
        return ACK
    outcome = _WITHOUT_ARGUMENT.get(answer, answer) if isinstance(answer, type) else answer
    if isinstance(outcome, Ack | Retry | DeadLetter):
        return outcome
    if isinstance(outcome, AckUpTo):
        if ordered:
            raise TypeError("an ordered consumer takes a batch as a whole; AckUpTo is for concurrent ones")
        return outcome
    if isinstance(outcome, Suspend | Commit | Rollback):
        if not ordered:
            raise TypeError(f"{type(outcome).__name__} is an answer for ordered consumers; here there is Retry")
        return outcome
    raise TypeError(
        f"a handler returns None or one of Ack, Retry, DeadLetter, AckUpTo, Suspend, Commit, Rollback, not {answer!r}"
    )


def per_message(outcome: Outcome, marks: Sequence[Outcome | None]) -> list[Outcome]:
    """What becomes of each message of a batch: what the handler marked on it, else what it answered for them all."""
    if isinstance(outcome, AckUpTo):
        whole: list[Outcome] = [ACK if index <= outcome.index else RETRY for index in range(len(marks))]
    else:
        whole = [outcome] * len(marks)
    return [mark or of_all for mark, of_all in zip(marks, whole, strict=True)]
