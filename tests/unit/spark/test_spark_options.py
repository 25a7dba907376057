"""Options: names, values, what does not go together, and what nobody may see."""

from __future__ import annotations

import json
import pickle
from datetime import datetime

import pytest

from pyromq.client.identity import Credentials
from pyromq.errors import ConfigError
from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark.options import (
    LogOptions,
    SinkOptions,
    SourceOptions,
    from_table,
    parse,
    refuse_secrets_in_catalog,
    shown,
    to_metadata,
)

BOTH = (SourceOptions, SinkOptions)
Q0 = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)


def source(**given: str) -> SourceOptions:
    return parse(SourceOptions, {"namesrv": "ns:9876", "subscribe": "T", **given}, others=(SinkOptions,))


def refused(problem: str, kind=SourceOptions, **given: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse(kind, {"namesrv": "ns:9876", "subscribe": "T", **given}, others=BOTH)


def test_defaults_are_those_that_are_documented():
    options = source()
    assert options.subscribe == ("T",)
    assert options.starting_offsets is None
    assert (options.group_fallback, options.fail_on_data_loss, options.max_trigger_delay) == ("earliest", True, 900)
    assert (options.partition_bytes, options.parallelism, options.pull_batch_size) == (64 << 20, 8, 1024)
    assert (options.offsets_refresh_ms, options.offsets_wait_ms, options.broker_gone_timeout) == (200, 500, 600)
    sink = parse(SinkOptions, {"namesrv": "ns:9876"})
    assert (sink.batch_bytes, sink.in_flight, sink.retries, sink.compress_over) == (256 << 10, 8, 3, 4096)
    assert (sink.guarantee, sink.on_bad_row, sink.wait_store) == ("at-least-once", "fail", True)
    assert parse(LogOptions, {"path": "/store"}).partition_bytes == 128 << 20


def test_keys_have_any_case_and_their_old_names():
    given = {"NAMESERVER": "ns:9876", "topic": "A,B", "PullBatchSize": "7", "group": "g", "subExpression": "x || y"}
    options = parse(SourceOptions, given)
    assert (options.namesrv, options.subscribe, options.pull_batch_size) == ("ns:9876", ("A", "B"), 7)
    assert (options.consumer_group, options.tags) == ("g", "x || y")


def test_sizes_and_times_have_units():
    options = source(partitionBytes="32m", maxTriggerDelay="90s", brokerGoneTimeout="1h", maxBytesPerTrigger="1g")
    assert (options.partition_bytes, options.max_bytes_per_trigger) == (32 << 20, 1 << 30)
    assert (options.max_trigger_delay, options.broker_gone_timeout) == (90, 3600)
    refused(
        "option partitionBytes must be a number of bytes such as 65536, 64k or 64m, not 'big'", partitionBytes="big"
    )
    refused("option maxTriggerDelay must be a time such as 500ms, 30s or 15m, not '15'", maxTriggerDelay="15")


def test_an_unknown_key_is_refused_with_the_nearest_one():
    refused(r"unknown option startingOffset; did you mean startingOffsets\?", startingOffset="earliest")
    refused(r"unknown option pullbatchsiz; did you mean pullBatchSize\?", pullbatchsiz="1")
    refused("unknown option quux", quux="1")


def test_spark_may_add_keys_of_its_own_and_a_view_those_of_the_other_side():
    source(path="/x", provider="rocketmq", owner="me", checkpointLocation="/c", **{"option.namesrv": "ns"})
    source(asyncProgressTrackingEnabled="true", batchBytes="1k", onBadRow="skip")
    assert parse(SinkOptions, {"namesrv": "ns", "subscribe": "T", "columns": "body"}, others=BOTH).topic == "T"


def test_one_way_to_name_topics_is_needed_and_only_one():
    with pytest.raises(ConfigError, match="not none of them"):
        parse(SourceOptions, {"namesrv": "ns:9876"})
    refused("not subscribe and subscribePattern", subscribePattern="T.*")
    refused("subscribePattern must be a regular expression", subscribePattern="(")
    assigned = parse(SourceOptions, {"namesrv": "ns", "assign": '{"T":{"broker-a":[0]}}'})
    assert assigned.assign == frozenset({Q0})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"startingOffsets": "soon"}, "startingOffsets must be earliest, latest, group, lake or JSON, not 'soon'"),
        ({"startingOffsets": '{"T":{"broker-a":{"0":-3}}}'}, "startingOffsets: queue 0 of T on broker-a has -3"),
        ({"startingOffsets": "group"}, "needs consumerGroup"),
        ({"startingOffsets": "lake"}, "needs lake.root"),
        ({"endingOffsets": '{"T":{"broker-a":{"0":-2}}}'}, "ends at -2, before its first message"),
        ({"endingOffsets": "earliest"}, "endingOffsets must be latest or JSON"),
        ({"tags": "A", "sql": "a > 1"}, "either tags or sql"),
        ({"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01"}, "endingTimestamp .* is before starting"),
        (
            {"startingOffsets": '{"T":{"b":{"0":9}}}', "endingOffsets": '{"T":{"b":{"0":5}}}'},
            "queue 0 of T on b ends at 5, before it starts at 9",
        ),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss must be true or false"),
        ({"parallelism": "0"}, "a whole number, at least 1"),
        ({"columns": "body,tgas"}, "no column 'tgas'; did you mean tags"),
        ({"credentials": "vault:x"}, "credentials must be env:PREFIX or file:PATH"),
        ({"accessKey": "a"}, "belong together"),
        ({"nameServer": "other:9876", "rocketmq.namesrv.addr": "third"}, "are the same; set only one|unknown"),
    ],
)
def test_values_that_make_no_sense_are_refused(given, problem):
    if "nameServer" in given:
        with pytest.raises(ConfigError, match=problem):
            parse(SourceOptions, {"subscribe": "T", **given})
    else:
        refused(problem, **given)


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("1769846400000", 1_769_846_400_000),
        ("2026-01-31T08:00:00Z", 1_769_846_400_000),
        ("2026-01-31T09:00:00.250+01:00", 1_769_846_400_250),
        ("2026-01-31", round(datetime(2026, 1, 31).astimezone().timestamp() * 1000)),
        ("0", 0),
    ],
)
def test_times_are_written_as_people_do_or_in_milliseconds(written, ms):
    assert source(startingTimestamp=written).starting_timestamp == ms
    assert parse(LogOptions, {"path": "/x", "endingTimestamp": written}).ending_timestamp == ms
    by_queue = json.dumps({"T": {"broker-a": {"0": written}}})
    assert source(startingOffsetsByTimestamp=by_queue).starting_offsets_by_timestamp == {Q0: ms}


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("1769846400", "in milliseconds, and this looks like seconds; 1769846400000 is 2026-01-31T08:00:00.000Z"),
        ("1769846400000000", "looks like microseconds; 1769846400000 is 2026"),
        ("20260131", "dates are written as 2026-01-31"),
        ("yesterday", "must be a time such as 2026-01-31, 2026-01-31T08:00:00Z or 1769846400000"),
        ("1969-01-01", "a time after 1970"),
    ],
)
def test_times_in_another_unit_are_refused_with_a_hint(written, hint):
    refused(hint, startingTimestamp=written)
    refused(hint, endingOffsetsByTimestamp=json.dumps({"T": {"broker-a": {"0": written}}}))


