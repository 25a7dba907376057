"""What a controller decides on each request, in the words and the order of docs/spec/controller.md 2 and 3."""

from __future__ import annotations

import pytest

from pyromq.controller import verdicts
from pyromq.controller.election import Standing, elected
from pyromq.controller.replicas import (
    AlterSyncStateSetEvent,
    ApplyBrokerIdEvent,
    CleanBrokerDataEvent,
    ElectMasterEvent,
    Group,
    Member,
    UpdateBrokerAddressEvent,
    apply,
)
from pyromq.controller.verdicts import NOBODY, Refusal
from pyromq.protocol.bodies import SyncStateSet
from pyromq.protocol.headers import AlterSyncStateSet, ApplyBrokerId, CleanBrokerData, ControllerRegisterBroker

MEMBERS = {id_: Member(f"h{id_}:1", f"h{id_}:1;{id_}") for id_ in (1, 2, 3)}
GROUP = Group(
    cluster="c",
    name="b",
    members=MEMBERS,
    next_id=4,
    master=1,
    master_epoch=5,
    sync_state_set=frozenset({1, 2}),
    set_epoch=7,
)
NEW = Group(cluster="c", name="b", members=MEMBERS, next_id=4)
REJECTING = "Rejecting alter syncStateSet request because the"


def standings(*ids: int) -> dict[int, Standing]:
    return dict.fromkeys(ids, Standing())


class TestAlterSyncStateSet:
    def verdict(self, wanted, *, group=GROUP, master=1, epoch=5, set_epoch=7, alive=(1, 2, 3)):
        request = AlterSyncStateSet("b", master, epoch)
        body = SyncStateSet(sync_state_set=list(wanted), sync_state_set_epoch=set_epoch)
        return verdicts.alter_sync_state_set(group, request, body, alive)

    def test_the_wanted_set_is_decided(self):
        assert self.verdict([1, 2, 3]) == AlterSyncStateSetEvent(
            broker_name="b", new_sync_state_set=frozenset({1, 2, 3})
        )

    @pytest.mark.parametrize(
        ("question", "code", "remark"),
        [
            ({"wanted": [1], "group": None}, 2013, "Broker metadata is not existed"),
            (
                {"wanted": [2, 1]},
                2013,
                "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
            ),
            ({"wanted": [1], "master": 2}, 2002, f"{REJECTING} current leader is:{{1}}, not {{2}}"),
            ({"wanted": [1], "group": NEW}, 2002, f"{REJECTING} current leader is:{{null}}, not {{1}}"),
            ({"wanted": [1], "epoch": 7}, 2000, f"{REJECTING} current master epoch is:{{5}}, not {{7}}"),
            ({"wanted": [1], "set_epoch": 9}, 2001, f"{REJECTING} current syncStateSet epoch is:{{7}}, not {{9}}"),
            ({"wanted": [1, 9]}, 2003, f"{REJECTING} replicas {{9}} don't exist"),
            ({"wanted": [1, 2, 3], "alive": (1, 2)}, 2006, f"{REJECTING} replicas {{3}} don't alive"),
            ({"wanted": [2, 3]}, 2013, f"{REJECTING} newSyncStateSet don't contains origin leader {{1}}"),
            # the first check that fails answers
            (
                {"wanted": [9], "master": 2, "epoch": 1, "set_epoch": 1},
                2002,
                f"{REJECTING} current leader is:{{1}}, not {{2}}",
            ),
            (
                {"wanted": [9], "epoch": 1, "set_epoch": 1},
                2000,
                f"{REJECTING} current master epoch is:{{5}}, not {{1}}",
            ),
            ({"wanted": [9], "set_epoch": 1}, 2001, f"{REJECTING} current syncStateSet epoch is:{{7}}, not {{1}}"),
        ],
    )
    def test_each_check_has_its_words(self, question, code, remark):
        assert self.verdict(**question) == Refusal(code, remark)


