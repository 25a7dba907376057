from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pyromq.client.consumer.push_consumer import Consumer
from pyromq.client.consumer.send_back import UNLIMITED
from pyromq.errors import ConfigError, InvalidMessage


@pytest.mark.parametrize(
    "settings",
    [
        {"max_concurrency": 0},
        {"max_concurrency": 1001},
        {"batch": 0},
        {"batch": 1025},
        {"pull_batch": 1025},
        {"max_cached": 65536},
        {"max_cached_mib": 0},
        {"max_cached_mib": 1025},
        {"max_span": 0},
        {"max_retries": -1},
        {"consume_timeout": 0},
        {"suspend": -1},
        {"drain": -0.1},
        {"start_at": datetime(2024, 1, 1)},  # noqa: DTZ001 - that is what is wrong with it
        {"group": "DEFAULT_CONSUMER"},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ConfigError):
        Consumer(settings.pop("group", "g"), namesrv="localhost:9876", **settings)


def test_names_that_no_broker_takes_are_refused():
    with pytest.raises(InvalidMessage):
        Consumer("a group", namesrv="localhost:9876")
    with pytest.raises(InvalidMessage):
        Consumer("g", {"a topic": "*"}, namesrv="localhost:9876")


def test_what_cannot_be_called_is_refused():
    consumer = Consumer("g", namesrv="localhost:9876")
    with pytest.raises(TypeError):
        consumer.subscribe("t", "*", "handler")  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(TypeError):
        consumer.subscribe("t", "*", where="a > 1")  # type: ignore[arg-type]  # that is the mistake


def test_a_time_with_a_zone_is_a_start():
    Consumer("g", namesrv="localhost:9876", start_at=datetime(2024, 1, 1, tzinfo=UTC))


def test_retries_are_sixteen_and_ordered_without_end():
    assert Consumer("g", namesrv="localhost:9876")._settings.retries == 16
    assert Consumer("g", namesrv="localhost:9876", ordered=True)._settings.retries == UNLIMITED
    assert Consumer("g", namesrv="localhost:9876", max_retries=0)._settings.retries == 0
