"""Outcomes: what a handler may return for its messages.

Returning None means success, raising means failure. The other answers are in this module; if one needs no argument,
return the class: `return DeadLetter`. The tables in `concurrent` and `ordered` show what each leads to.
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
    """Not done: deliver it again later. With `delay_level` 0 the broker chooses, longer each time.

    An ordered consumer cannot let later messages pass: its queue pauses a moment instead, whatever the level.
    """

    delay_level: int = 0

    def __post_init__(self) -> None:
        if self.delay_level < 0:
            raise ValueError("a delay level is 0 (the broker chooses) or more; use DeadLetter to give up")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Give up: move it to the group's dead letters, and go on."""


@dataclass(frozen=True, slots=True)
class AckUpTo:
    """The messages of a batch up to `index`, counted from 0, are done; the others are delivered again. -1: none."""

    index: int


@dataclass(frozen=True, slots=True)
class Suspend:
    """Ordered only: retry in `seconds` and pause the queue until then. None: as long as the settings say."""

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
    """The outcome that `answer` stands for.

    Raises TypeError for an invalid answer, or one for the other mode. We do not guess: with a wrong answer the message
    is delivered again, and the error says what would be right.
    """
    if answer is None:
        return ACK
    outcome = _WITHOUT_ARGUMENT.get(answer, answer) if isinstance(answer, type) else answer
    if isinstance(outcome, Ack | Retry | DeadLetter):
        return outcome
    if isinstance(outcome, AckUpTo):
        if ordered:
            raise TypeError("AckUpTo is only for concurrent consumers; an ordered one settles a batch as a whole")
        return outcome
    if isinstance(outcome, Suspend | Commit | Rollback):
        if not ordered:
            raise TypeError(f"{type(outcome).__name__} is only for ordered consumers; use Retry")
        return outcome
    raise TypeError(
        f"a handler returns None, Ack, Retry, DeadLetter, AckUpTo, Suspend, Commit or Rollback, not {answer!r}"
    )


def per_message(outcome: Outcome, marks: Sequence[Outcome | None]) -> list[Outcome]:
    """The outcome of each message of a batch: the handler's mark on it, else its answer for all."""
    if isinstance(outcome, AckUpTo):
        whole: list[Outcome] = [ACK if index <= outcome.index else RETRY for index in range(len(marks))]
    else:
        whole = [outcome] * len(marks)
    return [mark or of_all for mark, of_all in zip(marks, whole, strict=True)]
