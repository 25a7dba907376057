"""Groups that fail over with Apache 5.5.0 in them: its controllers, its brokers, and pairs of one of ours and one of
theirs (docs/spec/controller.md 11)."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire
from tests.interop.apache import CLUSTER, Admin
from tests.interop.failover_group import APACHE, NAME, SOON, TOPIC, group_under, group_under_three
from tests.interop.peers import OURS
from tests.interop.process import PeerFailed, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.failover_group import Group, Replica

pytestmark = pytest.mark.interop

CONSUMERS = "TOOLS_CONSUMER"


def fails_over(group: Group, old: int, new: int) -> None:
    """Kill the master; the other takes over and takes messages."""
    epoch = group.state["epoch"]
    start = group.replicas[new].end
    group.replicas[old].process.kill()
    assert group.wait_for("the other takes over", master=new, epoch=epoch + 1, set=[new]) < 2
    group.wait_for_routes(new)
    group.send(20)
    assert group.replicas[new].epochs[-1] == (epoch + 1, start)


def comes_back(group: Group, old: int, new: int) -> None:
    """Start the old master again: it follows with the id it had, and both have all messages."""
    epoch = group.state["epoch"]
    group.replicas[old].start()
    group.wait_for("the old master follows", master=new, epoch=epoch, set=[1, 2])
    group.wait_for_routes(new, old)
    group.send(20)
    group.wait_until_equal()
    group.wait_until_shown()
    assert group.replicas[old].epochs == group.replicas[new].epochs


@pytest.mark.scenario("controller 2")
@pytest.mark.scenario("controller 3")
@pytest.mark.scenario("controller 5")
@pytest.mark.scenario("controller 6")
@pytest.mark.scenario("controller 14")
def test_a_pair_of_ours_fails_over_under_their_controller(java_packages: None, tmp_path: Path) -> None:
    with group_under(APACHE, tmp_path) as group:
        a_pair_of_ours_fails_over(group)


@pytest.mark.scenario("controller 5")
@pytest.mark.scenario("controller 6")
def test_a_pair_of_ours_fails_over_under_three_of_their_controllers(java_packages: None, tmp_path: Path) -> None:
    with group_under_three(APACHE, tmp_path) as (group, controllers):
        a_pair_of_ours_fails_over(group)

        before = group.state
        gone = group.leader
        controllers[gone].process.kill()
        wait_until(lambda: group.leader not in ("", gone), SOON, "another controller leads")
        assert group.state == before  # nobody was deposed for it
        group.send(20)
        fails_over(group, 1, 2)
        comes_back(group, 1, 2)


def a_pair_of_ours_fails_over(group: Group) -> None:
    """By accident, and back by plan."""
    first = group.add(OURS)
    assert group.state == {"master": 1, "epoch": 1, "set": [1]}
    assert (first.store / "brokerIdentity").read_text() == f"{CLUSTER}#{NAME}#1"
    assert first.epochs == [(1, 0)]
    group.create_topic()
    group.send(20)
    second = group.add(OURS)
    group.wait_for_routes(1, 2)
    group.send(1500)  # into the next file
    group.wait_until_equal()

    fails_over(group, 1, 2)
    comes_back(group, 1, 2)

    start = first.end
    group.elect(1)
    group.wait_for("roles are swapped", master=1, epoch=3, set=[1, 2])
    group.wait_for_routes(1, 2)
    group.send(20)
    group.wait_until_equal()
    group.wait_until_shown()
    assert first.epochs == second.epochs
    assert first.epochs[-1] == (3, start)


@pytest.mark.parametrize("controller", [OURS, APACHE])
def test_after_a_power_failure_a_broker_waits_for_the_one_that_has_everything(
    java_packages: None, tmp_path: Path, controller: str
) -> None:
    """The slave loses power, and its master is killed at the same moment. The slave is back first."""
    with group_under(controller, tmp_path) as group:
        first = group.add(OURS)
        group.create_topic()
        second = group.add(OURS)
        group.wait_for_routes(1, 2)
        group.send(20)
        group.wait_until_equal()

        os.kill(first.process.pid, signal.SIGSTOP)  # so that it cannot notice
        second.process.kill()
        first.process.kill()
        loses_power(second)
        second.start()
        wait_until(lambda: "may lack acknowledged" in problem_of(second), SOON, "the slave knows")
        # Both controllers look for masters that are gone every five seconds.
        with pytest.raises(PeerFailed):
            wait_until(lambda: group.state.get("master") == 2, 12, "the slave is master")
        first.start()
        group.wait_for("the master is back", master=1, set=[1, 2])
        group.wait_until_equal()
        group.wait_until_shown()
        assert not problem_of(second)


def loses_power(replica: Replica) -> None:
    """The machine starts anew, and the end of the log is gone."""
    boot = replica.store / "brokerBoot"
    boot.write_text(f"another boot#{boot.read_text().partition('#')[2]}")
    log = max((replica.store / "commitlog").iterdir())
    content = log.read_bytes().rstrip(b"\0")
    with log.open("r+b") as file:
        file.seek(len(content) // 2)
        file.write(bytes(len(content) - len(content) // 2))


def problem_of(replica: Replica) -> str:
    return str(wire.ask(replica.address, 28).json["table"].get("failoverProblem", ""))


@pytest.mark.parametrize("second", [OURS, APACHE])
@pytest.mark.parametrize("controller", [OURS, APACHE])
@pytest.mark.scenario("controller 2")
@pytest.mark.scenario("controller 3")
@pytest.mark.scenario("controller 5")
@pytest.mark.scenario("controller 6")
@pytest.mark.scenario("controller 29")
@pytest.mark.scenario("controller 31")
def test_a_mixed_pair_fails_over_and_back(java_packages: None, tmp_path: Path, controller: str, second: str) -> None:
    first = APACHE if second == OURS else OURS
    with group_under(controller, tmp_path) as group:
        master = group.add(first)
        group.create_topic()
        group.send(1500)  # into the next file; much to catch up with
        slave = group.add(second)
        group.wait_for_routes(1, 2)
        group.send(1500)
        group.wait_until_equal()
        metadata_is_copied(master, slave)
        tools_see_both(group)

        fails_over(group, 1, 2)
        comes_back(group, 1, 2)
        fails_over(group, 2, 1)
        comes_back(group, 2, 1)


@pytest.mark.parametrize(
    "makes",
    [(OURS, OURS, APACHE), (APACHE, OURS, OURS), (OURS, APACHE, APACHE), (APACHE, APACHE, OURS)],
    ids="+".join,
)
@pytest.mark.parametrize("controller", [OURS, APACHE])
@pytest.mark.scenario("controller 3")
@pytest.mark.scenario("controller 5")
@pytest.mark.scenario("controller 6")
@pytest.mark.scenario("controller 14")
def test_each_of_three_becomes_master(
    java_packages: None, tmp_path: Path, controller: str, makes: tuple[str, str, str]
) -> None:
    """By accident and by plan, whoever's make the others are."""
    with group_under(controller, tmp_path) as group:
        group.add(makes[0])
        group.create_topic()
        group.send(1500)  # into the next file; much to catch up with
        for make in makes[1:]:
            group.add(make)
        group.wait_for_routes(1, 2, 3)
        group.send(20)
        group.wait_until_equal()

        old = 1
        group.replicas[old].process.kill()
        group.wait_for("two of three are in sync", set=[2, 3])
        new = group.state["master"]
        group.send(20)
        group.replicas[old].start()
        group.wait_for("the old master follows", master=new, set=[1, 2, 3])
        all_have_all(group, new)

        for number in (5 - new, old):
            group.elect(number)
            group.wait_for("all follow whoever was elected", master=number, set=[1, 2, 3])
            all_have_all(group, number)