def test_a_sink_writes_to_one_topic_and_knows_what_to_do_with_bad_rows():
    assert parse(SinkOptions, {"namesrv": "ns", "topic": "T", "onBadRow": "DLQ:bad"}).on_bad_row == "dlq:bad"
    refused("a write goes to one topic", SinkOptions, subscribe="A,B")
    refused("onBadRow must be fail, skip or dlq:<topic>", SinkOptions, onBadRow="dlq")


def test_a_batch_does_not_start_at_the_end_and_a_stream_has_none():
    with pytest.raises(ConfigError, match="for streams"):
        source(startingOffsets="latest").check_batch()
    for ending in ({"endingTimestamp": "1"}, {"endingOffsets": "latest"}):
        with pytest.raises(ConfigError, match=f"{next(iter(ending))} is for batch reads: a stream has no end"):
            source(**ending).check_stream()
    source(startingOffsets="latest").check_stream()
    source(endingTimestamp="1").check_batch()


@pytest.mark.scenario("spark 22")
def test_secrets_are_in_no_repr_no_error_and_no_metadata():
    given = {"namesrv": "ns:9876", "subscribe": "T", "accessKey": "AKAK", "secretKey": "s3cr3t", "securityToken": "t0k"}
    options = parse(SourceOptions, given)
    secrets = ("AKAK", "s3cr3t", "t0k")
    with pytest.raises(ConfigError) as caught:
        parse(SourceOptions, {**given, "secretKey": " "})
    texts = [repr(options), str(caught.value), json.dumps(to_metadata(BOTH, given)), repr(shown(BOTH, given))]
    assert not any(secret in text for secret in secrets for text in texts)
    assert shown(BOTH, given)["secretKey"] == "*****"
    assert options.resolve_credentials() == Credentials("AKAK", "s3cr3t", "t0k")


