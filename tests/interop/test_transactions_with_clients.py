"""Transactions of the official producer with our broker: decided at once, by a check, and by another of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.drivers import Driver
from tests.interop.process import wait_until
from tests.interop.pyromq_up import PyroMQ

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

JAVA = ("java-5.5.0", "java-4.9.8")
SOON = 15.0
OFTEN: dict[str, Any] = {"transactionCheckInterval": 300, "transactionTimeOut": 500}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyroMQ]:
    with PyroMQ(tmp_path_factory.mktemp("up"), **OFTEN) as running:
        yield running


@pytest.fixture(params=JAVA)
def peer(
    request: pytest.FixtureRequest, up: PyroMQ, java_packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    with Driver(request.param, tmp_path_factory.mktemp("peer"), up.namesrv) as driver:
        yield driver


def transaction(peer: Driver, topic: str, body: str, state: str, check: str = "UNKNOW") -> None:
    (sent,) = peer.send("transaction", group=f"p-{topic}", topic=topic, body=body, state=state, check=check)
    assert sent.status == "SEND_OK"


def test_the_official_producer_commits_rolls_back_and_is_asked(peer: Driver, up: PyroMQ) -> None:
    topic = f"paid-{peer.peer.replace('.', '-')}"
    up.create_topic(topic)
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    transaction(peer, topic, "committed", "COMMIT_MESSAGE")
    transaction(peer, topic, "rolled-back", "ROLLBACK_MESSAGE")
    peer.wait_for_bodies(topic, {"committed"}, SOON)
    transaction(peer, topic, "undecided", "UNKNOW", check="UNKNOW")
    wait_until(lambda: len(peer.said("checked", f"p-{topic}")) >= 2, SOON, "it is asked twice")
    transaction(peer, topic, "another", "UNKNOW", check="COMMIT_MESSAGE")
    peer.wait_for_bodies(topic, {"undecided", "another"}, SOON)
    transaction(peer, topic, "last", "COMMIT_MESSAGE")
    peer.wait_for_bodies(topic, {"last"}, SOON)
    assert sorted(peer.bodies(topic)) == ["another", "committed", "last", "undecided"]
    peer.do("leave", name=topic)


def test_another_producer_is_asked_when_the_first_was_killed_and_the_broker_too(
    peer: Driver, up: PyroMQ, tmp_path: Path
) -> None:
    topic = f"died-{peer.peer.replace('.', '-')}"
    up.create_topic(topic)
    with Driver(peer.peer, tmp_path / "first", up.namesrv) as first:
        transaction(first, topic, "orphan", "UNKNOW")
    up.restart(kill=True)
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic)
    transaction(peer, topic, "own", "COMMIT_MESSAGE", check="COMMIT_MESSAGE")
    peer.wait_for_bodies(topic, {"orphan", "own"}, SOON)
    assert sorted(peer.bodies(topic)) == ["orphan", "own"]
    peer.do("leave", name=topic)
