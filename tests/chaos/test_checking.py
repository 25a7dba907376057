"""The checkers of chaos find what they are for."""

from __future__ import annotations

import random

import pytest
from tests.chaos.checking import Log, Stored, acknowledged_and_gone, out_of_order, seen_and_gone, taken_by_others
from tests.chaos.faults import ETCD_KINDS, LOSING, decides, faults_of_round, lost
from tests.chaos.load import Acknowledged, Place, Records

from pyromq.client import TxState

A, B = "127.0.1.1:1", "127.0.1.2:1"


def acknowledged(offset: int, log_offset: int, body: bytes = b"m", broker: str = A) -> Acknowledged:
    return Acknowledged("plain", 0, offset, body, broker, log_offset)


@pytest.fixture
def records() -> Records:
    return Records(acknowledged=[acknowledged(0, 0, b"a"), acknowledged(1, 100, b"b")])


def log(*bodies: bytes) -> Log:
    places = [Stored(Place("plain", 0, number), body) for number, body in enumerate(bodies)]
    return Log({100 * number: each for number, each in enumerate(places)}, {each.place: each.body for each in places})


def test_an_acknowledged_message_must_lie_where_its_broker_said(records: Records) -> None:
    assert acknowledged_and_gone(records, log(b"a", b"b")) == []
    assert len(acknowledged_and_gone(records, log(b"a"))) == 1
    assert len(acknowledged_and_gone(records, log(b"b", b"a"))) == 2
    records.acknowledged[0] = acknowledged(7, 0, b"a")
    assert "acknowledged as 7" in acknowledged_and_gone(records, log(b"a", b"b"))[0]


def test_what_a_consumer_saw_must_stay(records: Records) -> None:
    records.consumed[Place("plain", 0, 1)] = b"b"
    assert seen_and_gone(records, log(b"a", b"b")) == []
    assert len(seen_and_gone(records, log(b"a", b"c"))) == 1
    assert len(seen_and_gone(records, log(b"a"))) == 1


def test_offsets_of_a_queue_grow_as_they_are_acknowledged(records: Records) -> None:
    assert out_of_order(records) == []
    records.acknowledged.append(acknowledged(1, 200))
    assert len(out_of_order(records)) == 1


def test_only_the_master_of_an_epoch_acknowledges(records: Records) -> None:
    epochs = [(1, 0), (3, 100)]
    assert len(taken_by_others(records, epochs, {1: A, 2: A, 3: B})) == 1
    records.acknowledged[1] = acknowledged(1, 100, broker=B)
    assert taken_by_others(records, epochs, {1: A, 2: A, 3: B}) == []
    assert len(taken_by_others(records, epochs, {1: B, 2: A, 3: B})) == 1


def test_what_is_not_consumed_is_missing_unless_it_was_rolled_back(records: Records) -> None:
    records.bodies["plain"].add(b"a")
    records.decided[b"b"] = TxState.COMMIT
    assert records.missing() == [b"b"]
    records.decided[b"b"] = TxState.ROLLBACK
    assert records.missing() == []


def test_a_seed_always_gives_the_same_faults_and_every_fault_comes() -> None:
    rounds = [faults_of_round(random.Random(seed), list(ETCD_KINDS)) for seed in range(3000)]
    assert rounds == [faults_of_round(random.Random(seed), list(ETCD_KINDS)) for seed in range(3000)]
    assert {fault.kind for faults in rounds for fault in faults} == set(ETCD_KINDS)


def test_one_broker_at_most_loses_what_it_has_and_others_wait_for_that() -> None:
    beside = set()
    for seed in range(3000):
        faults = faults_of_round(random.Random(seed), list(ETCD_KINDS))
        kinds = [fault.kind for fault in faults]
        if not any(kind.startswith(LOSING) for kind in kinds):
            assert lost(faults, on_disk=False).is_set()
            continue
        assert not any(kind.startswith(LOSING) for kind in kinds[1:])
        assert not lost(faults, on_disk=False).is_set()
        assert lost(faults, on_disk=True).is_set() == kinds[0].startswith("power failure")
        beside.update(kinds[1:])
    assert {"kill of the slave", "cut on the world line of the master", "kill of the controller"} <= beside
    assert any(decides(kind) for kind in beside)


def test_processes_stand_still_for_one_to_forty_seconds_and_seldom_for_long() -> None:
    rounds = [faults_of_round(random.Random(seed), ["stop of the master"]) for seed in range(3000)]
    lengths = sorted(fault.lasts for faults in rounds for fault in faults)
    assert 1 <= lengths[0] < 1.1
    assert 30 < lengths[-1] <= 40
    assert lengths[len(lengths) // 2] < 3
