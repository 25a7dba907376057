"""Controllers: where they are, who leads, who can be elected, and groups put together from what all of them say."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from pyromq.admin.cluster.controllers import (
    DOUBTFUL,
    Group,
    Look,
    Member,
    at_risk,
    candidate,
    controllers_of,
    controllers_table,
    embedded_controllers,
    group_of,
    leader_of,
    together,
)
from pyromq.client.admin.controllers import ControllerView, peers_of
from pyromq.client.admin.fan_out import Answers
from pyromq.errors import ConnectFailed, PyroMQError, RouteNotFound
from pyromq.protocol import bodies


@pytest.mark.parametrize(
    ("text", "peers"),
    [
        ("n0:h1:9878;n1:h2:9878;", {"n0": "h1:9878", "n1": "h2:9878"}),
        ("h1:9878;h2:9878", {"h1:9878": "h1:9878", "h2:9878": "h2:9878"}),  # JRaft
        ("", {}),
    ],
)
def test_peers_are_read(text, peers):
    assert peers_of(text) == peers


def test_a_broker_names_its_controllers():
    config = {"enableControllerMode": "true", "controllerAddr": "h1:9878; h2:9878;"}
    assert controllers_of(config) == ("h1:9878", "h2:9878")
    assert controllers_of(config | {"enableControllerMode": "false"}) == ()
    assert controllers_of({}) == ()


def test_a_name_server_names_the_controller_inside_it():
    on = {"enableControllerInNamesrv": "true"}
    assert embedded_controllers(on, "h1:9876") == ("h1:9878",)
    peers = "n0-a-b.example:9878;n1-h2:9879"
    assert embedded_controllers(on | {"controllerDLegerPeers": peers}, "h1:9876") == ("a-b.example:9878", "h2:9879")
    assert embedded_controllers({"controllerDLegerPeers": peers}, "h1:9876") == ()


def test_lists_with_an_address_in_common_are_one_group():
    assert together([("a", "b"), (), ("c",), ("b", "d"), ("c",)]) == [("a", "b", "d"), ("c",)]
    assert together([("a",), ("b",), ("a", "b")]) == [("a", "b")]
    assert together([]) == []


def view(address, leader, *, leads=False):
    return ControllerView(address, "g", None, leader, leads, {"n0": "a", "n1": "b", "n2": "c"})


def test_the_leader_is_who_says_so_then_whom_most_name():
    assert leader_of([view("a", "b"), view("b", "b", leads=True)]) == "b"
    assert leader_of([view("a", "c"), view("b", "c")]) == "c"
    assert leader_of([view("a", None)]) is None
    assert leader_of([]) is None


def test_a_controller_that_is_down_is_called_by_the_name_others_have_for_it():
    answers = Answers("", {"a": view("a", "a", leads=True), "b": view("b", "a")}, {"c": ConnectFailed("c", "refused")})
    rows = controllers_table(answers)
    assert [(row.controller, row.id, row.role) for row in rows] == [
        ("a", "n0", "LEADER"),
        ("b", "n1", "FOLLOWER"),
        ("c", "n2", None),
    ]
    assert str(rows[2].problem).startswith("does not answer")


def identity(broker_id, alive=True):
    return bodies.ReplicaIdentity(broker_id=broker_id, broker_address=f"h:{broker_id}", broker_name="fx", alive=alive)


def cache(role_id, end, *epochs):
    entries = [bodies.EpochEntry(epoch=epoch, start_offset=start) for epoch, start in epochs]
    return Look(bodies.EpochEntryCache(broker_id=role_id, cluster_name="C", epoch_list=entries, max_offset=end))


def test_a_group_is_put_together():
    info = bodies.ReplicasInfo(
        in_sync_replicas=[identity(2), identity(1)],
        not_in_sync_replicas=[identity(3, alive=False)],
        master_broker_id=2,
        master_address="h:2",
        master_epoch=4,
        sync_state_set_epoch=7,
    )
    looks = Answers(
        "",
        {"h:2": cache(0, 922, (1, 0), (4, 696)), "h:1": cache(1, 700, (1, 0), (4, 696))},
        {"h:3": ConnectFailed("h:3", "refused")},
    )
    group = group_of("fx", info, looks)
    assert (group.cluster, group.master, group.epoch, group.set_epoch, group.in_sync) == ("C", 2, 4, 7, (1, 2))
    master, slave, down = group.members
    assert (master.id, master.role, master.acts_as, master.epoch, master.behind) == (2, "MASTER", "MASTER", 4, 0)
    assert (slave.id, slave.role, slave.acts_as, slave.log_end, slave.behind) == (1, "SLAVE", "SLAVE", 700, 222)
    assert (down.alive, down.in_sync, down.log_end, down.behind, down.epoch) == (False, False, None, None, None)
    assert str(down.problem).startswith("does not answer")


def test_a_slave_that_has_more_is_not_behind():
    info = bodies.ReplicasInfo(in_sync_replicas=[identity(1), identity(2)], master_broker_id=1, master_address="h:1")
    looks = Answers("", {"h:1": cache(0, 100), "h:2": cache(2, 150)}, {})
    assert [each.behind for each in group_of("fx", info, looks).members] == [0, 0]


MEMBERS = tuple(Member("fx", number, "SLAVE", f"h:{number}", True, True, log_end=100 * number) for number in (1, 2, 3))
GROUP = Group("fx", "C", 1, "h:1", 2, 5, (1, 2, 3), MEMBERS)


def test_without_an_id_the_slave_that_has_most_takes_over():
    assert candidate(GROUP).id == 3
    assert candidate(replace(GROUP, members=(*MEMBERS[:2], replace(MEMBERS[2], alive=False)))).id == 2
    with pytest.raises(PyroMQError, match="nobody can take over"):
        candidate(replace(GROUP, members=MEMBERS[:1]))


def test_only_a_live_broker_that_is_in_sync_can_be_elected():
    assert candidate(GROUP, 2).id == 2
    with pytest.raises(RouteNotFound, match="fx has no broker 9; the controller knows: 1, 2, 3"):
        candidate(GROUP, 9)
    with pytest.raises(PyroMQError, match="not alive"):
        candidate(replace(GROUP, members=(MEMBERS[0], replace(MEMBERS[1], alive=False))), 2)
    with pytest.raises(PyroMQError, match="not in sync"):
        candidate(replace(GROUP, members=(MEMBERS[0], replace(MEMBERS[1], in_sync=False))), 2)


def test_a_broker_that_may_lack_messages_must_be_named_and_nobody_better_be_there():
    dead, doubtful = replace(MEMBERS[0], alive=False), replace(MEMBERS[1], doubtful=True)
    alone = replace(GROUP, master=None, members=(dead, doubtful), in_sync=(1, 2))
    with pytest.raises(PyroMQError, match="nobody can take over"):
        candidate(alone)
    assert candidate(alone, 2) is doubtful
    risk = at_risk(alone, doubtful)
    assert risk == "it may lack acknowledged messages that broker 1 has; those are lost then, for good"
    with_a_better_one = replace(GROUP, members=(MEMBERS[0], doubtful))
    with pytest.raises(PyroMQError, match="broker 2 of fx may lack acknowledged messages; broker 1 has all of them"):
        candidate(with_a_better_one, 2)
    assert at_risk(GROUP, MEMBERS[1]) is None
    both = replace(alone, members=(replace(MEMBERS[0], doubtful=True), doubtful))
    assert at_risk(both, candidate(both, 2)) is None


def test_a_broker_that_may_lack_messages_has_that_problem():
    info = bodies.ReplicasInfo(in_sync_replicas=[identity(1), msgspec.structs.replace(identity(2), doubtful=True)])
    looks = Answers("", {"h:2": cache(2, 150)}, {})
    member = group_of("fx", info, looks).member(2)
    assert member.doubtful
    assert member.problem == DOUBTFUL
