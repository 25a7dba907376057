"""Official clients whose group fails over, by plan and by accident (docs/spec/controller.md 8).

Brokers and controller are ours. Java's clients ask for routes every second, as users of RocketMQ 5 have them do who run
controllers; Go's ask every 30 seconds, and nothing changes that.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Self

import pytest
from tests.interop.drivers import Driver
from tests.interop.failover_group import NAME, SOON, TOPIC, Group, group_under
from tests.interop.peers import OURS
from tests.interop.process import PeerFailed, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

PEERS = ("java-5.5.0", "java-4.9.8", "go-2.1.2")
POLL = 1000
# Clients that do not learn of a fail-over ask for routes every 30 s.
HEALED = 90.0


@pytest.fixture
def group(java_packages: None, tmp_path: Path) -> Iterator[Group]:
    """Two brokers, the first of them master."""
    with group_under(OURS, tmp_path / "group") as group:
        group.add(OURS)
        group.create_topic()
        group.add(OURS)
        group.wait_for_routes(1, 2)
        yield group


class Sending:
    """A producer that sends one message after the other in a thread while this is entered."""

    def __init__(self, client: Driver) -> None:
        self._client = client
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[str] = []
        self.failed: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._ends.is_set():
                return
            body = f"message-{number}."
            try:
                [sent] = self._client.send(topic=TOPIC, body=body)
                if sent.status != "SEND_OK":
                    raise PeerFailed(f"{body}: {sent.status}")
            except PeerFailed as exc:
                self.failed.append(str(exc))
            else:
                self.acknowledged.append(body)

    def wait_for_more(self, count: int, seconds: float = SOON) -> None:
        """Wait until so many more messages are acknowledged."""
        goal = len(self.acknowledged) + count
        try:
            wait_until(lambda: len(self.acknowledged) >= goal, seconds, f"{count} more messages are acknowledged")
        except PeerFailed as exc:
            exc.add_note(f"failed: {self.failed[-3:]}")
            raise


@pytest.mark.parametrize("peer", PEERS)
def test_no_send_fails_when_a_master_is_replaced_by_plan(group: Group, tmp_path: Path, peer: str) -> None:
    with (
        Driver(peer, tmp_path / "sends", group.namesrv.address, poll=POLL) as producing,
        Driver(peer, tmp_path / "reads", group.namesrv.address, poll=POLL) as consuming,
    ):
        consuming.do("push", name="one", group=f"g-{NAME}", topic=TOPIC)
        with Sending(producing) as sending:
            sending.wait_for_more(20)
            for master, slave in ((2, 1), (1, 2)):
                group.elect(master)
                sending.wait_for_more(20)
                group.wait_for("roles are swapped", master=master, set=[1, 2])
                group.wait_for_routes(master, slave)
                sending.wait_for_more(20)
        assert sending.failed == []
        consuming.wait_for_bodies("one", set(sending.acknowledged), HEALED)
        group.acknowledged |= {body.encode() for body in sending.acknowledged}
        group.wait_until_equal()


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.scenario("controller 5")
def test_clients_go_on_when_a_master_dies(group: Group, tmp_path: Path, peer: str) -> None:
    with (
        Driver(peer, tmp_path / "sends", group.namesrv.address, poll=POLL) as producing,
        Driver(peer, tmp_path / "reads", group.namesrv.address, poll=POLL) as consuming,
    ):
        consuming.do("push", name="one", group=f"g-{NAME}", topic=TOPIC)
        with Sending(producing) as sending:
            sending.wait_for_more(20)
            group.replicas[1].process.kill()
            group.wait_for("the other takes over", master=2, set=[2])
            sending.wait_for_more(20)
            consuming.wait_for_bodies("one", set(sending.acknowledged), HEALED)
            group.replicas[1].start()
            group.wait_for("the old master follows", master=2, set=[1, 2])
            sending.wait_for_more(20)
        consuming.wait_for_bodies("one", set(sending.acknowledged), HEALED)
        group.acknowledged |= {body.encode() for body in sending.acknowledged}
        group.wait_until_equal()
