"""The first message of a queue from some time on: exact, whatever a broker's own search makes of it.

Times rise with offsets, so there is one place where messages begin to be young enough. Brokers of 5.x name it; those of
4.9 give the nearest message, or any of several with equal times. Their answer is where to begin: a few messages
around it decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def first_at(minimum: int, maximum: int, guess: int, is_young: Callable[[int], Awaitable[bool]]) -> int:
    """The first offset from `minimum` on, before `maximum`, for which `is_young`; `maximum` if there is none.

    Asks two questions if the guess is right, and otherwise a number that grows with the logarithm of its error.
    """
    low, high = minimum, maximum  # what lies before `low` is too old, `high` and what follows is young
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