class TestElectMaster:
    def test_the_first_asker_becomes_master_alive_or_not(self):
        assert verdicts.elect_master(NEW, 2, {}) == ElectMasterEvent(broker_name="b", new_master_broker_id=2)

    def test_a_stranger_does_not_even_become_the_first_master(self):
        assert verdicts.elect_master(NEW, 9, standings(1)) == Refusal(2012, "Failed to elect a new master")

    def test_the_old_master_stays_as_long_as_it_lives(self):
        remark = "The old master 1 is still alive, not need to elect new master for broker b"
        assert verdicts.elect_master(GROUP, 2, standings(1, 2)) == Refusal(2011, remark)
        assert verdicts.elect_master(GROUP, 1, standings(1, 2), designate=True) == Refusal(2011, remark)

    def test_an_unknown_group_is_refused(self):
        assert verdicts.elect_master(None, 1, {}) == Refusal(2010, "Broker hasn't been registered")

    def test_somebody_else_of_the_set_follows_a_dead_master(self):
        elected = ElectMasterEvent(broker_name="b", new_master_broker_id=2)
        assert verdicts.elect_master(GROUP, NOBODY, standings(2, 3)) == elected
        # The asker only starts the election.
        assert verdicts.elect_master(GROUP, 3, standings(2, 3)) == elected

    def test_an_outsider_is_elected_only_if_the_operator_allows_loss(self):
        failed = ElectMasterEvent(broker_name="b", new_master_elected=False)
        assert verdicts.elect_master(GROUP, NOBODY, standings(3)) == failed
        assert verdicts.elect_master(GROUP, 3, standings(3)) == Refusal(2012, "Failed to elect a new master")
        unclean = ElectMasterEvent(broker_name="b", new_master_broker_id=3)
        assert verdicts.elect_master(GROUP, NOBODY, standings(3), unclean=True) == unclean
        assert verdicts.elect_master(GROUP, 3, standings(3), unclean=True) == unclean

    @pytest.mark.scenario("controller 15")
    def test_a_designated_outsider_is_refused(self):
        refused = Refusal(2012, "Failed to elect a new master")
        assert verdicts.elect_master(GROUP, 3, standings(1, 2, 3), designate=True) == refused
        assert verdicts.elect_master(GROUP, 2, standings(1, 3), designate=True) == refused

    def test_a_designated_member_of_the_set_replaces_a_living_master(self):
        elected = ElectMasterEvent(broker_name="b", new_master_broker_id=2)
        assert verdicts.elect_master(GROUP, 2, standings(1, 2), designate=True) == elected

    @pytest.mark.parametrize(
        ("one", "two", "best"),
        [
            (Standing(2, 10, 1), Standing(3, 0, 9), 2),  # the epoch first
            (Standing(3, 2**40, 9), Standing(3, 2**40 + 1, 1), 2),  # then the offset, in 64 bits
            (Standing(3, 0, 9), Standing(3, 2**33, 9), 2),
            (Standing(3, 7, 1), Standing(3, 7, 9), 1),  # then the lower number
            (Standing(3, 7, 5), Standing(3, 7, 5), 1),  # then the lower id
        ],
    )
    @pytest.mark.scenario("controller 27")
    def test_the_best_of_the_set_is_elected(self, one, two, best):
        assert elected([1, 2], {1: one, 2: two}) == best
        assert elected([2, 1], {2: two, 1: one}) == best


def doubtful(epoch: int = -1, max_offset: int = -1) -> Standing:
    return Standing(epoch, max_offset, doubtful=True)