@pytest.mark.scenario("spark 22")
def test_literal_keys_are_refused_in_create_table():
    given = {"namesrv": "ns", "secretkey": "s3cr3t", "option.secretkey": "s3cr3t", "provider": "rocketmq"}
    with pytest.raises(ConfigError, match="secretKey would be stored in the catalog; use credentials=env:"):
        refuse_secrets_in_catalog(BOTH, given)
    refuse_secrets_in_catalog(BOTH, {"namesrv": "ns", "secretKey": "s3cr3t"})
    refuse_secrets_in_catalog(BOTH, {"namesrv": "ns", "credentials": "env:MQ", "provider": "rocketmq"})


def test_credentials_are_looked_up_where_they_are_used(tmp_path):
    options = source(credentials="env:MQ")
    assert options.resolve_credentials({"MQ_ACCESS_KEY": "a", "MQ_SECRET_KEY": "s"}) == Credentials("a", "s")
    with pytest.raises(ConfigError, match="env:MQ has no access key"):
        options.resolve_credentials({})
    path = tmp_path / "keys.yml"
    path.write_text("accessKey: a\nsecretKey: s\n")
    assert source(credentials=f"file:{path}").resolve_credentials() == Credentials("a", "s")
    with pytest.raises(ConfigError, match="cannot be read"):
        source(credentials="file:/nowhere/x").resolve_credentials()


def test_a_table_keeps_its_options_in_metadata_and_given_ones_win():
    metadata = to_metadata((SourceOptions,), {"NAMESRV": "ns:9876", "topic": "T", "provider": "rocketmq"})
    given = from_table(SourceOptions, {"StartingOffsets": "earliest", "topic": "U"}, metadata)
    options = parse(SourceOptions, given)
    assert (options.namesrv, options.subscribe, options.starting_offsets) == ("ns:9876", ("U",), "earliest")
    assert from_table(SourceOptions, {"a": "b"}, {}) == {"a": "b"}


def test_options_travel_to_executors():
    options = source(startingOffsets='{"T":{"broker-a":{"0":5}}}')
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.starting_offsets == {Q0: 5}


def test_the_path_of_a_store_may_be_a_url_of_a_catalog():
    assert parse(LogOptions, {"path": "file:/data/my%20store"}).path == "/data/my store"
    assert parse(LogOptions, {"path": "file:///data/store"}).path == "/data/store"
    with pytest.raises(ConfigError, match="a folder that executors can open"):
        parse(LogOptions, {"path": "s3://bucket/store"})


def test_every_option_says_what_it_is_for():
    from pyromq.spark.option_values import declared

    for kind in (*BOTH, LogOptions):
        for _, info in declared(kind):
            assert info.doc.endswith((".", ")")), info.key
