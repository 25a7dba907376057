"""A broker that is killed under pops: what was not acknowledged comes back, and what was does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.crash.lives import Lives, chances
from tests.crash.pop_load import Deeds, PopLoad

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.crash.conftest import Tally


def settings(chance: random.Random) -> list[str]:
    return [
        "brokerName=broker-a",
        "timerPrecisionMs=100",
        f"reviveInterval={chance.choice((10, 200))}",
        f"popCkMaxBufferSize={chance.choice((400, 200_000))}",
        f"flushConsumerOffsetInterval={chance.choice((20, 500, 5000))}",
    ]


@pytest.mark.crash
async def test_what_was_not_acknowledged_comes_back_and_what_was_does_not(
    tmp_path: Path, rounds: int, seed: int, tally: Tally
) -> None:
    lives, deeds = Lives(tmp_path, seed), Deeds()
    for number in range(rounds + 1):
        with chances(seed, number) as chance:
            async with (
                lives.begin(chance, *settings(chance)) as life,
                PopLoad(life.address, deeds, chance, life.prefix) as load,
            ):
                if number == 0:
                    await load.create_topic()
                if number < rounds:
                    await life.killed_under(load, chance.choice((0.3, 1.5, 4.0)) * chance.random())
                    tally.add("kills")
                else:
                    tally.add("acknowledged", await load.drain())
                    await life.stop()
    lives.check()
    tally.add("sent", len(deeds.sent))
    tally.add("pops", deeds.pops)
    tally.add("popped again", deeds.again)
    tally.add("left open", len(deeds.open))
