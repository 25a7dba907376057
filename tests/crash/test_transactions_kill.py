"""A broker that is killed under transactions: each ends as it was decided, once, and none is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.crash.lives import Lives, chances
from tests.crash.transaction_load import Fates, TransactionLoad

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.crash.conftest import Tally


def settings(chance: random.Random) -> list[str]:
    return [
        "transactionTimeOut=50",
        "transactionCheckMax=100000",
        f"transactionCheckInterval={chance.choice((10, 50, 200))}",
        f"flushConsumerOffsetInterval={chance.choice((20, 500, 5000))}",
    ]


@pytest.mark.crash
async def test_every_transaction_ends_once_and_as_it_was_decided(
    tmp_path: Path, rounds: int, seed: int, tally: Tally
) -> None:
    lives, fates = Lives(tmp_path, seed), Fates()
    for number in range(rounds + 1):
        with chances(seed, number) as chance:
            async with (
                lives.begin(chance, *settings(chance)) as life,
                TransactionLoad(life.address, fates, chance, life.prefix) as load,
            ):
                if number == 0:
                    await load.create_topic()
                await load.verify()
                if number < rounds:
                    await life.killed_under(load, chance.choice((0.1, 0.5, 1.5)) * chance.random())
                    tally.add("kills")
                else:
                    tally.add("transactions seen", await load.wait_for_all())
                    await life.stop()
    lives.check()
    tally.add("begun", len(fates.decided))
    tally.add("questions", fates.asked)
