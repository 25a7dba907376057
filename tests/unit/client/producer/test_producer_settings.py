"""The settings of producers, declared once."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest

from pyromq.client import Producer, TransactionProducer
from pyromq.client.producer.producer_settings import ProducerSettings
from pyromq.errors import ConfigError


@pytest.mark.parametrize("producer", [Producer, TransactionProducer])
def test_constructors_take_every_setting_with_its_default(producer):
    parameters = inspect.signature(producer).parameters
    declared = {field.name: field.default for field in fields(ProducerSettings)}
    assert {name: parameters[name].default for name in declared} == declared
    own = {"group", "client", "namesrv", "check", "max_checks"}
    assert parameters.keys() - declared.keys() <= own


@pytest.mark.parametrize("producer", [Producer, TransactionProducer])
def test_what_is_given_to_a_constructor_is_what_counts(producer):
    given: dict[str, Any] = {
        "timeout": 1.5,
        "retries": 7,
        "retry_codes": [1],
        "window": 3,
        "linger": 0.25,
        "default_queues": 9,
    }
    settings = producer("g", namesrv="localhost:9876", **given)._settings
    assert settings == ProducerSettings(**(given | {"retry_codes": frozenset({1})}))


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout": 0},
        {"attempt_timeout": 0},
        {"retries": -1},
        {"compression": "rar"},
        {"max_size": 0},
        {"default_queues": 0},
        {"window": 0},
        {"window_bytes": 0},
        {"linger": -1},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    for producer in (Producer, TransactionProducer):
        with pytest.raises(ConfigError):
            producer("g", namesrv="localhost:9876", **settings)