def all_have_all(group: Group, master: int) -> None:
    """Clients find all three, and the logs of all are the same."""
    group.wait_for_routes(master, *(number for number in group.replicas if number != master))
    group.send(20)
    group.wait_until_equal()
    group.wait_until_shown()
    tables = [replica.epochs for replica in group.replicas.values() if replica.make == OURS]
    assert all(table == tables[0] for table in tables)


@pytest.mark.parametrize("second", [OURS, APACHE])
@pytest.mark.parametrize("controller", [OURS, APACHE])
@pytest.mark.scenario("controller 14")
@pytest.mark.scenario("controller 22")
def test_roles_of_a_mixed_pair_are_swapped_again_and_again(
    java_packages: None, tmp_path: Path, controller: str, second: str
) -> None:
    """Without a message in between, too: then 5.5.0 has epochs in its table that the other has not."""
    first = APACHE if second == OURS else OURS
    with group_under(controller, tmp_path) as group:
        group.add(first)
        group.create_topic()
        group.send(20)
        group.add(second)
        ours = next(replica for replica in group.replicas.values() if replica.make == OURS)
        for master, count in ((2, 0), (1, 0), (2, 20), (1, 20), (2, 0), (1, 20), (2, 20)):
            group.elect(master)
            group.wait_for("roles are swapped", master=master, set=[1, 2])
            group.wait_for_routes(master, 3 - master)
            if count:
                group.send(count)
                group.wait_until_equal()
                group.wait_until_shown()
            starts = [start for _, start in ours.epochs]
            assert starts == sorted(set(starts))
        group.master.process.kill()
        group.wait_for("the other takes over", master=1, set=[1])
        group.send(20)
        group.replicas[2].start()
        group.wait_for("the old master follows", master=1, set=[1, 2])
        group.wait_until_equal()