class TestElectionInDoubt:
    """A member that came back from a power failure may lack what it acknowledged."""

    def test_it_is_not_elected_while_somebody_is_away_who_may_have_more(self):
        assert elected([1, 2], {2: doubtful(1, 100)}) is None
        assert elected([1, 2, 3], {2: doubtful(1, 100), 3: doubtful(1, 90)}) is None

    def test_who_is_sure_is_elected_whatever_the_offsets_say(self):
        assert elected([1, 2], {1: Standing(1, 90), 2: doubtful(1, 100)}) == 1
        assert elected([1, 2, 3], {1: Standing(1, 90), 2: doubtful(1, 100)}) == 1

    def test_if_all_are_there_and_doubtful_the_one_with_most_is_elected(self):
        assert elected([1, 2], {1: doubtful(1, 90), 2: doubtful(1, 100)}) == 2
        assert elected([1, 2], {1: doubtful(2, 90), 2: doubtful(1, 100)}) == 1

    def test_an_old_master_in_doubt_has_no_advantage(self):
        assert elected([1, 2], {1: doubtful(1, 90), 2: doubtful(1, 100)}, old_master=1) == 2
        assert elected([1, 2], {1: doubtful(1, 90), 2: Standing(1, 90)}, old_master=1) == 2

    def test_who_is_alone_in_the_set_is_elected_since_nobody_has_more(self):
        assert elected([2], {2: doubtful(1, 100), 3: Standing(1, 50)}) == 2

    def test_somebody_outside_the_set_does_not_count(self):
        assert elected([1, 2], {2: doubtful(1, 100), 3: Standing(1, 100)}) is None

    def test_loss_may_be_allowed(self):
        assert elected([1, 2], {2: doubtful(1, 100)}, unclean=[1, 2, 3]) == 2
        assert elected([1, 2], {2: doubtful(1, 90), 3: Standing(1, 100)}, unclean=[1, 2, 3]) == 3

    def test_an_operator_may_decide_unless_somebody_is_there_who_is_sure(self):
        assert elected([1, 2], {2: doubtful(1, 100)}, designated=2) == 2
        assert elected([1, 2], {1: Standing(1, 100), 2: doubtful(1, 100)}, old_master=1, designated=2) is None
        assert elected([1, 2], {2: doubtful(1, 100), 3: Standing(1, 100)}, designated=3) is None

    def test_the_words_say_who_is_missing(self):
        failed = ElectMasterEvent(broker_name="b", new_master_elected=False)
        assert verdicts.elect_master(GROUP, NOBODY, {2: doubtful()}) == failed
        assert verdicts.elect_master(GROUP, 2, {2: doubtful()}) == Refusal(
            2012,
            "Failed to elect a new master: broker 2 may lack acknowledged messages, and broker 1, which may have them, "
            "is not alive",
        )

    def test_a_master_in_doubt_that_is_elected_again_begins_a_new_epoch(self):
        again = ElectMasterEvent(broker_name="b", new_master_broker_id=1)
        assert verdicts.elect_master(GROUP, 1, {1: doubtful(1, 100), 2: doubtful(1, 90)}) == again
        groups = {"b": GROUP}
        apply(groups, again)
        assert groups["b"].master_epoch == GROUP.master_epoch + 1

    def test_the_first_master_needs_no_log(self):
        first = ElectMasterEvent(broker_name="b", new_master_broker_id=2)
        assert verdicts.elect_master(NEW, 2, {2: doubtful()}) == first


class TestRegister:
    def test_a_new_address_is_kept(self):
        request = ControllerRegisterBroker("b", 2, "new:1")
        event = verdicts.register_broker(GROUP, request)
        assert event == UpdateBrokerAddressEvent(broker_name="b", cluster_name="c", broker_address="new:1", broker_id=2)
        groups = {"b": GROUP}
        apply(groups, event)
        assert groups["b"].members[2] == Member("new:1", "h2:1;2")
        assert verdicts.register_broker(groups["b"], request) is None

    def test_strangers_have_to_apply_first(self):
        request = ControllerRegisterBroker("b", 9, "new:1")
        unknown = "Broker-set: b hasn't been registered in controller"
        assert verdicts.register_broker(None, request) == Refusal(2010, unknown)
        assert verdicts.register_broker(GROUP, request) == Refusal(
            2010, "BrokerId: 9 hasn't been registered in broker-set: b"
        )


