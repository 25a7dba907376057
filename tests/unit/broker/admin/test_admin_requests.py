"""What operators ask of a broker: settings, figures, progress, cleaning. Real tables and a real store, no socket."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.unit.broker.message_kit import assembled
from tests.unit.store.kit import T0, Stores, put

from pyromq.broker.admin.broker_requests import (
    CleaningProcessors,
    FigureProcessors,
    SettingsProcessors,
)
from pyromq.broker.config import BrokerConfig, LiveConfig, load_settings
from pyromq.broker.offsets import progress as progress_module
from pyromq.broker.offsets.progress import time_text
from pyromq.broker.stats.runtime_info import RuntimeInfo, duration_text, size_text
from pyromq.broker.stats.statistics import GROUP_GET_NUMS, TOPIC_PUT_NUMS
from pyromq.errors import MissingField, NoPermission, ServerError, TopicNotFound
from pyromq.protocol.bodies import (
    BrokerStatsData,
    ConsumerData,
    ConsumeStats,
    ConsumeStatsList,
    DataVersion,
    DelayOffsetTable,
    HeartbeatData,
    KVTable,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicOffset,
    TopicStatsTable,
)
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetTopicStatsInfo,
    QueryConsumeTimeSpan,
    ViewBrokerStatsData,
)
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import TIMER_TOPIC
from pyromq.settings import replace_file
from pyromq.store.config import StoreConfig

BROKER = BrokerConfig(broker_name="broker-a")


class Peer:
    """All that processors look at of a connection."""

    peer = "192.0.2.7:5123"


PEER: Any = Peer()


@pytest.fixture
def stores(tmp_path):
    stores = Stores(tmp_path)
    yield stores
    stores.finish()


@pytest.fixture
def store(stores):
    return stores.open()


@pytest.fixture
def now(stores):
    return lambda: stores.clock.millis


@pytest.fixture
def live():
    return LiveConfig.of(BROKER)


@pytest.fixture
async def parts(live, store, now):
    return assembled(live, store, now)


@pytest.fixture
def topics(parts):
    return parts.tables.topics


@pytest.fixture
def groups(parts):
    return parts.tables.groups


@pytest.fixture
def offsets(parts):
    return parts.tables.offsets


@pytest.fixture
def clients(parts):
    return parts.tables.clients


@pytest.fixture
def statistics(parts):
    return parts.context.stats


def queue_of(topic, queue_id=0):
    return MessageQueue(broker_name="broker-a", queue_id=queue_id, topic=topic)


# Settings


class Saved(list[bytes]):
    async def save(self, text):
        self.append(text)


@pytest.fixture
def saved():
    return Saved()


@pytest.fixture
def configure(saved, now):
    """The two requests, on settings that are loaded from `file`."""

    def configure(live, changed=lambda keys: None):
        async def tell(keys):
            changed(keys)

        table: dict[int, Any] = SettingsProcessors(live, now, saved.save, tell).table()

        async def update(text):
            return await table[RequestCode.UPDATE_BROKER_CONFIG](
                PEER, Command.request(RequestCode.UPDATE_BROKER_CONFIG, body=text)
            )

        def get():
            return table[RequestCode.GET_BROKER_CONFIG](PEER, Command.request(RequestCode.GET_BROKER_CONFIG))

        return update, get

    return configure


async def test_a_setting_that_is_changed_is_in_effect_saved_and_shown(configure, saved):
    live = LiveConfig(load_settings())
    changed: list[list[str]] = []
    update, get = configure(live, changed.append)
    response = await update(b"fileReservedTime=10\nbrokerPermission=4\n")
    assert response.code == 0
    assert changed == [["fileReservedTime", "brokerPermission"]]
    assert live.config.broker_permission == 4
    assert live.settings[StoreConfig].reserved_hours == 10
    assert b"\nfileReservedTime=10\n" in saved[0]
    assert b"\nfileReservedTime=10\n" in get().body


async def test_a_change_without_effect_says_so_in_its_answer(configure, caplog):
    update, get = configure(LiveConfig(load_settings()))
    response = await update(b"filterServerNums=1\nbrokerPermission=4\n")
    assert (response.code, response.remark) == (0, "filterServerNums has no effect: brokers filter messages themselves")
    assert response.remark in caplog.text
    assert b"\nfilterServerNums=1\n" in get().body


async def test_what_was_saved_is_there_after_a_restart(tmp_path, now):
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=b\nmine=1\n")

    async def save(text):
        await asyncio.to_thread(replace_file, file, text)

    async def tell(keys):
        pass

    processors = SettingsProcessors(LiveConfig(load_settings(file)), now, save, tell)
    await processors.update(PEER, Command.request(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=10"))
    again = load_settings(file)
    assert again[StoreConfig].reserved_hours == 10
    assert again.value("mine") == "1"
    assert again[BrokerConfig].broker_name == "b"


async def test_the_version_of_the_settings_moves_on_with_each_change(configure, now):
    live = LiveConfig(load_settings())
    update, get = configure(live)
    before = DataVersion.decode(get().ext["version"].encode())
    await update(b"traceOn=false")
    after = DataVersion.decode(get().ext["version"].encode())
    assert (after.counter, after.timestamp) == (before.counter + 1, now())


@pytest.mark.parametrize("key", ["configBlackList", "brokerConfigPath", "rocketmqHome", "mine"])
async def test_a_key_on_the_black_list_changes_nothing_at_all(configure, saved, key):
    live = LiveConfig(load_settings(sets=["configBlackList=mine; other"]))
    update, _ = configure(live)
    with pytest.raises(NoPermission) as caught:
        await update(f"traceOn=false\n{key}=x\n".encode())
    assert caught.value.remark == "Can not update config in black list."
    assert live.config.trace_on
    assert saved == []


@pytest.mark.parametrize("text", [None, b"", b"traceOn", b"\n\n"])
async def test_a_text_without_an_assignment_changes_nothing(configure, saved, text):
    live = LiveConfig(load_settings())
    update, get = configure(live)
    before = get().ext, get().body
    assert (await update(text)).code == 0
    assert (get().ext, get().body) == before
    assert saved == []


async def test_a_text_that_is_no_properties_is_refused(configure, saved):
    update, _ = configure(LiveConfig(load_settings()))
    with pytest.raises(ServerError, match="string2Properties error"):
        await update(b"traceOn=\\u12")
    assert saved == []


async def test_an_unknown_key_is_dropped_and_the_answer_says_so(configure, saved):
    update, get = configure(LiveConfig(load_settings()))
    reply = await update(b"noSuchKey=1\ntraceOn=false\ntraceOm=1")
    assert (reply.code, reply.remark) == (
        0,
        "unknown setting noSuchKey; unknown setting traceOm; did you mean traceOn?",
    )
    assert b"noSuchKey" not in get().body
    assert b"noSuchKey" not in saved[0]


async def test_passwords_are_not_shown(configure):
    _, get = configure(LiveConfig(load_settings(sets=["tls.server.keyPassword=secret"])))
    assert b"secret" not in get().body


# Figures


@pytest.fixture
def delay_offsets():
    return {1: 5, 3: 0}


@pytest.fixture
def figures(parts, statistics, delay_offsets, stores):
    def delayed():
        return DelayOffsetTable(offset_table=delay_offsets)

    info = RuntimeInfo(parts.context, delay_offsets=delayed, backlog=lambda kind: (0, 0), timers=None, disk=stores.disk)
    table = FigureProcessors(info, statistics, delayed).table()

    def ask(code, header=None):
        return table[code](PEER, Command.request(code, header))

    return ask


def runtime_info(figures):
    return KVTable.decode(figures(RequestCode.GET_BROKER_RUNTIME_INFO).body).table


KEYS = """
    bootTimestamp runtime putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes putMessageSizeTotal
    putMessageDistributeTime putMessageAverageSize dispatchMaxBuffer getMessageEntireTimeMax putTps getFoundTps
    getMissTps getTotalTps getTransferedTps getTransferredTps putLatency99 putLatency999 commitLogDiskRatio
    consumeQueueDiskRatio scheduleMessageOffset_1 scheduleMessageOffset_3 commitLogMinOffset commitLogMaxOffset
    brokerVersionDesc brokerVersion msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
    msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow sendThreadPoolQueueSize
    sendThreadPoolQueueCapacity pullThreadPoolQueueSize pullThreadPoolQueueCapacity queryThreadPoolQueueSize
    queryThreadPoolQueueCapacity EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity dispatchBehindBytes
    pageCacheLockTimeMills sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills
    queryThreadPoolQueueHeadWaitTimeMills earliestMessageTimeStamp startAcceptSendRequestTimeStamp
    remainTransientStoreBufferNumbs remainHowManyDataToFlush commitLogDirCapacity