@pytest.mark.parametrize("second", [OURS, APACHE])
@pytest.mark.parametrize("controller", [OURS, APACHE])
@pytest.mark.scenario("controller 7")
def test_an_old_master_cuts_off_what_nobody_else_has(
    java_packages: None, tmp_path: Path, controller: str, second: str
) -> None:
    settings = {"allAckInSyncStateSet": "false", "inSyncReplicas": 1, "mappedFileSizeCommitLog": 16 << 20}
    with group_under(controller, tmp_path) as group:
        old = group.add(APACHE if second == OURS else OURS, **settings)
        group.create_topic()
        new = group.add(second, **settings)
        group.send(20)
        group.wait_until_equal()
        with new.frozen():
            with wire.Connection(old.address) as connection:
                for _ in range(24):  # more than fits between two processes
                    wire.send(connection, TOPIC, 0, b"lost" * (1 << 18))
            end = old.end
            old.process.kill()
        group.wait_for("the other takes over", master=2, set=[2])
        group.wait_for_routes(2)
        assert new.end < end
        group.send(20)
        old.start()
        group.wait_for("the old master follows", master=2, set=[1, 2])
        group.send(20)
        group.wait_until_equal()
        group.wait_until_shown()
        if old.make == OURS:
            assert old.epochs == new.epochs
            assert not old.log(1 << 40)[old.end :].strip(b"\0")


def metadata_is_copied(master: Replica, slave: Replica) -> None:
    """A topic, a group and an offset that the master learns are on the slave soon."""
    with wire.Connection(master.address) as connection:
        wire.create_topic(connection, "later", 2)
        group = b'{"groupName":"readers","consumeEnable":true,"retryQueueNums":3}'
        assert connection.ask(200, group).code == 0
        connection.ask(15, consumerGroup=CONSUMERS, topic=TOPIC, queueId=0, commitOffset=7)

    def copied() -> bool:
        with wire.Connection(slave.address) as connection:
            topics = connection.ask(21).json["topicConfigTable"]
            groups = connection.ask(201).json["subscriptionGroupTable"]
            offsets = connection.ask(43).json["offsetTable"].get(f"{TOPIC}@{CONSUMERS}", {})
        return "later" in topics and groups.get("readers", {}).get("retryQueueNums") == 3 and offsets.get("0") == 7

    wait_until(copied, SOON, "the slave has topic, group and offset")


def tools_see_both(group: Group) -> None:
    """What 5.5.0's tools print of the group, its first broker being master."""
    master, slave = group.replicas[1], group.replicas[2]
    admin = Admin("5.5.0", group.home / "admin", group.namesrv.address)
    sets, epochs, of_master, of_slave = admin.run(
        f"getSyncStateSet -a {group.leader} -b {NAME}",
        f"getBrokerEpoch -b {NAME}",
        f"haStatus -b {master.address}",
        f"haStatus -b {slave.address}",
    )
    assert re.search(r"^#MasterBrokerId\t1$", sets, re.MULTILINE)
    for number, replica in group.replicas.items():
        identity = f"brokerName='{NAME}', brokerId={number}, brokerAddress='{replica.address}', alive=true"
        assert re.search(rf"^InSyncReplica:\s+ReplicaIdentity\{{{re.escape(identity)}", sets, re.MULTILINE)
    end = master.end
    assert epochs.count(f"EpochEntry{{epoch=1, startOffset=0, endOffset={end}}}") == 2
    assert re.search(r"#brokerId\t0\n", epochs)
    assert re.search(r"#brokerId\t2\n", epochs)
    assert f"#MasterAddr\t{master.address}" in of_master
    assert f"#MasterCommitLogMaxOffset\t{end}\n#SlaveNum\t1\n#InSyncSlaveNum\t1" in of_master
    _, acknowledged, behind, _, status, _ = of_master.splitlines()[-1].split()
    assert (acknowledged, behind, status) == (str(end), "0", "OK")
    assert f"#MasterAddr\t127.0.0.1:{master.port + 1}" in of_slave
    assert f"#CommitLogMaxOffset\t{end}" in of_slave


def sent_to_a_frozen_master(home: Path, make: str) -> tuple[int, bool]:
    """A message that waits for a master which stands still while another is elected.

    How it is answered when the master wakes up, and whether it is in the log once both brokers are well again.
    """
    body = b"sent to a master that was deposed in its sleep"
    settings: dict[str, Any] = {"allAckInSyncStateSet": "false", "inSyncReplicas": 1}
    with group_under(OURS, home) as group:
        master = group.add(make, **settings)
        group.create_topic()
        other = group.add(OURS, **settings)
        group.send(20)
        group.wait_until_equal()
        with wire.Connection(master.address) as connection:
            with master.frozen():
                group.wait_for("the other is elected", master=2, set=[2])
                group.send(20)
                connection.say(wire.SEND_MESSAGE, body, **wire.message(TOPIC, 0))
            code = connection.answer().code
        group.wait_for("the old master follows", master=2, set=[1, 2])
        group.wait_for_routes(2, 1)
        group.wait_until_equal()  # nothing else is lost
        return code, body in other.log(other.end)


@pytest.mark.scenario("controller 10")
@pytest.mark.scenario("controller 30")
def test_a_frozen_master_of_theirs_acknowledges_what_is_lost(java_packages: None, tmp_path: Path) -> None:
    """It has no lease: it finds out only later that it is master no more."""
    assert sent_to_a_frozen_master(tmp_path, APACHE) == (0, False)


@pytest.mark.scenario("controller 10")
def test_a_frozen_master_of_ours_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """Its lease ran out: it refuses, unless it knows the new master by then, and passes the message on."""
    assert sent_to_a_frozen_master(tmp_path, OURS) in ((14, False), (0, True))
