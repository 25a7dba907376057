"""What clients can make a broker keep by itself is bounded, and the refusal names the setting."""

from __future__ import annotations

from pyromq.broker.offsets import room


async def test_a_send_creates_no_topic_beyond_the_bound_but_an_operator_does(start):
    async with start() as scene:
        client = await scene.connect()
        there = len(await client.topics())
        await client.configure(f"maxAutoCreatedTopics={there + 2}")
        assert [(await client.put(topic=f"new{n}")).code for n in range(3)] == [0, 0, 17]
        for topic in ("new2", "%RETRY%nobody"):
            reply = await client.put(topic=topic)
            assert reply.code == 17
            assert f"there are {there + 2} topics or more (maxAutoCreatedTopics)" in reply.remark
        assert (await client.put(topic="new1")).code == 0
        assert (await client.create_topic("made")).code == 0
        assert (await client.put(topic="made")).code == 0


async def test_a_consumer_creates_no_group_beyond_the_bound(start, caplog):
    async with start("maxAutoCreatedGroups=0") as scene:
        client = await scene.connect()
        await client.sent()
        before = set(await client.topics())
        await client.beat(groups=("g1", "g2"))
        assert (await client.pull(group="g1")).code == 26
        assert set(await client.topics()) == before
        assert caplog.text.count("maxAutoCreatedGroups") == 1
        await client.configure("maxAutoCreatedGroups=1000")
        assert (await client.pull(group="g1")).code == 0


async def test_offsets_are_bounded(start, monkeypatch):
    async with start("maxConsumerOffsets=2") as scene:
        client = await scene.connect()
        await client.sent()
        await client.beat()
        await client.commit(1, queue_id=0)
        await client.commit(1, queue_id=1)
        ext = {"consumerGroup": "g", "topic": "T", "queueId": 2, "commitOffset": 1}
        reply = await client.call(15, ext)
        assert reply.code == 1
        assert "there are 2 or more already (maxConsumerOffsets)" in reply.remark
        # A pull that carries such an offset is served all the same.
        assert (await client.pull(queue_id=2, sysFlag=1 | 4, commitOffset=1)).code == 19
        await client.commit(2, queue_id=1)
        # What went makes room.
        monkeypatch.setattr(room, "_COUNT_AGAIN", -1.0)
        assert (await client.call(207, {"groupName": "g", "cleanOffset": "true"})).code == 0
        assert (await client.call(15, ext)).code == 0
