"""What the demo sends: a small shop's orders, their payments, and reminders for the unpaid ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from pyromq import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCTS = {
    "espresso": 2.4,
    "cappuccino": 3.2,
    "croissant": 2.1,
    "bagel": 3.9,
    "juice": 4.5,
    "brownie": 2.8,
    "tea": 2.2,
}
REMIND_AFTER = timedelta(seconds=2)
_FAVOUR = (9, 8, 6, 4, 3, 2, 1)


class Order(msgspec.Struct):
    id: str
    customer: str
    product: str
    amount: int
    price: float


class Payment(msgspec.Struct):
    order: str
    total: float


@dataclass(frozen=True, slots=True)
class Sale:
    """An order, and its payment; or a reminder, to be seen a moment later, if it is still owed."""

    order: Message
    payment: Message | None
    reminder: Message | None


def order_message(order: Order, channel: str) -> Message:
    return Message(
        "orders",
        msgspec.json.encode(order),
        tags="large" if order.amount > 2 else "small",
        keys=[order.id, order.customer],
        properties={"channel": channel, "amount": str(order.amount)},
        shard_key=order.customer,
    )


def sales(count: int, seed: int = 7) -> Iterator[Sale]:
    """`count` orders of two hundred customers, nine in ten paid. A customer's orders go to one queue, in order."""
    chance = random.Random(seed)
    for number in range(count):
        product = chance.choices(tuple(PRODUCTS), _FAVOUR)[0]
        order = Order(
            f"o{number:06d}", f"c{chance.randrange(200):03d}", product, chance.randint(1, 4), PRODUCTS[product]
        )
        message = order_message(order, chance.choice(("app", "web", "till")))
        payment = reminder = None
        if chance.random() < 0.9:
            paid = Payment(order.id, round(order.amount * order.price, 2))
            payment = Message("payments", msgspec.json.encode(paid), keys=[order.id], shard_key=order.customer)
        else:
            reminder = Message("reminders", order.id.encode(), keys=[order.id], delay=REMIND_AFTER)
        yield Sale(message, payment, reminder)
