"""Groups that read far behind the end of the log are stopped, if an operator wants that, and no others."""

from __future__ import annotations

import pytest
from tests.unit.broker.message_kit import Parts, Peer

from pyromq.broker.admin.slow_consumers import Protection
from pyromq.broker.config import BrokerConfig
from pyromq.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData, TopicConfig

THRESHOLD = 5000


@pytest.fixture
async def made(tmp_path):
    """Make the parts and the protection of a broker whose topic has six messages of a thousand bytes."""
    open_parts = []

    async def making(**changes):
        config = {"disable_slow_consumers": True, "consumer_fall_behind": THRESHOLD} | changes
        parts = Parts(tmp_path, BrokerConfig(broker_name="broker-a", broker_ip1="10.0.0.1", **config))
        open_parts.append(parts)
        parts.topics.update(TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1))
        for _ in range(6):
            await parts.send(bytes(1000))
        return parts, Protection(parts.context, parts.tables)

    yield making
    for parts in open_parts:
        parts.close()


def join(parts, group="billing", topic="orders"):
    parts.groups.get(group)
    consumer = ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic=topic, sub_string="*")])
    data = HeartbeatData(client_id=f"c-{group}", consumer_data_set=[consumer])
    parts.clients.heartbeat(Peer(), data, parts.now)


async def test_a_group_that_lags_is_stopped_and_stays_so(made):
    parts, protection = await made()
    join(parts)
    parts.offsets.commit("billing", "orders", 0, 0)
    assert protection.stop_slow_groups() == ["billing"]
    assert parts.groups.find("billing").consume_enable is False
    assert protection.stop_slow_groups() == []


async def test_nobody_is_stopped_unless_that_is_wanted(made):
    parts, protection = await made(disable_slow_consumers=False)
    join(parts)
    parts.offsets.commit("billing", "orders", 0, 0)
    assert protection.stop_slow_groups() == []


async def test_who_is_near_the_end_or_at_it_goes_on(made):
    parts, protection = await made()
    join(parts)
    for offset in (3, 6, 7):
        parts.offsets.commit("billing", "orders", 0, offset)
        assert protection.stop_slow_groups() == []


async def test_who_is_not_there_or_no_longer_subscribes_goes_on(made):
    parts, protection = await made()
    parts.groups.get("offline")
    parts.offsets.commit("offline", "orders", 0, 0)
    join(parts, "elsewhere", topic="other")
    parts.offsets.commit("elsewhere", "orders", 0, 0)
    parts.offsets.commit("elsewhere", "other", 3, 0)
    assert protection.stop_slow_groups() == []
