"""Bitmaps that are made when a message is stored, and spare pulls the messages that do not concern them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.broker.message_kit import Parts, Peer, pull_request

from pyromq.broker.config import BrokerConfig
from pyromq.filter.bloom import mask_of
from pyromq.protocol.bodies import QueryConsumeQueueResponseBody
from pyromq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import QueryConsumeQueue
from pyromq.protocol.record import decode_records
from pyromq.store.format import MAX_EXT_ADDRESS

if TYPE_CHECKING:
    from pyromq.protocol.bodies import ConsumeQueueData
    from pyromq.store.queues.consume_queue_ext import ExtUnit

CONFIG = BrokerConfig(
    broker_name="broker-a", broker_ip1="10.0.0.1", enable_property_filter=True, calc_filter_bitmap=True
)


class Bits(Parts):
    """A broker that makes bitmaps."""

    def __init__(self, folder, config=CONFIG) -> None:
        super().__init__(folder, config, consume_queue_ext=True, consume_queue_ext_file_size=4096)
        self.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))

    def beat(self, group: str, text: str, version: int = 1, kind: str = "SQL92") -> None:
        wanted = SubscriptionData(topic="orders", sub_string=text, sub_version=version, expression_type=kind)
        consumer = ConsumerData(group_name=group, subscription_data_set=[wanted])
        beat = HeartbeatData(client_id=group, consumer_data_set=[consumer])
        self.clients.heartbeat(cast("Any", Peer(group)), beat, self.now)
        self.filters.register(group, [wanted])
        self.now += 1

    def mask(self, *groups: str) -> bytes:
        bits = 0
        for group in groups:
            data = self.filters.get("orders", group)
            assert data is not None
            bits |= mask_of(data.positions)
        return bits.to_bytes(14, "little")

    def units(self) -> list[ExtUnit | None]:
        queue = self.store.queue("orders", 0)
        codes = [cast("Any", queue.entry(offset))[2] for offset in range(queue.max_offset)]
        return [queue.ext.unit(code) if queue.ext is not None and code <= MAX_EXT_ADDRESS else None for code in codes]

    async def bodies(self, group: str) -> list[bytes]:
        reply = await self.ask(Peer(group), pull_request(0, sys_flag=0, consumer_group=group))
        assert reply is not None
        return [record.body for record in decode_records(reply.body_bytes)] if reply.body else []

    def shown(self, group: str | None = None) -> tuple[str | None, list[ConsumeQueueData]]:
        request = Command.request(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueue("orders", 0, 0, 10, group))
        body = cast("Any", self.processors[request.code](cast("Any", Peer()), request)).body
        assert isinstance(body, bytes)
        decoded = QueryConsumeQueueResponseBody.decode(body)
        return decoded.filter_data, list(decoded.queue_data)


@pytest.fixture
async def parts(tmp_path):
    made = Bits(tmp_path)
    yield made
    made.close()


async def test_a_message_has_the_bits_of_every_group_whose_filter_selects_it(parts):
    parts.beat("big", "a > 5")
    parts.beat("small", "a <= 5")
    parts.beat("x", "b = 'x'")
    await parts.send(b"0", "a\x019")
    await parts.send(b"1", "a\x011\x02b\x01x")
    await parts.send(b"2")
    bitmaps = [unit.bitmap for unit in parts.units()]
    assert bitmaps == [parts.mask("big"), parts.mask("small", "x"), bytes(14)]
    assert await parts.bodies("big") == [b"0"]
    assert await parts.bodies("small") == [b"1"]


async def test_a_pull_does_not_look_at_what_its_bits_rule_out(parts):
    parts.beat("big", "a > 5")
    for number in range(10):
        await parts.send(b"%d" % number, f"a\x01{number}")
    data = parts.filters.get("orders", "big")
    tags, match, units = data.selection
    looked_at: list[memoryview] = []

    def counted(record: memoryview) -> bool:
        looked_at.append(record)
        return bool(match(record))

    data.selection = tags, counted, units
    assert await parts.bodies("big") == [b"6", b"7", b"8", b"9"]
    assert len(looked_at) == 4


async def test_a_group_that_comes_later_gets_what_was_stored_before(parts):
    parts.beat("big", "a > 5")
    await parts.send(b"old", "a\x011")
    parts.now += 1
    parts.beat("small", "a <= 5")
    assert await parts.bodies("small") == [b"old"]
    await parts.send(b"new", "a\x012")
    assert await parts.bodies("small") == [b"old", b"new"]
    parts.now += 1
    parts.beat("small", "a >= 1", version=2)
    assert await parts.bodies("small") == [b"old", b"new"]


async def test_groups_that_are_away_keep_their_bits(parts):
    parts.beat("big", "a > 5")
    parts.filters.unregister("big")
    await parts.send(b"0", "a\x019")
    assert parts.units()[0].bitmap == parts.mask("big")


async def test_without_filters_or_without_the_setting_there_are_no_units(parts):
    await parts.send(b"0", "a\x019")
    parts.beat("tags", "A || B", kind="TAG")
    await parts.send(b"1", "a\x019")
    parts.beat("big", "a > 5")
    parts.live.config = replace(CONFIG, calc_filter_bitmap=False)
    await parts.send(b"2", "a\x019")
    parts.live.config = CONFIG
    await parts.send(b"3", "a\x019")
    assert [unit is None for unit in parts.units()] == [True, True, True, False]
    assert await parts.bodies("big") == [b"0", b"1", b"2", b"3"]


async def test_bitmaps_mean_the_same_after_a_restart(tmp_path):
    parts = Bits(tmp_path)
    parts.beat("big", "a > 5")
    await parts.send(b"0", "a\x019")
    await parts.send(b"1", "a\x011")
    saved = parts.filters.snapshot()
    parts.close()
    parts = Bits(tmp_path)
    parts.now += 60_000
    parts.filters.load(saved)
    parts.beat("big", "a > 5")
    assert [unit and unit.bitmap for unit in parts.units()] == [parts.mask("big"), bytes(14)]
    assert await parts.bodies("big") == [b"0"]
    parts.close()


# As they are shown (321)


async def test_a_queue_is_shown_with_its_bitmaps_and_whether_they_let_a_group_pass(parts):
    parts.beat("big", "a > 5")
    await parts.send(b"0", "a\x019\x02TAGS\x01A")
    await parts.send(b"1", "a\x011")
    filter_data, entries = parts.shown("big")
    assert [entry.eval for entry in entries] == [True, False]
    first = entries[0]
    assert first.tags_code <= MAX_EXT_ADDRESS
    bits = "".join(first.bit_map.split())
    assert {111 - at for at, bit in enumerate(bits) if bit == "1"} == set(parts.filters.get("orders", "big").positions)
    assert [len(line) for line in first.bit_map.splitlines()] == [48, 64]
    unit = parts.units()[0]
    assert first.extend_data_json.startswith('{"filterBitMap":[')
    assert first.extend_data_json.endswith(f'],"msgStoreTime":{unit.store_time},"size":34,"tagsCode":65}}')
    assert filter_data.startswith('{\n\t"bloomFilterData":{\n\t\t"bitNum":112,\n\t\t"bitPos":[')
    assert '\n\t"expression":"a > 5",\n\t"expressionType":"SQL92",\n\t"topic":"orders"\n}' in filter_data


async def test_units_are_shown_to_groups_that_filter_by_tags_or_not_at_all(parts):
    parts.beat("big", "a > 5")
    parts.beat("tags", "A", kind="TAG")
    await parts.send(b"0", "a\x019\x02TAGS\x01A")
    await parts.send(b"1", "a\x019\x02TAGS\x01B")
    filter_data, entries = parts.shown("tags")
    assert (filter_data, [entry.eval for entry in entries]) == ("null", [True, False])
    filter_data, entries = parts.shown("gone")
    assert (filter_data, [entry.eval for entry in entries]) == ("gone@orders is not online!", [False, False])
    filter_data, entries = parts.shown()
    assert (filter_data, [entry.bit_map is None for entry in entries]) == (None, [False, False])
