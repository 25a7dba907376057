"""What doctor makes of what it saw."""

from __future__ import annotations

import pytest

from pyromq.admin.cluster import doctor_rules as rules
from pyromq.admin.cluster.doctor_rules import Finding, Health
from pyromq.admin.cluster.replication import ReplicaRow
from pyromq.protocol.bodies import HAConnectionInfo, HARefusal, HARuntimeInfo

HERE = "127.0.0.1:9876"
ELSEWHERE = "10.0.0.5:9876"


def test_a_broker_that_answers_where_it_says_is_well():
    assert rules.advertised("broker-a", "10.0.0.6:10911", ELSEWHERE, "broker-a").status is Health.OK
    assert rules.advertised("broker-a", "127.0.0.1:10911", HERE, "broker-a").status is Health.OK
    assert rules.advertised("broker-a", "10.0.0.6:10911", ELSEWHERE, None).status is Health.OK


@pytest.mark.parametrize("address", ["127.0.0.1:10911", "localhost:10911", "[::1]:10911", "0.0.0.0:10911"])
def test_an_address_that_means_every_machine_is_only_good_for_a_cluster_on_this_one(address):
    finding = rules.advertised("broker-a", address, ELSEWHERE, "broker-a")
    assert finding.status is Health.WARN
    assert "brokerIP1" in str(finding.to_do)


def test_another_broker_at_the_address_is_told():
    finding = rules.advertised("broker-a", "10.0.0.6:10911", ELSEWHERE, "broker-b")
    assert (finding.status, finding.found) == (Health.FAIL, "advertises 10.0.0.6:10911, where broker-b answers")


def test_a_broker_behind_a_mapped_port_is_told_its_address():
    finding = rules.unreachable("broker-a", "172.17.0.2:10911", "no answer within 1 s", "10.0.0.5:10911")
    assert finding.to_do == "set brokerIP1=10.0.0.5: it answers at 10.0.0.5:10911"
    lost = rules.unreachable("broker-a", "172.17.0.2:10911", "no answer within 1 s", None)
    assert "firewall" in str(lost.to_do)


def running(boot: float, up: str) -> dict[str, str]:
    return {"bootTimestamp": str(int(boot * 1000)), "runtime": up}


@pytest.mark.parametrize(
    ("runtime", "status", "found"),
    [
        (running(1000.0, "[ 0 days, 0 hours, 1 minutes, 0 seconds ]"), Health.OK, "agrees"),
        (running(1030.0, "[ 0 days, 0 hours, 1 minutes, 0 seconds ]"), Health.WARN, "30 s ahead of"),
        (running(940.0, "[ 0 days, 0 hours, 1 minutes, 0 seconds ]"), Health.WARN, "60 s behind"),
        (running(0.5, "[ 0 days, 0 hours, 17 minutes, 40 seconds ]"), Health.OK, "agrees"),
    ],
)
def test_clocks_are_compared(runtime, status, found):
    finding = rules.clock("broker-a", runtime, now=1060.5, took=0.01)
    assert finding is not None
    assert finding.status is status
    assert found in finding.found


def test_the_days_of_a_java_broker_have_a_comma_in_them():
    started = 1_700_000_000.0
    runtime = running(started, "[ 1,234 days, 0 hours, 0 minutes, 0 seconds ]")
    finding = rules.clock("broker-a", runtime, started + 1234 * 86400, 0.01)
    assert finding is not None
    assert finding.status is Health.OK


@pytest.mark.parametrize("runtime", [{}, {"runtime": "a while", "bootTimestamp": "1"}, {"bootTimestamp": "x"}])
def test_a_broker_that_does_not_tell_its_time_is_no_finding(runtime):
    assert rules.clock("broker-a", runtime, 1.0, 0.0) is None
    assert rules.disk("broker-a", runtime) is None


@pytest.mark.parametrize(("used", "status"), [("0.5", Health.OK), ("0.8", Health.WARN), ("0.95", Health.FAIL)])
def test_disks_are_judged_by_what_brokers_do_then(used, status):
    finding = rules.disk("broker-a", {"commitLogDiskRatio": used})
    assert finding is not None
    assert finding.status is status
    assert (finding.to_do is None) == (status is Health.OK)


def test_name_servers_that_know_different_brokers_are_told():
    both, one = frozenset({"a:1", "b:1"}), frozenset({"a:1"})
    assert rules.name_servers_agree({"n1": both, "n2": both}) == []
    [finding] = rules.name_servers_agree({"n1": both, "n2": one})
    assert finding.what == "name server n2"
    assert "does not know b:1" in finding.found


