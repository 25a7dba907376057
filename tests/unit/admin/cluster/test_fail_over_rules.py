"""What is wrong with controllers and broker groups, as doctor and `pyromq controller status` say it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyromq.admin.cluster import fail_over_rules as rules
from pyromq.admin.cluster.controllers import DOUBTFUL, Controller, Epoch, FailOver, Group, Member
from pyromq.admin.cluster.doctor_rules import Health
from pyromq.client.admin.fan_out import Missing
from pyromq.errors import ServerError

MASTER = Member("fx", 1, "MASTER", "h:1", True, True, 2, 922, 0, acts_as="MASTER", epochs=(Epoch(1, 0), Epoch(2, 696)))
SLAVE = replace(MASTER, id=2, role="SLAVE", address="h:2", acts_as="SLAVE")
GROUP = Group("fx", "C", 1, "h:1", 2, 5, (1, 2), (MASTER, SLAVE))


def controller(number, *, leader="h:100", role="FOLLOWER"):
    address = f"h:{100 + number}"
    return Controller(address, f"n{number}", "LEADER" if leader == address else role, leader, "group1")


def trio(*rows, **fields):
    return FailOver("h:100", rows or tuple(map(controller, range(3))), (GROUP,), **fields)


def said(findings):
    return [(each.status, each.found) for each in findings if each.status is not Health.OK]


def of_group(*members, **fields):
    return said(rules.broker_group(replace(GROUP, members=members or GROUP.members, **fields)))


def test_all_is_well():
    findings = rules.examined(trio())
    assert [(each.status, each.what, each.found) for each in findings] == [
        (Health.OK, "controllers", "3 answer, h:100 leads"),
        (Health.OK, "fail-over of fx", "broker 1 is master in epoch 2, in sync: 1, 2"),
    ]
    assert rules.problems(findings) == []
    alone = rules.controllers(trio(controller(0)))
    assert [each.found for each in alone] == ["h:100 leads"]


# Controllers


def test_no_controller_can_be_reached():
    finding = rules.no_controller(["h:100", "h:101"], "Connection refused")
    assert finding.status is Health.FAIL
    assert (finding.what, finding.found) == ("controllers h:100, h:101", "none can be reached: Connection refused")


def test_one_controller_does_not_answer():
    down = Controller("h:102", "n2", problem="does not answer: Connection refused")
    [finding] = rules.controllers(trio(controller(0), controller(1), down))
    assert (finding.status, finding.what) == (Health.WARN, "controller n2 h:102")


def test_nobody_leads():
    rows = (controller(0, leader=None), controller(1, leader=None), Controller("h:102", problem="does not answer"))
    found = said(rules.controllers(trio(*rows)))
    assert (Health.FAIL, "have no leader: 2 of 3 can be reached, and no master is replaced meanwhile") in found


def test_controllers_disagree_about_the_leader():
    rows = (controller(0), controller(1, leader="h:101"), controller(2))
    [(status, found)] = said(rules.controllers(trio(*rows)))
    assert status is Health.FAIL
    assert found == "disagree about the leader: h:100 says h:100; h:101 says h:101; h:102 says h:100"


@pytest.mark.parametrize(("count", "survive"), [(2, 0), (4, 1)])
def test_an_even_number_of_controllers_is_one_too_many(count, survive):
    rows = tuple(map(controller, range(count)))
    assert said(rules.controllers(trio(*rows))) == [
        (Health.WARN, f"are {count}, an even number: {survive} may fail, as with {count - 1}")
    ]
    assert said(rules.controllers(trio(*rows, shared=True))) == []


def test_a_leader_that_does_not_tell_its_groups_is_found():
    found = replace(trio(), groups=(), missing=(Missing("h:100", ServerError("no", "h:100")),))
    [finding] = [each for each in rules.examined(found) if each.status is Health.FAIL]
    assert "does not tell its groups" in finding.found


# Groups


def test_a_group_without_a_master():
    [(status, found), *_] = of_group(
        replace(MASTER, role="SLAVE", alive=False, acts_as=None), master=None, master_address=None
    )
    assert (status, found) == (Health.FAIL, "it has no master, so it takes no messages")
    [finding, *_] = rules.broker_group(replace(GROUP, master=None))
    assert "start broker 1 or 2" in str(finding.to_do)
    assert "enableElectUncleanMaster" in str(finding.to_do)


def test_a_group_that_waits_for_who_has_everything():
    dead = replace(MASTER, role="SLAVE", alive=False, acts_as=None)
    doubtful = replace(SLAVE, doubtful=True, problem=DOUBTFUL)
    [finding, other] = rules.broker_group(replace(GROUP, master=None, members=(dead, doubtful)))
    assert finding.status is Health.FAIL
    assert finding.found == (
        "it has no master, so it takes no messages: broker 2 may lack acknowledged messages, since its machine or disk "
        "failed, and broker 1, which may have them, is not alive"
    )
    assert finding.to_do == (
        "start broker 1; if it is lost for good: pyromq controller elect fx 2, and what only broker 1 had is lost"
    )
    assert other.found == "broker 1 at h:1 is not alive"
    found = of_group(replace(dead, role="MASTER"), doubtful)
    assert found[0][1].startswith("its master, broker 1 at h:1, is not alive, and nobody has taken over: broker 2 may")


def test_a_slave_that_may_lack_messages_is_a_warning_until_it_has_caught_up():
    assert of_group(MASTER, replace(SLAVE, doubtful=True, problem=DOUBTFUL)) == [
        (Health.WARN, f"broker 2 at h:2: {DOUBTFUL}")
    ]


def test_a_master_that_is_not_alive():
    [(status, found)] = of_group(replace(MASTER, alive=False, acts_as=None), SLAVE)
    assert status is Health.FAIL
    assert found == "its master, broker 1 at h:1, is not alive, and nobody has taken over"


def test_a_member_that_is_not_alive():
    gone = replace(SLAVE, alive=False, in_sync=False, acts_as=None, epochs=(), problem="does not answer: refused")
    found = rules.broker_group(replace(GROUP, members=(MASTER, gone), in_sync=(1,)))
    assert said(found) == [
        (Health.WARN, "broker 2 at h:2 is not alive"),
        (Health.WARN, "only broker 1 is in sync, of 2: nobody can take over if it fails"),
    ]
    assert "pyromq controller clean fx 2" in str(found[0].to_do)


def test_a_group_of_one_is_in_sync_with_itself():
    assert of_group(MASTER, in_sync=(1,)) == []


def test_a_member_that_is_far_behind_although_in_sync():
    far = replace(SLAVE, behind=rules.FAR_BEHIND)
    [(status, found)] = of_group(MASTER, far)
    assert (status, found) == (
        Health.WARN,
        "broker 2 counts as in sync and is 16777216 bytes behind: senders wait for it",
    )
    assert of_group(MASTER, replace(far, behind=rules.FAR_BEHIND - 1)) == []
    assert of_group(MASTER, replace(far, in_sync=False)) == []


def test_two_masters():
    [(status, found)] = of_group(MASTER, replace(SLAVE, acts_as="MASTER"))
    assert (status, found) == (
        Health.FAIL,
        "broker 2 at h:2 claims to be master, but the controller names broker 1",
    )
    found = of_group(replace(MASTER, role="SLAVE"), SLAVE, master=None, master_address=None)
    assert (Health.FAIL, "broker 1 at h:1 claims to be master, but the controller names nobody") in found


def test_a_master_that_does_not_know_it():
    [(status, found)] = of_group(replace(MASTER, acts_as="SLAVE"), SLAVE)
    assert (status, found) == (Health.FAIL, "broker 1 at h:1 was elected master and does not act as one")


def test_what_a_slave_says_is_passed_on():
    [(status, found)] = of_group(MASTER, replace(SLAVE, problem="no common epoch with h:1"))
    assert (status, found) == (Health.WARN, "broker 2 at h:2: no common epoch with h:1")


# Epochs


@pytest.mark.parametrize(
    ("epochs", "end", "found"),
    [
        ([(1, 0), (2, 696)], 922, None),
        ([(2, 696)], 922, None),  # the files of epoch 1 are deleted there
        ([(1, 0)], 696, None),  # nothing of epoch 2 has arrived yet
        ([(1, 0), (2, 680)], 922, "epoch 2 starts at 680 on broker 2, at 696 on its master"),
        ([(1, 0), (2, 696), (3, 900)], 922, "broker 2 has epoch 3 from 900, its master has no such epoch"),
        ([(1, 0)], 922, "broker 2 lacks epoch 2, which starts at 696 on its master"),
    ],
)
def test_epochs_are_compared_where_both_logs_have_them(epochs, end, found):
    member = replace(SLAVE, epochs=tuple(Epoch(*each) for each in epochs), log_end=end)
    assert rules.epochs_differ(MASTER, member) == found
    assert of_group(MASTER, member) == ([] if found is None else [(Health.WARN, found)])


def test_epochs_of_a_log_whose_beginning_is_deleted_on_the_master_alone():
    master = replace(MASTER, epochs=(Epoch(2, 696),))
    assert rules.epochs_differ(master, SLAVE) is None
