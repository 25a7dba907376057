"""The message path with timers, which can be stopped, cut off and started again in the same folder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.unit.broker.message_kit import Parts, Peer, request

from pyromq.broker.config import BrokerConfig
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.headers import RecallMessage

if TYPE_CHECKING:
    from pathlib import Path

    from pyromq.protocol.command import Command

BROKER = {"broker_name": "broker-a", "broker_ip1": "10.0.0.1", "recall": True}


class TimerParts(Parts):
    """Everything between a request and the store, and what delivers timers."""

    def __init__(self, folder: Path, *, now: int = 0, store: dict[str, object] | None = None, **config: object) -> None:
        super().__init__(folder, BrokerConfig(**(BROKER | config)), **(store or {}))  # type: ignore[arg-type]
        self.folder = folder
        self.now = now or self.now
        self._settings = (store, config)
        self.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
        self.timers, self.upkeep = self.broker.timers, self.broker.timer_upkeep
        self.checkpoint = self.upkeep._checkpoint
        self.upkeep.load()

    async def deliver(self) -> None:
        """Let the timers do all there is to do at this time."""
        for _ in range(10_000):
            more = self.timers.step()
            await asyncio.sleep(0)
            if not more and self.timers._handover is None:
                return
        raise AssertionError("the timers find no end")

    async def wait(self, millis: int) -> None:
        """Let time pass, and then the timers do their work."""
        self.now += millis
        await self.deliver()

    async def save(self) -> None:
        """What a running broker does every second."""
        await self.upkeep._save()

    async def stopped(self) -> TimerParts:
        """The same after a stop and a start."""
        await self.upkeep.close()
        return self.cut_off()

    def cut_off(self, **changes: object) -> TimerParts:
        """The same after an end without notice: timers forget all that was not saved."""
        self.close()
        store, config = self._settings
        return TimerParts(self.folder, now=self.now, store=store, **config | changes)

    def bodies(self, queue_id: int = 0, topic: str = "orders") -> list[bytes]:
        return [record.body for record in self.messages(topic, queue_id)]

    async def recall(self, handle: str | None, topic: str = "orders") -> Command:
        assert handle is not None
        reply = await self.ask(Peer(), request(370, RecallMessage("shop", topic, handle)))
        assert reply is not None
        return reply


def after(seconds: float, key: str = "") -> str:
    """Properties of a message that is to be delivered then."""
    text = f"TIMER_DELAY_MS\x01{int(seconds * 1000)}"
    return f"{text}\x02UNIQ_KEY\x01{key}" if key else text
