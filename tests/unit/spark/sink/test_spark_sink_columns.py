"""The schema of a write: what is taken, what is passed over, and what is refused before anything is sent."""

from __future__ import annotations

import pytest
from pyspark.sql import types as spark
from tests.unit.spark.sink.sink_rows import sink_options

from pyromq.errors import ConfigError
from pyromq.spark.schema import spark_schema
from pyromq.spark.sink.columns import sink_columns

TYPES = {
    "string": spark.StringType(),
    "int": spark.IntegerType(),
    "double": spark.DoubleType(),
    "timestamp": spark.TimestampType(),
    "timestamp_ntz": spark.TimestampNTZType(),
    "array<string>": spark.ArrayType(spark.StringType()),
    "array<int>": spark.ArrayType(spark.IntegerType()),
    "map<string,int>": spark.MapType(spark.StringType(), spark.IntegerType()),
}


def schema(text: str) -> spark.StructType:
    """Of `name type, …`; Spark's own parser would need a JVM."""
    fields = [field.split(" ") for field in text.split(", ")]
    return spark.StructType([spark.StructField(name, TYPES[kind]) for name, kind in fields])


def columns(text: str, **options: str):
    return sink_columns(schema(text), sink_options(**options))


def test_columns_are_taken_by_name_in_any_case_and_order():
    found = columns("tags string, BODY string, ShardingKey string, keys array<string>")
    assert found.places == {"tags": 0, "body": 1, "shardingKey": 2, "keys": 3}
    assert found.stored == ()


def test_rows_of_a_read_are_taken_and_what_brokers_set_is_passed_over():
    found = sink_columns(spark_schema(), sink_options())
    assert set(found.places) == {"topic", "keys", "tags", "properties", "body", "flag"}
    assert len(found.stored) == 5
    kept = sink_columns(spark_schema(), sink_options(keepQueueId="true"))
    assert {"queueId", "brokerName"} <= set(kept.places)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("tags string", "column body is missing; the columns are tags"),
        ("body int", "column body must be binary or string, not int"),
        ("body string, keys array<int>", "column keys must be string or array<string>, not array<int>"),
        ("body string, properties map<string,int>", "column properties must be map<string,string>"),
        ("body string, deliverTimestamp timestamp_ntz", "column deliverTimestamp must be timestamp, or bigint"),
        ("body string, tag string", "column tag is not a message column; did you mean tags?"),
        ("body string, price double", "column price is not a message column; available: body"),
        ("body string, Body string", "column body appears twice"),
    ],
)
def test_what_is_wrong_with_a_column_is_said(fields, said):
    with pytest.raises(ConfigError) as caught:
        columns(fields)
    assert said in str(caught.value)


def test_other_columns_are_passed_over_if_that_is_wished():
    assert columns("body string, price double", ignoreExtraColumns="true").places == {"body": 0}


def test_a_topic_is_needed_as_an_option_or_as_a_column():
    options = sink_options()
    without = type(options)(namesrv="ns:9876")
    with pytest.raises(ConfigError, match="set option topic, or add a column topic"):
        sink_columns(schema("body string"), without)
    assert sink_columns(schema("body string, topic string"), without).places["topic"] == 1


@pytest.mark.parametrize("column", ["shardingKey string", "delayLevel int", "deliverTimestamp timestamp"])
def test_effectively_once_refuses_what_it_could_not_find_again(column):
    with pytest.raises(ConfigError, match="guarantee=effectively-once"):
        columns(f"body string, {column}", guarantee="effectively-once", jobId="j")


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(ConfigError, match="needs jobId in a batch"):
        sink_options(guarantee="effectively-once").check_batch()
    with pytest.raises(ConfigError, match="jobId is for batch writes"):
        sink_options(jobId="j").check_stream()
    with pytest.raises(ConfigError, match="cannot be combined with keepQueueId=true"):
        sink_options(guarantee="effectively-once", keepQueueId="true")
    with pytest.raises(ConfigError, match="needs a column queueId"):
        columns("body string", keepQueueId="true")
    with pytest.raises(ConfigError, match="batchBytes cannot exceed maxMessageBytes"):
        sink_options(batchBytes="8m")
    with pytest.raises(ConfigError, match="jobId must be printable"):
        sink_options(jobId="a\x01b")
    with pytest.raises(ConfigError, match="a write goes to one topic"):
        sink_options(topic="a,b")
