"""Filters of consumer groups: who registered what, what is kept, and which messages a pull by SQL92 gets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from tests.unit.broker.message_kit import Parts, Peer, pull_request

from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.filters.consumer_filters import Filters, selection_of_expression
from pyromq.filter.bloom import mask_of
from pyromq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, MessageModel, SubscriptionData
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.record import MessageRecord, decode_records, encode_record
from pyromq.store.format import ENTRY, EXT_BASE, EXT_UNIT
from pyromq.store.metadata.json_files import BloomFilterData, ConsumerFilterTable, TopicFilters
from pyromq.store.queues.consume_queue_ext import ConsumeQueueExt

if TYPE_CHECKING:
    from pyromq.protocol.command import Command

SUSPEND = 2
NO_DATA = (27, "The broker's consumer filter data is not exist!Your expression may be wrong!")
NOT_ALLOWED = (1, "The broker does not support consumer to filter message by SQL92")


class Table:
    """The filters of a broker whose clock the test turns."""

    def __init__(self, **config) -> None:
        self.now = 1_000_000
        self.filters = Filters(LiveConfig.of(BrokerConfig(**config)), lambda: self.now)

    def beat(self, text="a > 1", version=1, topic="T", group="g", kind="SQL92", also=()):
        wanted = SubscriptionData(topic=topic, sub_string=text, sub_version=version, expression_type=kind)
        self.filters.register(group, [wanted, *also])
        return self.filters.get(topic, group)


@pytest.fixture
def table():
    return Table()


def test_a_heartbeat_registers_an_expression(table):
    data = table.beat("a > 1", version=7)
    assert (data.expression, data.client_version, data.born_time, data.is_dead) == ("a > 1", 7, table.now, False)
    assert table.filters.dirty


def test_tags_are_no_filter(table):
    assert table.beat("A", kind="TAG") is None
    assert table.beat("A", kind="") is None
    assert table.beat("", kind="SQL92") is None
    assert not table.filters.dirty


def test_an_older_heartbeat_changes_nothing(table):
    first = table.beat("a > 1", version=7)
    assert table.beat("a > 2", version=6) is first
    assert table.beat("a > 2", version=7) is first
    assert (first.expression, first.client_version) == ("a > 1", 7)


def test_a_newer_version_of_the_same_expression_keeps_its_birth(table):
    first = table.beat(version=7)
    table.now += 5
    again = table.beat(version=8)
    assert (again.client_version, again.born_time) == (8, first.born_time)


def test_a_new_expression_is_born_anew(table):
    table.beat("a > 1", version=7)
    table.now += 5
    data = table.beat("a > 2", version=8)
    assert (data.expression, data.born_time) == ("a > 2", table.now)


@pytest.mark.parametrize("wrong", [{"text": "a >"}, {"text": "a > 2", "kind": "XPATH"}])
def test_what_does_not_compile_removes_what_was_there(table, wrong):
    table.beat("a > 1", version=7)
    assert table.beat(version=8, **wrong) is None


def test_a_topic_that_is_not_named_any_more_dies_and_comes_back(table):
    data = table.beat()
    table.now += 5
    table.filters.register("g", [SubscriptionData(topic="U", sub_string="*")])
    assert (data.is_dead, data.dead_time) == (True, table.now)
    table.now += 5
    assert table.beat() is data
    assert not data.is_dead


def test_the_filters_of_a_group_without_members_die(table):
    data, other = table.beat(), table.beat(group="h")
    table.filters.unregister("g")
    table.filters.unregister("nobody")
    assert (data.is_dead, other.is_dead) == (True, False)
    assert table.beat() is data
    assert not data.is_dead


def test_the_dead_are_forgotten_after_a_while():
    table = Table(filter_data_clean=1000)
    table.beat()
    table.beat(group="h")
    table.filters.unregister("g")
    table.now += 999
    table.filters.clean()
    assert table.filters.get("T", "g") is not None
    table.now += 1
    table.filters.clean()
    assert table.filters.get("T", "g") is None
    assert table.filters.get("T", "h") is not None


def test_filters_are_saved_with_their_bits(table):
    table.beat(version=7)
    entry = table.filters.snapshot().filter_data_by_topic["T"].group_filter_data["g"]
    assert entry.bloom_filter_data == BloomFilterData(bit_num=112, bit_pos=[90, 68, 28])
    assert (entry.born_time, entry.dead_time, entry.dead, entry.client_version) == (table.now, 0, False, 7)
    assert (entry.consumer_group, entry.topic, entry.expression, entry.expression_type) == ("g", "T", "a > 1", "SQL92")


def test_what_was_saved_is_dead_until_somebody_comes(table):
    table.beat(version=7)
    later = Table()
    later.now += 100_000
    later.filters.load(table.filters.snapshot())
    data = later.filters.get("T", "g")
    assert data is not None
    assert (data.born_time, data.client_version, data.dead_time) == (table.now, 7, later.now - 30_000)
    assert later.beat(version=7) is data
    assert not data.is_dead


def test_nobody_is_dead_before_being_born(table):
    table.beat()
    soon = Table()
    soon.now += 10
    soon.filters.load(table.filters.snapshot())
    data = soon.filters.get("T", "g")
    assert data is not None
    assert data.dead_time == table.now


@pytest.mark.parametrize(
    "bits", [None, BloomFilterData(bit_num=64, bit_pos=[1, 2, 3]), BloomFilterData(bit_num=112, bit_pos=[1, 2]),
             BloomFilterData(bit_num=112, bit_pos=[1, 2, 112]), BloomFilterData(bit_num=112, bit_pos=[1, 2, -1])],
)  # fmt: skip
def test_a_file_with_other_bits_says_nothing(table, bits):
    table.beat()
    table.beat(group="h")
    saved = table.filters.snapshot().filter_data_by_topic["T"].group_filter_data
    broken = saved | {"h": msgspec.structs.replace(saved["h"], bloom_filter_data=bits)}
    fresh = Table()
    fresh.filters.load(
        ConsumerFilterTable(filter_data_by_topic={"T": TopicFilters(group_filter_data=broken, topic="T")})
    )
    assert fresh.filters.get("T", "g") is None


# Pulls


@pytest.fixture
async def parts(tmp_path):
    made = Parts(tmp_path, BrokerConfig(broker_name="broker-a", broker_ip1="10.0.0.1", enable_property_filter=True))
    made.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    made.topics.update(TopicConfig(topic_name="%RETRY%billing"))
    yield made
    made.close()


def allow(parts: Parts, **config) -> None:
    parts.live.config = replace(parts.live.config, **config)


def beat(parts: Parts, text: str, version: int = 1, kind: str = "SQL92", topic: str = "orders") -> None:
    wanted = SubscriptionData(topic=topic, sub_string=text, sub_version=version, expression_type=kind)
    consumer = ConsumerData(group_name="billing", message_model=MessageModel.CLUSTERING, subscription_data_set=[wanted])
    peer = cast("Any", Peer())
    parts.clients.heartbeat(peer, HeartbeatData(client_id="c1", consumer_data_set=[consumer]), parts.now)
    parts.filters.register("billing", [wanted])


def sql(text: str, **more) -> dict[str, Any]:
    return {"subscription": text, "expression_type": "SQL92"} | more


async def pulled(parts: Parts, **fields) -> Command:
    reply = await parts.ask(Peer(), pull_request(0, **fields))
    assert reply is not None
    return reply


async def bodies(parts: Parts, **fields) -> list[bytes]:
    reply = await pulled(parts, **fields)
    return [record.body for record in decode_records(reply.body_bytes)] if reply.body else []


async def refusal(parts: Parts, **fields) -> tuple[int, str | None]:
    reply = await pulled(parts, **fields)
    return reply.code, reply.remark


async def test_a_pull_by_sql_gets_what_matches_and_passes_over_the_rest(parts):
    for number in range(6):
        await parts.send(b"m%d" % number, f"a\x01{number}\x02TAGS\x01T")
    await parts.send(b"without")
    await parts.send(b"odd", "a\x01odd")
    assert await bodies(parts, **sql("a > 3 AND TAGS = 'T'")) == [b"m4", b"m5"]
    assert await bodies(parts, **sql("a IS NULL")) == [b"without"]
    nothing = await pulled(parts, **sql("a > 9"))
    assert nothing.ext is not None
    assert (nothing.code, nothing.ext["nextBeginOffset"]) == (20, "8")


async def test_the_group_s_own_expression_counts_when_the_pull_brings_none(parts):
    beat(parts, "a = 2")
    for number in range(4):
        await parts.send(b"m%d" % number, f"a\x01{number}")
    assert await bodies(parts, sys_flag=0) == [b"m2"]
    beat(parts, "a = 3", version=2)
    assert await bodies(parts, sys_flag=0) == [b"m3"]


async def test_the_checks_of_filters_come_in_their_order(parts):
    beat(parts, "a > 1", version=3)
    allow(parts, enable_property_filter=False)
    assert await refusal(parts, sys_flag=0, sub_version=3) == NOT_ALLOWED
    assert await refusal(parts, sys_flag=0, sub_version=4) == (25, "the consumer's subscription not latest")
    live = parts.clients.consumer_group("billing").subscriptions
    live["orders"] = SubscriptionData(topic="orders", sub_string="a > 1", sub_version=4, expression_type="SQL92")
    assert await refusal(parts, sys_flag=0, sub_version=4) == (28, "the consumer's consumer filter data not latest")
    beat(parts, "a >", version=5)
    assert await refusal(parts, sys_flag=0, sub_version=5) == NO_DATA
    assert await refusal(parts, **sql("a > 1")) == NOT_ALLOWED
    assert await refusal(parts, **sql("a >")) == (23, "parse the consumer's subscription failed")


@pytest.mark.parametrize("wrong", [sql(""), sql("a >"), sql("1"), sql("a = 1", expression_type="sql92")])
async def test_a_pull_with_an_expression_that_is_none_is_refused(parts, wrong):
    assert await refusal(parts, **wrong) == (23, "parse the consumer's subscription failed")


async def test_a_held_pull_wakes_for_a_message_that_its_filter_selects(parts):
    peer = Peer()
    beat(parts, "a > 3")
    assert await parts.ask(peer, pull_request(0, sys_flag=SUSPEND)) is None
    await parts.send(b"no", "a\x013")
    assert peer.replies == []
    await parts.send(b"yes", "a\x014")
    (reply,) = peer.replies
    assert [record.body for record in decode_records(reply.body_bytes)] == [b"yes"]


@pytest.mark.parametrize("values", [range(5), range(3000)], ids=["few values", "many"])
async def test_each_message_is_tested_by_its_own_properties(parts, values):
    # More different ones than answers are remembered, some of them twice.
    _, match, _ = selection_of_expression("SQL92", f"a > 2 AND b <> '{len(values)}'")
    assert match is not None
    for number in [*values, *values]:
        record = encode_record(MessageRecord("T", b"body", b"b\x01x\x02a\x01%d" % number))
        assert match(memoryview(record)) is (number > 2)


async def test_retried_messages_are_filtered_by_the_topic_they_came_from(parts):
    beat(parts, "a > 3")
    for number, origin in ((1, "orders"), (4, "orders"), (1, "others")):
        text = f"a\x01{number}\x02RETRY_TOPIC\x01{origin}"
        await parts.send(b"%s %d" % (origin.encode(), number), text, topic="%RETRY%billing")
    everything = [b"orders 1", b"orders 4", b"others 1"]
    assert await bodies(parts, topic="%RETRY%billing") == everything
    allow(parts, filter_support_retry=True)
    assert await bodies(parts, topic="%RETRY%billing") == [b"orders 4", b"others 1"]
    allow(parts, enable_property_filter=False)
    assert await bodies(parts, topic="%RETRY%billing") == everything


# Bitmaps, which RocketMQ writes and we read


def write_units(parts: Parts, queue_folder, ext_folder, bitmaps: list[bytes], times: list[int]) -> None:
    """Let the entries of the queue lead to units with these bitmaps, as in a store of RocketMQ."""
    queue = parts.store.queue("orders", 0)
    ext_folder.mkdir(parents=True)
    units, entries = b"", b""
    for offset, (bitmap, stored) in enumerate(zip(bitmaps, times, strict=True)):
        entry = queue.entry(offset)
        assert entry is not None
        physical, size, tags_code = entry
        entries += ENTRY.pack(physical, size, EXT_BASE + len(units))
        units += EXT_UNIT.pack(EXT_UNIT.size + len(bitmap), tags_code, stored, len(bitmap)) + bitmap
    (ext_folder / f"{0:020d}").write_bytes(units.ljust(4096, b"\0"))
    path = queue_folder / f"{0:020d}"
    path.write_bytes(entries + path.read_bytes()[len(entries) :])


async def test_bitmaps_rule_out_messages_before_they_are_looked_at(tmp_path):
    config = BrokerConfig(enable_property_filter=True)
    parts = Parts(tmp_path, config, consume_queue_ext_file_size=4096)
    parts.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    for number in range(6):
        await parts.send(b"m%d" % number, "a\x015")
    parts.store.close()
    parts = Parts(tmp_path, config, consume_queue_ext_file_size=4096)
    parts.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    beat(parts, "a = 5")
    data = parts.filters.get("orders", "billing")
    assert data is not None
    full = mask_of(data.positions).to_bytes(14, "little")
    empty, half = bytes(14), (mask_of(data.positions[:1])).to_bytes(14, "little")
    after = data.born_time + 1
    # All match, as far as properties go. Of the last two nothing is known: made before the filter, or of other bits.
    bitmaps, times = [full, empty, half, b"\xff" * 14, empty, bytes(8)], [after] * 4 + [data.born_time, after]
    ext_folder = tmp_path / "consumequeue_ext" / "orders" / "0"
    write_units(parts, tmp_path / "consumequeue" / "orders" / "0", ext_folder, bitmaps, times)
    queue = parts.store.queue("orders", 0)
    queue.ext = ConsumeQueueExt(ext_folder, 4096, parts.store.queues._files)
    looked_at: list[int] = []
    tags, match, units = data.selection

    def counted(record: memoryview) -> bool:
        looked_at.append(1)
        assert match is not None
        return match(record)

    data.selection = tags, counted, units
    assert await bodies(parts, sys_flag=0) == [b"m0", b"m3", b"m4", b"m5"]
    assert len(looked_at) == 4
    # Nothing was registered for an expression of the pull's own, so no bits stand for it.
    assert len(await bodies(parts, **sql("a = 5"))) == 6
    assert len(await bodies(parts)) == 6
    parts.store.abandon()
