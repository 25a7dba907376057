"""The first message of a time, by a guess and a few questions."""

from __future__ import annotations

import asyncio
from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from pyromq.spark.source.time_search import first_at


def search(times: list[int], wanted: int, guess: int, first: int = 0) -> tuple[int, int]:
    """What is found, and after how many questions."""
    asked = []

    async def is_young(offset: int) -> bool:
        assert first <= offset < first + len(times)
        asked.append(offset)
        return times[offset - first] >= wanted

    return asyncio.run(first_at(first, first + len(times), guess, is_young)), len(asked)


@given(st.lists(st.integers(0, 9)).map(sorted), st.integers(-1, 10), st.integers(-5, 40), st.integers(0, 20))
def test_any_guess_leads_to_the_first_message_that_is_young_enough(times, wanted, guess, first):
    assert search(times, wanted, guess, first)[0] == first + bisect_left(times, wanted)


def test_a_right_guess_needs_two_questions_and_a_wrong_one_not_many():
    times = list(range(100_000))
    assert search(times, 777, 777) == (777, 2)
    found, questions = search(times, 777, 99_000)
    assert found == 777
    assert questions < 40
