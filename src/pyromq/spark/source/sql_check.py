"""Asks brokers, while a read is planned, whether they will serve the expression of the option `sql`.

A task would learn it, too, but in the middle of a query, and in words that do not say what to change. Only the broker
can tell: whether it filters by SQL at all is a setting of its own, and it parses the expression.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyromq.client.consumer.subscriptions import SQL92
from pyromq.errors import BrokerError, ConfigError, PyroMQError, SubscriptionParseFailed
from pyromq.protocol.bodies import SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.message_queue import MessageQueue

    from ..blocking_client import Reach

_OFF = "does not support consumer to filter"  # so brokers say that `enablePropertyFilter` is off
_FACT = re.compile(r"(?:Invalid MessageSelector\. )?(.*)", re.DOTALL)


async def check_sql(link: Reach, group: str, expression: str, queues: Iterable[MessageQueue]) -> None:
    """Raise ConfigError if a broker that has some of these queues would refuse the expression."""
    topics = {queue.broker_name: link.on_wire(queue).topic for queue in queues}
    for broker, topic in sorted(topics.items()):
        address = link.replica(broker)
        if address is None:
            continue
        asked = SubscriptionData(topic=topic, sub_string=expression, expression_type=SQL92)
        try:
            await link.client.calls.check_subscription(address, link.client.client_id, group, asked)
        except SubscriptionParseFailed as exc:
            fact = _FACT.fullmatch(exc.remark)
            said = " ".join((fact[1] if fact else exc.remark).split())
            raise ConfigError(
                f"option sql is not an expression that {broker} can read: {said}; {expression!r}"
            ) from None
        except BrokerError as exc:
            if _OFF in exc.remark:
                raise ConfigError(
                    f"option sql needs enablePropertyFilter=true in the settings of {broker}, which has it off; "
                    "tags works with every broker"
                ) from None
        except PyroMQError:
            continue  # a broker that is away is dealt with elsewhere