class TestIds:
    def take(self, groups, broker_id, code="h:1;5"):
        event = verdicts.apply_broker_id(groups.get("b"), ApplyBrokerId("b", broker_id, code, "c"))
        if isinstance(event, ApplyBrokerIdEvent):
            apply(groups, event)
        return event

    def test_an_id_is_never_given_twice(self):
        groups: dict[str, Group] = {}
        assert verdicts.next_broker_id(None) == 1
        for broker_id, following in ((1, 2), (5, 6), (2, 6)):
            self.take(groups, broker_id)
            assert verdicts.next_broker_id(groups["b"]) == following
        apply(groups, CleanBrokerDataEvent(broker_name="b", broker_id_set_to_clean=frozenset({5})))
        assert verdicts.next_broker_id(groups["b"]) == 6

    @pytest.mark.scenario("controller 17")
    def test_a_repeated_request_gets_the_same_id(self):
        groups: dict[str, Group] = {}
        self.take(groups, 1)
        assert self.take(groups, 1) is None
        assert self.take(groups, 1, "h:2;5") == Refusal(2014, "Fail to apply brokerId: 1 in broker-set: b")
        assert groups["b"].members == {1: Member("h:1", "h:1;5")}

    @pytest.mark.parametrize("broker_id", [0, -1, 2, 2**63 - 1])
    def test_a_group_begins_with_one(self, broker_id):
        remark = f"Broker-set: b hasn't been registered in controller, but broker try to apply brokerId: {broker_id}"
        assert self.take({}, broker_id) == Refusal(2014, remark)

    @pytest.mark.parametrize("broker_id", [0, -1, 2**63 - 1])
    def test_ids_are_positive_and_leave_room_for_the_next(self, broker_id):
        refused = Refusal(2014, f"Fail to apply brokerId: {broker_id} in broker-set: b")
        assert self.take({"b": GROUP}, broker_id) == refused


class TestClean:
    def verdict(self, ids=None, *, living=False, group=GROUP, alive=(1, 2)):
        request = CleanBrokerData("b", "c", ids, living)
        return verdicts.clean_broker_data(group, request, alive.__contains__)

    @pytest.mark.parametrize(
        ("question", "remark"),
        [
            ({}, "Broker b is still alive, clean up failure"),
            ({"ids": "3;2"}, "Broker [b,  2] is still alive, clean up failure"),
            ({"ids": "3;x"}, None),
            ({"ids": "3", "group": None}, "Broker b is not existed,clean broker data failure."),
            ({"group": None}, "Broker b is not existed,clean broker data failure."),
            ({"ids": "1", "living": True}, "Broker [b,  1] is the master, clean up failure"),
            ({"ids": "1", "alive": ()}, "Broker [b,  1] is the master, clean up failure"),
        ],
    )
    @pytest.mark.scenario("controller 32")
    def test_what_is_needed_stays(self, question, remark):
        refusal = self.verdict(**question)
        assert isinstance(refusal, Refusal)
        assert refusal.code == 2009
        if remark is None:
            expected = "Please set the option <brokerControllerIdsToClean> according to the format, exception: "
            assert refusal.remark.startswith(expected)
        else:
            assert refusal.remark == remark

    def test_a_dead_one_goes_and_the_set_gets_a_new_epoch(self):
        event = self.verdict("2;9", alive=(1,))
        groups = {"b": GROUP}
        apply(groups, event)
        left = groups["b"]
        assert (list(left.members), left.in_sync, left.set_epoch, left.master_epoch) == ([1, 3], [1], 8, 5)

    def test_a_list_is_taken_at_its_word_even_when_the_living_may_go(self):
        assert self.verdict("2", living=True) == CleanBrokerDataEvent(
            broker_name="b", broker_id_set_to_clean=frozenset({2})
        )
        assert self.verdict("9", living=True) is None

    def test_a_whole_group_goes(self):
        groups = {"b": GROUP}
        apply(groups, self.verdict(living=True))
        assert groups == {}
        assert verdicts.next_broker_id(groups.get("b")) == 1

    def test_a_group_without_members_disappears(self):
        groups = {"b": NEW}
        apply(groups, self.verdict("1;2;3", group=NEW, alive=()))
        assert groups == {}