"""


async def test_a_broker_tells_everything_that_rocketmq_tells(figures, store):
    info = runtime_info(figures)
    wanted = {*KEYS.split(), f"commitLogDiskRatio_{store.root / 'commitlog'}"}
    assert wanted <= info.keys()
    of_5x = {"brokerActive"} | {key for key in info if key.startswith("timer")}
    ours = {"hotPath"}
    assert info.keys() - wanted == of_5x | ours


async def test_a_fresh_broker_tells_figures_that_tools_can_read(figures):
    info = runtime_info(figures)
    for key in ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps", "getTransferredTps"):
        assert info[key] == "0.0 0.0 0.0"
    assert info["putMessageTimesTotal"] == "1"  # tools divide by it
    assert info["earliestMessageTimeStamp"] == "-1"
    assert info["brokerVersionDesc"] == "V4_9_8"
    assert info["brokerVersion"] == "409"
    assert info["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
    assert info["commitLogMinOffset"] == info["commitLogMaxOffset"] == "0"


async def test_the_figures_follow_what_happens(figures, stores, store, statistics):
    (result,) = put(store, b"hello")
    statistics.throughput.stored(1, result.size, 3.0)
    statistics.throughput.stored(3, 300, 7.9)
    statistics.throughput.pulled(2)
    statistics.throughput.pulled(0)
    statistics.throughput.refused(5)
    stores.clock.advance(10)
    statistics.sample(stores.clock.millis)
    info = runtime_info(figures)
    assert info["putTps"].startswith("0.4 ")
    assert info["getTransferedTps"] == info["getTransferredTps"] == "0.2 0.2 0.2"
    assert info["getTotalTps"].startswith("0.2 ")
    assert info["msgPutTotalTodayNow"] == info["putMessageTimesTotal"] == "4"
    assert info["msgGetTotalTodayNow"] == "2"
    assert info["putMessageFailedTimes"] == "5"
    assert info["putMessageSizeTotal"] == str(300 + result.size)
    assert info["putMessageAverageSize"] == str((300 + result.size) / 4)
    assert info["putMessageEntireTimeMax"] == "7"
    assert info["runtime"] == "[ 0 days, 0 hours, 0 minutes, 10 seconds ]"
    assert info["earliestMessageTimeStamp"] == str(T0)
    assert info["commitLogMaxOffset"] == str(result.size)


async def test_what_is_counted_elsewhere_is_in_the_figures(figures, statistics):
    statistics.sources.append(lambda: statistics.throughput.stored(9, 1, 0.0))
    assert runtime_info(figures)["msgPutTotalTodayNow"] == "9"


async def test_delayed_messages_are_told_with_the_end_of_their_queue(figures, store):
    put(store, b"a", b"b", topic="SCHEDULE_TOPIC_XXXX", queue_id=2)
    info = runtime_info(figures)
    assert info["scheduleMessageOffset_1"] == "5,0"
    assert info["scheduleMessageOffset_3"] == "0,2"


async def test_the_disk_is_told(figures, stores):
    stores.disk.used = 0.37
    info = runtime_info(figures)
    assert info["commitLogDiskRatio"] == info["consumeQueueDiskRatio"] == "0.37"
    assert info["commitLogDirCapacity"].startswith("Total : ")
    assert info["commitLogDirCapacity"].endswith("iB.")


async def test_requests_that_wait_are_told(parts):
    waiting = {"send": (3, 250), "endTransaction": (1, 9)}
    info = RuntimeInfo(
        parts.context,
        delay_offsets=DelayOffsetTable,
        backlog=lambda kind: waiting.get(kind, (0, 0)),
        timers=None,
    )
    table = info.collect()
    assert table["sendThreadPoolQueueSize"] == "3"
    assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "250"
    assert table["sendThreadPoolQueueCapacity"] == "10000"
    assert table["EndTransactionQueueSize"] == "1"
    assert table["pullThreadPoolQueueSize"] == "0"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (12 * 1024, "12.0 KiB"),
        (1024**2 - 1, "1024.0 KiB"),
        (3 * 2**40 // 2, "1.5 TiB"),
        (2**63, "8.0 EiB"),
        (2**75, "32768.0 EiB"),
    ],
)
async def test_a_size_is_told_as_rocketmq_tells_it(size, text):
    assert size_text(size) == text


async def test_a_duration_is_told_as_rocketmq_tells_it():
    assert duration_text(((25 * 60 + 2) * 60 + 3) * 1000 + 999) == "[ 1 days, 1 hours, 2 minutes, 3 seconds ]"
    assert duration_text(-5) == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"


async def test_a_counter_can_be_viewed_over_a_minute_an_hour_and_a_day(figures, stores, statistics):
    statistics.add(TOPIC_PUT_NUMS, "T", 60, 30)
    stores.clock.advance(10)
    statistics.sample(stores.clock.millis)
    response = figures(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsData(TOPIC_PUT_NUMS, "T"))
    view = BrokerStatsData.decode(response.body)
    assert (view.stats_minute.sum, view.stats_minute.tps, view.stats_minute.avgpt) == (60, 6.0, 2.0)
    assert (view.stats_hour.sum, view.stats_day.sum) == (0, 0)


async def test_a_counter_that_never_was_cannot_be_viewed(figures):
    with pytest.raises(ServerError) as caught:
        figures(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsData(TOPIC_PUT_NUMS, "U"))
    assert caught.value.remark == "The stats <TOPIC_PUT_NUMS> <U> not exist"


async def test_delay_offsets_are_told_by_level(figures):
    assert figures(RequestCode.GET_ALL_DELAY_OFFSET).body == b'{"offsetTable":{"1":5,"3":0}}'


# Progress


@pytest.fixture
def ask(parts):
    def ask(code, header):
        return parts.processors[code](PEER, Command.request(code, header))

    return ask


@pytest.fixture
def topic_stats(ask):
    return lambda topic: TopicStatsTable.decode(ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfo(topic)).body)


@pytest.fixture
def consume_stats(ask):
    def consume_stats(group, topic=None, topic_list=None):
        header = GetConsumeStats(group, topic, topic_list)
        return ConsumeStats.decode(ask(RequestCode.GET_CONSUME_STATS, header).body)

    return consume_stats


def make_topic(topics, name="T", read=1, write=1, **more):
    topics.update(TopicConfig(topic_name=name, read_queue_nums=read, write_queue_nums=write, **more))


def go_online(clients, group, *topics):
    wanted = [SubscriptionData(topic=topic) for topic in topics]
    consumer = ConsumerData(group_name=group, subscription_data_set=wanted)
    clients.heartbeat(PEER, HeartbeatData(client_id="c", consumer_data_set=[consumer]), T0)


async def test_the_ends_of_all_queues_to_write_to_are_told(stores, store, topics, topic_stats):
    make_topic(topics, read=4, write=2)
    put(store, b"a", b"b")
    stores.clock.advance(5)
    put(store, b"c", b"d", b"e")
    stats = topic_stats("T")
    assert stats.offset_table == {
        queue_of("T", 0): TopicOffset(min_offset=0, max_offset=5, last_update_timestamp=T0 + 5000),
        queue_of("T", 1): TopicOffset(min_offset=0, max_offset=0, last_update_timestamp=0),
    }
    assert len(store.queues.of_topic("T")) == 1  # asking makes none


async def test_a_queue_whose_messages_are_gone_says_so(stores, store, topics, topic_stats):
    make_topic(topics)
    put(store, b"x" * 3000, b"y" * 3000)
    put(store, b"z" * 3000, topic="U")
    stores.drop_oldest_files(store)
    assert topic_stats("T").offset_table == {
        queue_of("T"): TopicOffset(min_offset=2, max_offset=2, last_update_timestamp=-1)
    }


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfo("T")),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan("T", "g")),
    ],
)
async def test_a_topic_that_does_not_exist_is_17(ask, code, header):
    with pytest.raises(TopicNotFound) as caught:
        ask(code, header)
    assert caught.value.remark == "topic[T] not exist"


async def test_a_request_names_the_field_that_it_lacks(ask):
    with pytest.raises(MissingField, match="topic"):
        ask(RequestCode.GET_TOPIC_STATS_INFO, None)


async def test_a_topic_that_claims_billions_of_queues_does_not_stop_the_broker(
    monkeypatch, topics, offsets, topic_stats, consume_stats, spans
):
    monkeypatch.setattr(progress_module, "MAX_LISTED_QUEUES", 50)
    make_topic(topics, read=2**31 - 1, write=2**31 - 1)
    offsets.commit("g", "T", 0, 0)
    assert len(topic_stats("T").offset_table) == 50
    assert len(consume_stats("g").offset_table) == 50
    assert len(spans()) == 50
    make_topic(topics, read=-1, write=-1)
    assert topic_stats("T").offset_table == {}


async def test_a_group_is_told_how_far_it_is_in_each_queue_to_read(stores, store, topics, offsets, consume_stats):
    make_topic(topics, read=2, write=1)
    for body in (b"0", b"1", b"2", b"3", b"4"):
        put(store, body)
        stores.clock.advance(1)
    offsets.commit("g", "T", 0, 3)
    assert consume_stats("g", "T").offset_table == {
        queue_of("T", 0): OffsetWrapper(broker_offset=5, consumer_offset=3, last_timestamp=T0 + 2000, pull_offset=3),
        queue_of("T", 1): OffsetWrapper(broker_offset=0, consumer_offset=0, last_timestamp=0),
    }


async def test_without_a_topic_all_that_a_group_has_offsets_of_are_told(topics, offsets, consume_stats):
    for name in ("T", "U", "V"):
        make_topic(topics, name)
    offsets.commit("g", "T", 0, 3)
    offsets.commit("g", "U", 0, 4)
    offsets.commit("g", "gone", 0, 4)
    offsets.commit("other", "V", 0, 4)
    assert {queue.topic for queue in consume_stats("g").offset_table} == {"T", "U"}
    assert {queue.topic for queue in consume_stats("g", " ").offset_table} == {"T", "U"}
    assert {queue.topic for queue in consume_stats("g", "V").offset_table} == {"V"}
    assert {queue.topic for queue in consume_stats("g", None, "T;V;gone").offset_table} == {"T", "V"}


async def test_an_unknown_group_or_topic_has_an_empty_table(topics, consume_stats):
    make_topic(topics)
    assert consume_stats("nobody") == ConsumeStats(consume_tps=0.0, offset_table={})
    assert consume_stats("nobody", "gone").offset_table == {}


async def test_topics_that_an_online_group_does_not_subscribe_are_left_out(topics, offsets, clients, consume_stats):
    for name in ("T", "U"):
        make_topic(topics, name)
        offsets.commit("g", name, 0, 1)
    go_online(clients, "g", "U")
    assert {queue.topic for queue in consume_stats("g").offset_table} == {"U"}
    assert consume_stats("g", "T").offset_table == {}


async def test_the_rates_of_all_topics_are_added_up(stores, topics, offsets, statistics, consume_stats):
    for name, count in (("T", 20), ("U", 10)):
        make_topic(topics, name)
        offsets.commit("g", name, 0, 1)
        statistics.add(GROUP_GET_NUMS, f"{name}@g", count)
    stores.clock.advance(10)
    statistics.sample(stores.clock.millis)
    assert consume_stats("g").consume_tps == 3.0
    assert consume_stats("g", "T").consume_tps == 2.0


async def test_all_groups_are_told_at_once(store, topics, groups, offsets, ask):
    make_topic(topics, "T", read=1, write=2)
    make_topic(topics, "O", order=True)
    put(store, b"a", b"b", b"c")
    groups.update(SubscriptionGroupConfig(group_name="g"))
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "T", 1, 7)  # more than there is
    offsets.commit("g", "O", 0, 0)
    offsets.commit("g", "gone", 0, 0)
    offsets.commit("unknown", "T", 0, 0)
    response = await ask(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStats())
    body = ConsumeStatsList.decode(response.body)
    assert body.broker_addr == "10.0.0.1:10911"
    by_group = {group: stats for element in body.consume_stats_list for group, stats in element.items()}
    assert len(body.consume_stats_list) == len(by_group) == len(groups)
    assert by_group["TOOLS_CONSUMER"] == []
    assert [stats.offset_table for stats in by_group["g"]] == [
        {
            queue_of("T", 0): OffsetWrapper(broker_offset=3, consumer_offset=1, last_timestamp=T0, pull_offset=1),
            queue_of("T", 1): OffsetWrapper(broker_offset=0, consumer_offset=7, last_timestamp=0, pull_offset=7),
        },
        {queue_of("O", 0): OffsetWrapper()},
    ]
    assert body.total_diff == 2 - 7


async def test_only_ordered_topics_are_told_if_that_is_asked(topics, groups, offsets, ask):
    make_topic(topics, "T")
    make_topic(topics, "O", order=True)
    groups.update(SubscriptionGroupConfig(group_name="g"))
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "O", 0, 1)
    response = await ask(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStats(is_order=True))
    body = ConsumeStatsList.decode(response.body)
    (stats,) = [element["g"] for element in body.consume_stats_list if "g" in element]
    assert [{queue.topic for queue in each.offset_table} for each in stats] == [{"O"}]


async def test_a_group_that_goes_while_all_are_told_does_no_harm(topics, groups, offsets, ask):
    telling = ask(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStats())
    task = asyncio.ensure_future(telling)
    await asyncio.sleep(0)
    for group in list(groups):
        groups.delete(group.group_name)
    assert (await task).code == 0


# Times


@pytest.fixture
def spans(ask):
    def spans(group="g"):
        response = ask(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan("T", group))
        return QueryConsumeTimeSpanBody.decode(response.body).consume_time_span_set

    return spans


def put_three(stores, store):
    """At T0, a second and two seconds later; then ten seconds pass."""
    for body in (b"0", b"1", b"2"):
        put(store, body)
        stores.clock.advance(1)
    stores.clock.advance(7)


async def test_the_times_of_a_queue_are_those_of_its_messages(stores, store, topics, offsets, spans):
    make_topic(topics, write=2)
    put_three(stores, store)
    offsets.commit("g", "T", 0, 2)
    first, second = spans()
    assert first.message_queue == queue_of("T", 0)
    assert (first.min_time_stamp, first.max_time_stamp) == (T0, T0 + 2000)
    assert first.consume_time_stamp == T0 + 1000
    assert first.delay_time == 8000
    assert first.min_time_stamp_str == time_text(T0)
    assert (second.min_time_stamp, second.max_time_stamp, second.consume_time_stamp) == (-1, -1, -1)
    assert second.delay_time == 0


async def test_a_group_that_has_read_everything_waits_for_nothing(stores, store, topics, offsets, spans):
    make_topic(topics)
    put_three(stores, store)
    offsets.commit("g", "T", 0, 3)
    (span,) = spans()
    assert (span.consume_time_stamp, span.delay_time) == (T0 + 2000, 0)


async def test_a_group_that_has_not_begun_waits_for_the_first_message(stores, store, topics, spans):
    make_topic(topics)
    put_three(stores, store)
    (span,) = spans("fresh")
    assert (span.consume_time_stamp, span.delay_time) == (T0, 10_000)


async def test_a_time_is_told_in_the_time_zone_of_the_broker():
    local = time.localtime(1_700_000_000)
    assert time_text(1_700_000_000_685) == time.strftime("%Y-%m-%d#%H:%M:%S:685", local)
    assert time_text(-1).endswith(":59:999")


# Cleaning


@pytest.fixture
def deleted():
    """The topics whose queues were deleted."""
    return []


@pytest.fixture
def clean(store, topics, deleted):
    def delete_queues(topic):
        deleted.append(topic)
        store.queues.delete_topic(topic)

    table = CleaningProcessors(store, topics, delete_queues).table()
    return lambda code: table[code](PEER, Command.request(code))


async def test_queues_whose_messages_are_all_gone_are_deleted(stores, store, clean):
    put(store, b"x" * 3000, topic="old")
    put(store, b"x" * 3000, topic="SCHEDULE_TOPIC_XXXX")
    put(store, b"x" * 3000, topic="both")
    put(store, b"x" * 3000, topic="both")
    store.queue("empty", 0)
    stores.drop_oldest_files(store)
    response = await clean(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    assert response.code == 0
    ends = {queue.topic: queue.max_offset for queue in store.queues}
    assert ends == {"old": 0, "SCHEDULE_TOPIC_XXXX": 1, "both": 2, "empty": 0, TIMER_TOPIC: 0}
    assert not (store.root / "consumequeue" / "old" / "0").exists()
    # and it can be used again
    assert put(store, b"new", topic="old")[0].queue_offset == 0


async def test_queues_without_a_topic_are_deleted_unless_they_hold_messages(store, topics, clean, deleted):
    make_topic(topics, "T")
    kept = ["T", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%LMQ%x", "lost"]
    for topic in kept:
        put(store, b"x", topic=topic)
    for queue_id in range(2):
        store.queue("unused", queue_id)
    response = await clean(RequestCode.CLEAN_UNUSED_TOPIC)
    assert response.code == 0
    assert deleted == ["unused"]
    assert {queue.topic for queue in store.queues} == {*kept, TIMER_TOPIC}


async def test_expired_files_are_deleted_at_any_hour(stores, store, clean):
    put(store, *[b"x" * 3000] * 3)
    stores.sync_all(store)
    stores.clock.advance(73 * 3600 + time.time() - stores.clock())  # files are as old as their last change
    hour = time.localtime(stores.clock()).tm_hour
    store.config = StoreConfig(root=store.config.root, delete_when=f"{(hour + 12) % 24:02d}")
    assert store.clean() == []
    assert clean(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    assert store.log.start > 0
