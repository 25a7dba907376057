"""A broker that is killed under load, with clients connected, loses nothing that it acknowledged."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.crash.broker_load import GROUP, QUEUES, TOPIC, Load, Promises
from tests.crash.lives import Lives, chances

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.crash.broker_load import ReadBack
    from tests.crash.conftest import Tally
    from tests.crash.lives import Life

# Seconds that saving the offsets may take longer than the pause between two savings, on a busy machine.
SLACK = 1.5


@asynccontextmanager
async def loaded(
    lives: Lives, promises: Promises, chance: random.Random, interval: int
) -> AsyncIterator[tuple[Life, Load]]:
    """A life and its clients. Offsets are saved every `interval` milliseconds."""
    settings = ("mappedFileSizeCommitLog=1m", f"flushConsumerOffsetInterval={interval}")
    async with (
        lives.begin(chance, *settings) as life,
        Load(life.address, promises, chance, life.prefix) as load,
    ):
        yield life, load


def note(tally: Tally, what: str, found: ReadBack) -> None:
    tally.add(what, found.required - len(found.missing))
    tally.lost(found.missing)


async def kill_again_and_again(lives: Lives, rounds: int, seed: int, tally: Tally) -> None:
    promises = Promises()
    killed, interval = None, 0
    for number in range(rounds + 1):
        with chances(seed, number) as chance:
            oldest = interval / 1000 + SLACK
            interval = chance.choice((50, 200, 500))
            async with loaded(lives, promises, chance, interval) as (life, load):
                if number == 0:
                    await load.create_topics()
                note(tally, "times one was read back", await load.verify(killed, oldest))
                if number == rounds or chance.random() < 0.3:
                    note(tally, "delayed messages delivered", await load.wait_for_delayed())
                    await life.stop()
                    lives.check()
                    tally.add("clean stops")
                    killed = None
                else:
                    killed = await life.killed_under(load, chance.choice((0.05, 0.3, 1.0, 2.5)) * chance.random())
                    tally.add("messages acknowledged", load.acknowledged)
                    tally.add("kills")


@pytest.mark.crash
async def test_a_killed_broker_has_all_that_it_acknowledged(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    await kill_again_and_again(Lives(tmp_path, seed), rounds, seed, tally)


@pytest.mark.crash
async def test_so_has_a_killed_pyromq_up(tmp_path: Path, rounds: int, seed: int, tally: Tally):
    await kill_again_and_again(Lives(tmp_path, seed, "up"), -(-rounds // 4), seed, tally)


@pytest.mark.crash
@pytest.mark.scenario("broker 9.4")
async def test_offsets_are_at_most_five_seconds_old_with_the_stock_setting(tmp_path: Path, seed: int, tally: Tally):
    lives, promises = Lives(tmp_path, seed), Promises()
    chance = random.Random(seed)
    async with loaded(lives, promises, chance, 5000) as (life, load):
        await load.create_topics()
        killed = await life.killed_under(load, 8.0)
    before = max(promises.required_commit(queue_id, killed - 5 - SLACK) for queue_id in range(QUEUES))
    assert before > 0, f"{GROUP} committed nothing of {TOPIC} in time"
    async with loaded(lives, promises, chance, 5000) as (life, load):
        note(tally, "times one was read back", await load.verify(killed, 5 + SLACK))
        await life.stop()
    lives.check()
