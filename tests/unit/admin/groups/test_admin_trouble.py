"""Signs of trouble with groups, out of what brokers and consumers say."""

from __future__ import annotations

import pytest

from pyromq.admin.groups.trouble import Backlog, Sign, StuckQueue, backlogs, stuck_queues
from pyromq.client.admin.times import from_millis
from pyromq.protocol.bodies import (
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    ProcessQueueInfo,
)
from pyromq.protocol.message_queue import MessageQueue

NOW = 1_700_000_000_000


def queue(number, topic="orders"):
    return MessageQueue(topic=topic, broker_name="a", queue_id=number)


def consumer(*, ordered=False, kind="CONSUME_PASSIVELY", **held):
    properties = {"PROP_CONSUME_TYPE": kind, "PROP_CONSUMEORDERLY": "true" if ordered else "false"}
    return ConsumerRunningInfo(properties=properties, mq_table={queue(0): ProcessQueueInfo(**held)})


@pytest.mark.parametrize(
    ("info", "found"),
    [
        (consumer(cached_msg_count=3, last_consume_timestamp=NOW - 60_001), [StuckQueue(queue(0), Sign.STUCK, 60_001)]),
        (consumer(cached_msg_count=3, last_consume_timestamp=NOW - 60_000), []),
        (consumer(cached_msg_count=0, last_consume_timestamp=NOW - 90_000), []),
        (consumer(kind="CONSUME_ACTIVELY", cached_msg_count=3), []),
        (consumer(ordered=True, last_lock_timestamp=NOW - 5), [StuckQueue(queue(0), Sign.NOT_LOCKED, 5)]),
        (consumer(ordered=True, locked=True, cached_msg_count=3), []),
        (
            consumer(ordered=True, locked=True, dropped=True, try_unlock_times=2),
            [StuckQueue(queue(0), Sign.NOT_UNLOCKED, tries=2)],
        ),
        (ConsumerRunningInfo(), []),
    ],
)
def test_a_member_that_does_not_get_on_is_seen(info, found):
    assert stuck_queues(info, NOW) == found


def test_a_backlog_is_that_of_a_group_in_a_topic():
    def stats(**table):
        return ConsumeStats(
            offset_table={
                queue(int(name[1:])): OffsetWrapper(broker_offset=10, consumer_offset=offset, last_timestamp=NOW)
                for name, offset in table.items()
            }
        )

    said = [
        ConsumeStatsList(consume_stats_list=[{"billing": [stats(q0=3, q1=10)]}]),
        ConsumeStatsList(consume_stats_list=[{"billing": [stats(q2=9)]}, {"others": [stats(q0=0)]}]),
    ]
    assert backlogs(said, {"billing"}) == [Backlog("billing", "orders", 8, 7, from_millis(NOW))]
