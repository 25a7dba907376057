"""Scenarios of docs/spec/broker.md 14, group 2: topics, and how they come to be. Group 1 is in test_broker_life."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.broker.life_kit import new_name_server
from tests.integration.broker.scene_kit import GROUP, TOPIC
from tests.integration.namesrv.raw_client import RawClient

START_TOPICS = {
    "SELF_TEST_TOPIC": (1, 6),
    "OFFSET_MOVED_EVENT": (1, 6),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "TBW102": (8, 7),
    "BenchmarkTest": (1024, 6),
    "DefaultCluster": (16, 7),
    "broker-a": (1, 7),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "rmq_sys_wheel_timer": (1, 6),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
}


def shape(config):
    assert config["readQueueNums"] == config["writeQueueNums"]
    return config["readQueueNums"], config["perm"]


@pytest.mark.scenario("broker 2.1")
async def test_a_fresh_broker_has_exactly_the_topics_that_are_built_in(client):
    assert {name: shape(config) for name, config in (await client.topics()).items()} == START_TOPICS


@pytest.mark.scenario("broker 2.2")
async def test_a_send_to_an_unknown_topic_makes_it_with_four_queues_and_a_route(start, tmp_path):
    async with new_name_server(tmp_path) as name_server, start(namesrv_addr=name_server.address) as scene:
        client = await scene.connect()
        asking = await RawClient.connect(name_server.port)
        assert (await asking.call(105, {"topic": TOPIC})).code == 17
        tbw102 = (await asking.call(105, {"topic": "TBW102"})).json
        assert [queue["readQueueNums"] for queue in tbw102["queueDatas"]] == [8]
        await client.sent()

        async def has_route():
            return (await asking.call(105, {"topic": TOPIC})).code == 0

        async with asyncio.timeout(8):  # all is registered anew after ten seconds
            await client.until(has_route)
        [queues] = (await asking.call(105, {"topic": TOPIC})).json["queueDatas"]
        assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (4, 4, 6)
        assert shape((await client.topics())[TOPIC]) == (4, 6)
        await asking.close()


@pytest.mark.scenario("broker 2.3")
@pytest.mark.scenario("broker 2.4")
async def test_without_automatic_creation_only_another_open_topic_lends_itself(start):
    async with start("autoCreateTopicEnable=false") as scene:
        client = await scene.connect()
        refused = await client.put()
        assert refused.code == 17
        assert refused.remark == (
            "topic[T] not exist, apply first please!\nSee http://rocketmq.apache.org/docs/faq/ for further details."
        )
        assert TOPIC not in await client.topics()
        await client.sent(default_topic="DefaultCluster")
        assert shape((await client.topics())[TOPIC]) == (4, 6)


@pytest.mark.scenario("broker 2.5")
@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("", "The specified topic is blank."),
        ("t" * 128, "The specified topic is longer than topic max length."),
    ],
    ids=["illegal", "blank", "long"],
)
async def test_a_topic_whose_name_is_none_is_refused(client, topic, remark):
    reply = await client.put(topic=topic)
    assert (reply.code, reply.remark) == (1, remark)
    assert (await client.topics()).keys() == START_TOPICS.keys()


@pytest.mark.scenario("broker 2.6")
@pytest.mark.parametrize("topic", ["TBW102", "rmq_sys_x"])
async def test_system_topics_are_not_made_by_operators(client, topic):
    reply = await client.create_topic(topic)
    assert (reply.code, reply.remark) == (1, f"The topic[{topic}] is conflict with system topic.")


@pytest.mark.scenario("broker 2.7")
async def test_a_queue_that_can_only_be_read_still_takes_what_was_on_its_way(client):
    await client.create_topic(read=4, write=4)
    await client.sent(queue_id=3)
    assert (await client.create_topic(read=4, write=2)).code == 0
    assert (await client.sent(queue_id=3)).ext["queueId"] == "3"
    refused = await client.put(queue_id=4)
    assert refused.code == 1
    assert refused.remark.startswith(
        "request queueId[4] is illegal, TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=2, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: 127.0.0.1:"
    )


@pytest.mark.scenario("broker 2.8")
async def test_a_consumer_that_comes_makes_the_retry_topic_of_its_group(client):
    await client.beat()
    assert shape((await client.topics())[f"%RETRY%{GROUP}"]) == (1, 6)
