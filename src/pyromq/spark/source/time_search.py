"""Finds the first message of a queue from some time on: exact, whatever the broker's own search returns.

Times rise with offsets, so there is one place where messages become recent enough. 5.x brokers return it; those of
4.9 return the nearest message, or any of several with equal times. Their answer is the starting point: a few messages
around it decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def first_at(minimum: int, maximum: int, guess: int, is_young: Callable[[int], Awaitable[bool]]) -> int:
    """The first offset from `minimum` on, before `maximum`, for which `is_young`; `maximum` if there is none.

    Takes two requests if the guess is right, otherwise a number that grows with the logarithm of its error.
    """
    low, high = minimum, maximum  # everything before `low` is too old, everything from `high` on is recent enough
    step = 1
    at = min(max(guess, minimum), maximum)
    if at < maximum and not await is_young(at):
        low = at + 1
        while low < high:
            probe = min(low + step - 1, high - 1)
            if await is_young(probe):
                high = probe
                break
            low, step = probe + 1, step * 2
    else:
        high = at
        while low < high:
            probe = max(high - step, low)
            if not await is_young(probe):
                low = probe + 1
                break
            high, step = probe, step * 2
    while low < high:
        middle = (low + high) // 2
        if await is_young(middle):
            high = middle
        else:
            low = middle + 1
    return low
