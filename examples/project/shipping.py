"""A shop's shipping service: it ships paid orders and announces each shipment on a topic of its own."""

from __future__ import annotations

import json

from pyromq import DeadLetter
from pyromq.sync import Consumer, Producer, ReceivedMessage


class Shipping:
    """Reads `orders`, writes `shipments`. A message that is not an order becomes a dead letter of the group."""

    def __init__(self, namesrv: str) -> None:
        self._producer = Producer("shipping", namesrv=namesrv)
        self._consumer = Consumer("shipping", namesrv=namesrv)
        self._consumer.subscribe("orders", "paid", self.ship)

    def __enter__(self) -> Shipping:
        self._producer.start()
        self._consumer.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._consumer.close()
        self._producer.close()

    def ship(self, message: ReceivedMessage) -> DeadLetter | None:
        try:
            order = json.loads(message.body)
        except ValueError:
            return DeadLetter()
        self._producer.send("shipments", json.dumps({"order": order["id"]}).encode(), keys=str(order["id"]))
        return None
