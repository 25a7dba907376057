"""`rocketmq_log` and Spark's filter push-down, which is off unless somebody switches it on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.unit.spark.log.scans import T0, fill, message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
COUNT = 400
TOPICS = ("orders", "payments", "refunds", "refunds")
AT = datetime.fromtimestamp((T0 + 100) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pushdown") / "store"
    fill(root, [message(number, TOPICS[number % 4], queue_id=number % 3) for number in range(COUNT)])
    return root


@pytest.fixture(params=["false", "true"])
def frame(request: pytest.FixtureRequest, spark: SparkSession, store: Path) -> Iterator[DataFrame]:
    spark.conf.set(PUSH_DOWN, request.param)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark.read.format("rocketmq_log").option("brokerName", "broker-a").load(str(store))
    spark.conf.unset(PUSH_DOWN)


@pytest.mark.scenario("spark 2")
@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        ("topic = 'orders'", [n for n in range(COUNT) if n % 4 == 0]),
        ("topic IN ('orders', 'payments') AND queueId = 2", [n for n in range(COUNT) if n % 4 < 2 and n % 3 == 2]),
        ("tags = 'A' AND topic = 'refunds'", [n for n in range(COUNT) if n % 4 == 2]),
        ("topic = 'orders' AND queueOffset BETWEEN 2 AND 3 AND queueId = 0", [24, 36]),
        ("physicalOffset = 0", [0]),
        ("keys = 'k37'", [37]),
        (f"msgId = '{38:032X}'", [38]),
        ("keys IN ('k39', 'k40', 'none') AND topic = 'orders'", [40]),
        (f"storeTimestamp < TIMESTAMP '{AT}' AND topic = 'orders'", list(range(0, 100, 4))),
        ("brokerName = 'broker-b'", []),
        ("topic = 'SCHEDULE_TOPIC_XXXX'", []),
    ],
)
def test_conditions_choose_the_same_rows_with_and_without_push_down(frame, condition, numbers):
    found = sorted(int(bytes(row.body).split()[1]) for row in frame.where(condition).select("body").collect())
    assert found == numbers


def test_what_the_scan_does_itself_is_not_in_the_plan(frame, spark):
    chosen = frame.where("topic = 'orders' AND queueOffset > 3 AND tags = 'A'")
    plan = chosen._jdf.queryExecution().executedPlan().toString()
    assert ("Filter (" in plan) is (spark.conf.get(PUSH_DOWN) == "false")
    by_key = frame.where("keys = 'k1'")._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" in by_key
