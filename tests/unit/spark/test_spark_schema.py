"""Schemas: what Spark and Arrow call the columns, and what is refused before a query runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from pyromq.errors import ConfigError
from pyromq.spark.schema import (
    ARROW_SCHEMA,
    COLUMNS,
    arrow_schema,
    metadata_of,
    parse_columns,
    spark_schema,
    with_metadata,
)

DDL = (
    "topic string, brokerName string, queueId int, queueOffset bigint, physicalOffset bigint, msgId string, "
    "offsetMsgId string, keys string, tags string, properties map<string,string>, body binary, flag int, sysFlag int, "
    "bodyCRC int, bornTimestamp timestamp, storeTimestamp timestamp, bornHost string, storeHost string, "
    "reconsumeTimes int, preparedTransactionOffset bigint, storeSize int"
)


def struct(*fields: Any) -> spark.StructType:
    return spark.StructType([spark.StructField(*field) for field in fields])


def test_the_row_is_the_one_that_is_documented():
    assert ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in spark_schema()) == DDL
    assert all(field.nullable for field in spark_schema())


def test_our_arrow_types_are_those_that_spark_expects():
    assert to_arrow_schema(spark_schema(), timezone="UTC").equals(ARROW_SCHEMA)
    assert arrow_schema(spark_schema()).equals(ARROW_SCHEMA)


@pytest.mark.scenario("spark 6")
def test_a_user_schema_may_name_any_columns_in_any_order_and_case():
    wanted = struct(("BODY", spark.BinaryType(), False), ("queueid", spark.IntegerType()))
    found = arrow_schema(wanted)
    assert found.equals(pa.schema([pa.field("BODY", pa.binary(), nullable=False), pa.field("queueid", pa.int32())]))
    assert to_arrow_schema(wanted, timezone="UTC").equals(found)


def test_a_map_whose_values_are_never_null_is_what_spark_expects_of_it():
    wanted = struct(("properties", spark.MapType(spark.StringType(), spark.StringType(), False)))
    assert to_arrow_schema(wanted, timezone="UTC").equals(arrow_schema(wanted))


@pytest.mark.scenario("spark 6")
@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (("queueID_", spark.IntegerType()), r"no column 'queueID_'; did you mean queueId\?"),
        (("zzz", spark.IntegerType()), "no column 'zzz'; available: topic, brokerName"),
        (("queueId", spark.LongType()), "column queueId is int, not bigint; cast it in the query"),
        (("body", spark.StringType()), "column body is binary, not string"),
        (("bornTimestamp", spark.TimestampNTZType()), "is timestamp, not timestamp_ntz"),
        (("properties", spark.MapType(spark.StringType(), spark.BinaryType())), r"is map<string,string>, not map<str"),
    ],
)
def test_a_wrong_name_or_type_is_refused_with_advice(field, problem):
    with pytest.raises(ConfigError, match=problem):
        arrow_schema(struct(field))


def test_columns_are_a_comma_list_of_names():
    assert parse_columns("body, TAGS,queueId") == ("body", "tags", "queueId")
    for text, problem in (
        ("body,,tags", "separated by commas"),
        ("body, Body", "appears twice"),
        ("bdy", "did you mean body"),
    ):
        with pytest.raises(ConfigError, match=problem):
            parse_columns(text)


def test_metadata_travels_with_the_first_field():
    schema = with_metadata(spark_schema(("body", "tags")), {"key": "value"})
    assert metadata_of(schema) == {"key": "value"}
    assert schema.names == ["body", "tags"]
    assert metadata_of(spark_schema(COLUMNS)) == {}
