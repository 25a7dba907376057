"""The bodies that brokers answer admin tools with: the members that docs/spec/broker.md names, and the way back."""

from __future__ import annotations

import pytest

from pyromq.protocol.bodies import (
    Body,
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    GroupList,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody,
    QueueTimeSpan,
    SubscriptionData,
)
from pyromq.protocol.message_queue import MessageQueue

SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG","subString":"A","subVersion":1,"tagsSet":["A"],'
    '"topic":"orders"}'
)
SUBSCRIBED = SubscriptionData(
    topic="orders", sub_string="A", sub_version=1, code_set=frozenset({65}), tags_set=frozenset({"A"})
)

BODIES: list[tuple[Body, str]] = [
    (
        QueryConsumeTimeSpanBody(
            [
                QueueTimeSpan(
                    message_queue=MessageQueue(broker_name="rack1", queue_id=3, topic="orders"),
                    min_time_stamp=1,
                    min_time_stamp_str="1970-01-01#00:00:00:001",
                    max_time_stamp=9,
                    max_time_stamp_str="1970-01-01#00:00:00:009",
                    consume_time_stamp=4,
                    consume_time_stamp_str="1970-01-01#00:00:00:004",
                    delay_time=77,
                )
            ]
        ),
        (
            '{"consumeTimeSpanSet":[{"consumeTimeStamp":4,"consumeTimeStampStr":"1970-01-01#00:00:00:004","delayTime":77,'
            '"maxTimeStamp":9,"maxTimeStampStr":"1970-01-01#00:00:00:009",'
            '"messageQueue":{"brokerName":"rack1","queueId":3,"topic":"orders"},'
            '"minTimeStamp":1,"minTimeStampStr":"1970-01-01#00:00:00:001"}]}'
        ),
    ),
    (
        BrokerStatsData(stats_minute=BrokerStatsItem(sum=60, tps=6.0, avgpt=1.5)),
        (
            '{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
            '"statsMinute":{"avgpt":1.5,"sum":60,"tps":6.0}}'
        ),
    ),
    (
        QueryConsumeQueueResponseBody(
            filter_data="null",
            max_queue_index=9,
            min_queue_index=2,
            queue_data=[
                ConsumeQueueData(physic_offset=100, physic_size=7, tags_code=-65),
                ConsumeQueueData(bit_map="1001", eval=True, extend_data_json="{}", msg="m", tags_code=5),
            ],
            subscription_data=SUBSCRIBED,
        ),
        (
            '{"filterData":"null","maxQueueIndex":9,"minQueueIndex":2,"queueData":['
            '{"eval":false,"physicOffset":100,"physicSize":7,"tagsCode":-65},'
            '{"bitMap":"1001","eval":true,"extendDataJson":"{}","msg":"m","physicOffset":0,"physicSize":0,"tagsCode":5}],'
            f'"subscriptionData":{SUBSCRIPTION}}}'
        ),
    ),
    (
        QueryConsumeQueueResponseBody(),
        '{"maxQueueIndex":0,"minQueueIndex":0,"queueData":[]}',
    ),
    (
        QuerySubscriptionResponseBody(group="g", topic="orders", subscription_data=SUBSCRIBED),
        f'{{"group":"g","subscriptionData":{SUBSCRIPTION},"topic":"orders"}}',
    ),
    (QuerySubscriptionResponseBody(group="g", topic="orders"), '{"group":"g","topic":"orders"}'),
    (GroupList(["g1", "g2"]), '{"groupList":["g1","g2"]}'),
    (
        QueryCorrectionOffsetBody({0: 5, 1: 2**63 - 1}),
        '{"correctionOffsets":{"0":5,"1":9223372036854775807}}',
    ),
    (
        ProducerTableInfo(
            {"g": [ProducerInfo(client_id="c", last_update_timestamp=8, remote_ip="/192.0.2.7:5123", version=409)]}
        ),
        (
            '{"data":{"g":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":8,"remoteIP":"/192.0.2.7:5123",'
            '"version":409}]}}'
        ),
    ),
]


@pytest.mark.parametrize(("body", "text"), BODIES, ids=lambda value: type(value).__name__)
def test_a_body_is_written_as_java_reads_it_and_comes_back(body, text):
    assert body.encode().decode() == text
    assert type(body).decode(text.encode()) == body
    assert type(body).decode_tolerant(text.encode()) == body


def test_java_writes_the_queues_of_308_without_quotes():
    assert QueryCorrectionOffsetBody.decode(b'{"correctionOffsets":{0:5,1:6}}').correction_offsets == {0: 5, 1: 6}
