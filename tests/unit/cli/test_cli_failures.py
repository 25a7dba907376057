"""What a command ends with, and what it says about it."""

from __future__ import annotations

import pytest

from pyromq.cli.failures import CommandFailed, Exit, exit_code, nearest, next_step, not_found
from pyromq.errors import (
    ConfigError,
    ConnectFailed,
    ConsumerNotOnline,
    InvalidMessage,
    NoPermission,
    PartialFailure,
    RequestCodeNotSupported,
    RequestTimeout,
    RouteNotFound,
    ServerError,
    TopicNotFound,
)

DOWN = ConnectFailed("b:1", "refused")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerError("disk", "b:1"), 1),
        (PartialFailure("x", ["a"], [("b", DOWN)]), 1),
        (PartialFailure("x", [], [("a", DOWN), ("b", DOWN)]), 5),
        (PartialFailure("x", [], [("a", DOWN), ("b", ServerError())]), 1),
        (ConfigError("no"), 2),
        (InvalidMessage("no"), 2),
        (TopicNotFound("t"), 3),
        (ConsumerNotOnline("g"), 3),
        (RouteNotFound("b"), 3),
        (NoPermission("no"), 4),
        (ServerError("org.apache.rocketmq.acl.common.AclException: no"), 4),
        (DOWN, 5),
        (RequestTimeout("a:1", 11, 3), 5),
        (TimeoutError(), 5),
        (CommandFailed("lag", Exit.THRESHOLD), 6),
    ],
)
def test_every_kind_of_failure_has_its_exit_code(error, code):
    assert exit_code(error) == code


def test_the_next_step_is_said_where_there_is_one():
    assert "pyromq up" in next_step(DOWN)
    assert "PYROMQ_ACCESS_KEY" in next_step(NoPermission("no"))
    assert "does not support" in next_step(RequestCodeNotSupported("no"))
    assert next_step(ServerError("no")) == ""


def test_the_nearest_names_are_the_best_first_in_any_case():
    known = ["orders", "ORDERS_EU", "invoices", "order-lines"]
    assert nearest("Order", known)[0] == "orders"
    assert nearest("nvoices", known) == ["invoices"]
    assert nearest("eu", ["ORDERS_EU"]) == []
    assert nearest("_eu", ["ORDERS_EU"]) == ["ORDERS_EU"]
    assert nearest("zzz", known) == []


def test_a_name_that_is_not_there_is_told_with_what_to_do():
    near = not_found("topic", "order", ["orders"], "a:9876")
    assert str(near) == "there is no topic order at a:9876; did you mean orders?"
    assert near.exit_code is Exit.NOT_FOUND
    assert str(not_found("group", "x", [], "a:9876")).endswith("`pyromq group list` lists them")
