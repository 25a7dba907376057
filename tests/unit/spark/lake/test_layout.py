"""Names, columns and folders of the lake's tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from tests.unit.spark.lake.lake_rows import queue

from pyromq.errors import ConfigError
from pyromq.spark.lake import layout
from pyromq.spark.schema import COLUMNS


def test_a_table_is_named_by_its_topic_or_an_alias() -> None:
    assert layout.table_name("orders") == "orders"
    assert layout.table_name("pay-in.2|x") == "pay_in_2_x"
    assert layout.table_name("%DLQ%billing") == "_DLQ_billing"
    assert layout.table_name("pay-in", "payments") == "payments"
    for bad in ("", "a/b", "..", "a b", "x" * 201):
        with pytest.raises(ConfigError, match="cannot name a table"):
            layout.table_name("pay-in", bad)


def test_a_table_has_the_columns_of_a_message_and_its_day() -> None:
    assert layout.table_schema().names == [*COLUMNS, "dt"]
    more = pa.schema([("total", pa.float64()), ("body", pa.binary())])
    assert layout.table_schema(more, hourly=True).names == [*COLUMNS, "total", "dt", "hour"]
    with pytest.raises(ConfigError, match="column dt is the table's own"):
        layout.table_schema(pa.schema([("dt", pa.string())]))


def test_days_are_those_of_utc() -> None:
    early = datetime(2026, 2, 1, 1, tzinfo=timezone(timedelta(hours=8)))
    assert layout.partition_of(early) == {"dt": "2026-01-31"}
    assert layout.partition_of(early, hourly=True) == {"dt": "2026-01-31", "hour": "17"}
    assert layout.folder({"hour": "17", "dt": "2026-01-31"}) == "dt=2026-01-31/hour=17"
    days = (datetime(2026, 1, 31, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
    assert layout.partition_from_days(days, 3) == {"dt": "2026-01-31", "hour": "3"}
    assert layout.partition_from_days(10**9) == {"dt": "9999-12-31"}


def test_the_position_of_a_queue_has_a_name_that_says_all() -> None:
    assert layout.position_id("main", queue(3)) == "rocketmq/main/orders/broker-a/3"
    odd = queue(0, "a/b c", "%RETRY%g")
    assert layout.parse_position(layout.position_id("x/y", odd)) == ("x/y", odd)
    assert layout.parse_gap(layout.gap_id("main", odd, 77)) == (("main", odd), 77)
    for other in ("rocketmq", "rocketmq/a/b", "rocketmq/a/b/c/d", "delta-streaming", layout.gap_id("main", odd, 77)):
        assert layout.parse_position(other) is None


def test_columns_are_compared_without_their_case() -> None:
    table = pa.schema([("Total", pa.float64()), ("name", pa.string())])
    wanted = pa.schema([("total", pa.int64()), ("name", pa.string()), ("new", pa.int32())])
    assert layout.missing_columns(table, wanted) == [wanted.field("new")]
    assert layout.changed_columns(table, wanted) == [(table.field("Total"), wanted.field("total"))]
