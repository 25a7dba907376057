"""A broker that is killed at the very acknowledgement of first messages: their topics are there at the next start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.crash.lives import Lives, chances
from tests.integration.broker.life_kit import Peer

from pyromq.errors import PyroMQError
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import SendMessageV2

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.crash.conftest import Tally


class FirstMessages:
    """Sends each message to a topic of its own, several at a time, and notes which were acknowledged."""

    def __init__(self, client: Peer, address: str, prefix: str, chance: random.Random) -> None:
        self._client = client
        self._address = address
        self._prefix = prefix
        self._chance = chance
        self.acknowledged: dict[str, str] = {}
        self._number = 0

    async def run_until_killed(self) -> None:
        await asyncio.gather(*(self._send() for _ in range(self._chance.choice((1, 8, 64)))))

    async def _send(self) -> None:
        while True:
            self._number += 1
            topic = f"new-{self._prefix}-{self._number}"
            # Every third one is parked first: its topic is needed when its time has come.
            delayed = self._number % 3 == 0
            header = SendMessageV2("producers", topic, "TBW102", 4, 0, 0, 1, 0, "DELAY\x011" if delayed else "")
            request = Command.request(RequestCode.SEND_MESSAGE_V2, header, topic.encode())
            try:
                reply = await self._client.invoke(self._address, request, 10)
            except PyroMQError:
                return
            assert reply.code == 0, reply.remark
            self.acknowledged[topic] = "delayed" if delayed else "stored"


@pytest.mark.crash
async def test_every_topic_that_a_message_was_acknowledged_for_is_known_after_a_kill(
    tmp_path: Path, rounds: int, seed: int, tally: Tally
) -> None:
    lives = Lives(tmp_path, seed)
    acknowledged: dict[str, str] = {}
    for number in range(rounds + 1):
        with chances(seed, number) as chance:
            async with lives.begin(chance, "brokerName=broker-a") as life, Peer() as client:
                lost = [
                    topic
                    for topic, kind in acknowledged.items()
                    if not await is_there(client, life.address, topic, kind)
                ]
                tally.add("lost", len(lost))
                assert not lost
                if number < rounds:
                    load = FirstMessages(client, life.address, life.prefix, chance)
                    await life.killed_under(load, chance.choice((0.1, 0.5, 1.0)) * chance.random())
                    acknowledged = load.acknowledged
                    tally.add("kills")
                    tally.add("topics acknowledged", len(acknowledged))
                else:
                    await life.stop()
    lives.check()


async def is_there(client: Peer, address: str, topic: str, kind: str) -> bool:
    """Whether the topic is known, and its message can be read unless it still has to wait."""
    reply = await client.pull(address, topic=topic)
    if reply.code == 0:
        return topic.encode() in reply.body_bytes
    return reply.code == 19 and kind == "delayed"