def test_the_worst_counts_and_all_is_counted():
    good, bad = Finding(Health.OK, "a", "x"), Finding(Health.FAIL, "b", "y", "z")
    warning = Finding(Health.WARN, "c", "y", "z")
    assert rules.summary([good, good]) == "2 checks, all is well"
    assert rules.summary([good, bad, warning]) == "1 fail, 1 warn, 1 ok"
    assert (rules.worst([]), rules.worst([good, warning]), rules.worst([bad, warning])) == ("ok", "warn", "fail")


# Replication

SLAVE = HAConnectionInfo(addr="10.0.0.7:40000", in_sync=True)
FAR = HAConnectionInfo(addr="10.0.0.8:40000", diff=300_000_000)


def test_a_master_that_promises_a_second_copy_needs_a_slave():
    [finding] = rules.followed("broker-a", HARuntimeInfo(master=True, broker_role="SYNC_MASTER"))
    assert finding.status is Health.FAIL
    assert "SLAVE_NOT_AVAILABLE" in finding.found
    assert rules.followed("broker-a", HARuntimeInfo(master=True, broker_role="ASYNC_MASTER")) == []
    info = HARuntimeInfo(master=True, broker_role="SYNC_MASTER", ha_connection_info=[SLAVE])
    assert [each.status for each in rules.followed("broker-a", info)] == [Health.OK]


def test_a_slave_that_is_too_far_behind_is_told():
    info = HARuntimeInfo(master=True, broker_role="SYNC_MASTER", ha_connection_info=[SLAVE, FAR])
    warning, fine = rules.followed("broker-a", info)
    assert (warning.status, fine.status) == (Health.WARN, Health.OK)
    assert "10.0.0.8:40000 is 300000000 bytes behind" in warning.found
    assert fine.found == "1 of 2 are near"


def test_a_refused_slave_is_told_once_and_forgotten_when_it_comes_no_more():
    def refusal(port: int, millis_ago: int) -> HARefusal:
        return HARefusal(addr=f"10.0.0.8:{port}", millis_ago=millis_ago, reason="its log ends at 9, this one at 8")

    again = HARuntimeInfo(master=True, refusals=[refusal(1, 11_000), refusal(2, 6000), refusal(3, 1000)])
    [finding] = rules.followed("broker-a", again)
    assert finding.status is Health.FAIL
    assert finding.found == "10.0.0.8:3 was refused 1 s ago: its log ends at 9, this one at 8"
    assert rules.followed("broker-a", HARuntimeInfo(master=True, refusals=[refusal(1, 3_600_000)])) == []


def test_slaves_are_told_by_how_they_follow():
    def row(**fields: object) -> ReplicaRow:
        return ReplicaRow("broker-a", 1, "SLAVE", "10.0.0.8:10911", **fields)  # type: ignore[arg-type]

    assert rules.follows(row(follows="10.0.0.6:10912", behind=900, behind_s=0.3)).status is Health.OK
    late = rules.follows(row(follows="10.0.0.6:10912", behind=900, behind_s=61.0))
    assert (late.status, late.found) == (Health.WARN, "61 s and 900 bytes behind 10.0.0.6:10912")
    lost = rules.follows(row(problem="master 10.0.0.6:10912: Connection refused"))
    assert (lost.status, lost.what) == (Health.FAIL, "slave 1 of broker-a")


def archive(left: int, kept: int = 0, *, hold: bool = True, behind: bool = True, archives: int = 1) -> dict[str, str]:
    table = {"archiveBeforeDelete": str(hold).lower(), "archives": str(archives), "archiveKeptFiles": str(kept)}
    table |= {"archiveKeptBytes": str(kept << 30), "lakeRetentionSeconds": str(72 * 3600)}
    table |= {"lake_headroom_seconds": str(left)} if archives else {}
    return table | ({"archiveBehind": "orders queue 3", "archiveBehindGroup": "LAKE"} if behind else {})


@pytest.mark.scenario("spark 34")
@pytest.mark.parametrize(
    ("runtime", "status", "found"),
    [
        (archive(72 * 3600, behind=False), Health.OK, "has everything"),
        (
            archive(30 * 3600),
            Health.OK,
            "orders queue 3 is not archived up to its end; the oldest such message has 1 d",
        ),
        (archive(23 * 3600, hold=False), Health.WARN, "has 23 h 0 min left"),
        (archive(5 * 3600, hold=False), Health.FAIL, "has 5 h 0 min left"),
        (archive(0, 12), Health.WARN, "has 0 s left; 12 expired files (12.0 GiB) are kept for it"),
        (archive(0, 2, archives=0), Health.WARN, "no archive has ever reported; 2 expired files"),
    ],
)
def test_an_archive_that_falls_behind_is_told_before_messages_are_lost(runtime, status, found):
    (finding,) = rules.archives("broker-a", runtime)
    assert finding.status is status
    assert found in finding.found
    assert (finding.to_do is None) == (status is Health.OK)


def test_a_broker_that_knows_no_archives_has_no_finding():
    assert rules.archives("broker-a", {}) == []
