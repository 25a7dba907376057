"""Every row of docs/spec/controller.md 2.2 to 2.13, by hand over real sockets."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import pytest

from pyromq.controller import processors as processors_module
from pyromq.controller import server as server_module
from pyromq.controller.journal import Journal
from pyromq.controller.requests import RULES

REJECTING = "Rejecting alter syncStateSet request because the"


def as_texts(**fields: object) -> dict[str, str]:
    return {key: str(value) for key, value in fields.items()}


class TestCommon:
    @pytest.mark.parametrize("code", [10, 105, 1007, 1008, 1014])
    async def test_any_other_code_is_not_supported(self, code, scene):
        reply = await scene.call(code, {})
        assert (reply.code, reply.remark) == (3, f" request type {code} not supported")

    @pytest.mark.parametrize(
        ("code", "ext", "missing"),
        [
            (904, {"clusterName": "c", "brokerAddr": "h:1"}, "brokerName"),
            (1001, {"brokerName": "b", "masterEpoch": 1}, "masterBrokerId"),
            (1002, {"brokerName": "b", "brokerId": 1, "designateElect": "false"}, "clusterName"),
            (1002, {"brokerName": "b", "clusterName": "c", "brokerId": 1}, "designateElect"),
            (1003, {"brokerName": "b", "brokerId": 1}, "brokerAddress"),
            (1004, {}, "brokerName"),
            (1011, {}, "brokerName"),
            (1012, {}, "brokerName"),
            (1013, {"brokerName": "b", "appliedBrokerId": "x", "registerCheckCode": "y"}, "appliedBrokerId"),
        ],
    )
    async def test_a_missing_field_is_named(self, code, ext, missing, scene):
        reply = await scene.call(code, ext, b"{}" if code == 1001 else b"")
        assert (reply.code, reply.remark) == (1, f"the custom field <{missing}> is null")

    async def test_who_does_not_lead_says_so(self, scene, monkeypatch):
        monkeypatch.setattr(Journal, "is_leader", property(lambda self: False))
        monkeypatch.setattr(Journal, "leader", None)
        ext = {"brokerName": "b", "clusterName": "c"}
        for code in (1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013):
            reply = await scene.call(code, ext)
            assert (reply.code, reply.remark) == (2007, "The controller is not in leader state")
        assert (await scene.call(1010)).code == 0
        reply = await scene.call(1005)
        assert (reply.code, reply.ext["isLeader"]) == (0, "false")
        assert not {"controllerLeaderId", "controllerLeaderAddress"} & reply.ext.keys()
        broker = await scene.broker()
        broker.id = 1
        await broker.beat()

    async def test_a_disk_that_hangs_is_told_in_time(self, scene, monkeypatch):
        monkeypatch.setattr(processors_module, "_DECISION_TIMEOUT", 0.1)
        broker = await scene.broker()
        going_on = threading.Event()
        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", lambda descriptor: going_on.wait(30))
            reply = await broker.call(1013, {"appliedBrokerId": 1, "registerCheckCode": "h:1;1"})
            assert (reply.code, reply.remark) == (1, "no decision on b within 0.1 s")
            # Nobody is told what is not on disk, and nothing is decided on top of it.
            assert (await scene.call(1004, {"brokerName": "b"})).code == 2008
            reply = await broker.call(1013, {"appliedBrokerId": 1, "registerCheckCode": "h:2;1"})
            assert (reply.code, reply.remark) == (1, "another decision on b is under way")
            going_on.set()
            while (await scene.call(1004, {"brokerName": "b"})).code:
                pass
        assert (await broker.call(1013, {"appliedBrokerId": 1, "registerCheckCode": "h:2;1"})).code == 2014

    async def test_the_table_has_every_code_that_is_served_and_no_other(self, start, monkeypatch):
        codes: set[int] = set()
        build = server_module.Controller._processors

        def building(*arguments):
            table = build(*arguments)
            codes.update(table)
            return table

        monkeypatch.setattr(server_module.Controller, "_processors", building)
        async with start():
            assert codes == set(RULES)

    @pytest.mark.slow
    @pytest.mark.parametrize("code", sorted(RULES))
    async def test_no_body_of_any_request_does_harm(self, code, scene):
        ext = {"brokerName": "b", "clusterName": "c", "masterBrokerId": 1, "masterEpoch": 1}
        for body in (b"", b"\0" * 1000, b"[" * 60_000, b"{" * 60_000, b"[1,{}]", b'"x"'):
            reply = await scene.call(code, ext, body)
            assert reply.code in (0, 1, 2005, 2008, 2009, 2013), reply
        assert (await scene.call(1005)).code == 0


class TestHeartbeat:
    async def test_a_beat_is_answered_if_asked_so(self, scene):
        broker = await scene.broker()
        broker.id = 1
        await broker.beat()
        reply = await broker.call(904, {"brokerAddr": "h:1"})
        assert (reply.code, reply.remark) == (2005, "Heart beat with empty brokerId")

    async def test_a_one_way_beat_counts_and_is_not_answered(self, scene):
        broker = await scene.broker()
        await broker.join()
        broker.beat_oneway()
        # The answer to the next request is the next thing that comes.
        reply = await broker.call(1006, {}, b'["b"]')
        [replica] = reply.json["replicasInfoTable"]["b"]["notInSyncReplicas"]
        assert replica["alive"] is True


class TestAlterSyncStateSet:
    async def test_checks_in_their_order(self, scene):
        reply = await scene.call(1001, {"brokerName": "zz", "masterBrokerId": 1, "masterEpoch": 1}, b"{}")
        assert (reply.code, reply.remark) == (2013, "Broker metadata is not existed")
        assert reply.ext == {"newSyncStateSetEpoch": "0"}
        one, two = await scene.group(2)
        await two.dies()
        await scene.until(lambda info: info["master"] == 1)
        questions: list[tuple[dict[str, Any], int, str]] = [
            (
                {"ids": [1]},
                2013,
                "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
            ),
            ({"ids": [1, 2], "master": 2}, 2002, f"{REJECTING} current leader is:{{1}}, not {{2}}"),
            ({"ids": [1, 2], "epoch": 7}, 2000, f"{REJECTING} current master epoch is:{{1}}, not {{7}}"),
            ({"ids": [1, 2], "set_epoch": 9}, 2001, f"{REJECTING} current syncStateSet epoch is:{{1}}, not {{9}}"),
            ({"ids": [1, 9]}, 2003, f"{REJECTING} replicas {{9}} don't exist"),
            ({"ids": [1, 2]}, 2006, f"{REJECTING} replicas {{2}} don't alive"),
            ({"ids": []}, 2013, f"{REJECTING} newSyncStateSet don't contains origin leader {{1}}"),
        ]
        for question, code, remark in questions:
            reply = await one.alter(**question)
            assert (reply.code, reply.remark) == (code, remark)
            assert (reply.ext, reply.body) == ({"newSyncStateSetEpoch": "0"}, None)

    async def test_a_set_grows_and_shrinks(self, scene):
        one, _ = await scene.group(2)
        reply = await one.alter([2, 1])
        assert (reply.code, reply.ext) == (0, {"newSyncStateSetEpoch": "2"})
        assert reply.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'
        reply = await one.alter([1], set_epoch=2)
        assert reply.body == b'{"syncStateSet":[1],"syncStateSetEpoch":3}'
        assert await one.info() == {"master": 1, "epoch": 1, "set": [1], "set_epoch": 3}


class TestElectMaster:
    async def test_the_first_one_who_asks_becomes_master(self, scene):
        one, two = await scene.broker(), await scene.broker()
        reply = await one.elect(1)
        assert (reply.code, reply.remark, reply.ext) == (2010, "Broker hasn't been registered", {})
        await one.join()
        await two.join()
        reply = await two.elect()
        assert reply.code == 0
        assert reply.ext == as_texts(masterBrokerId=2, masterAddress=two.address, masterEpoch=1, syncStateSetEpoch=1)
        addresses = f'{{"1":"{one.address}","2":"{two.address}"}}'
        members = f'{{"brokerAddrs":{addresses},"brokerName":"b","cluster":"c"}}'
        assert reply.body.decode() == f'{{"brokerMemberGroup":{members},"syncStateSet":[2]}}'

    async def test_a_living_master_stays(self, scene):
        one, two = await scene.group(2)
        reply = await two.elect()
        remark = "The old master 1 is still alive, not need to elect new master for broker b"
        assert (reply.code, reply.remark) == (2011, remark)
        assert reply.ext == as_texts(masterBrokerId=1, masterAddress=one.address, masterEpoch=1, syncStateSetEpoch=1)
        assert reply.body == b'{"syncStateSet":[1]}'

    @pytest.mark.scenario("controller 15")
    async def test_nobody_outside_the_set_is_designated(self, scene):
        _, two = await scene.group(2)
        before = await two.info()
        reply = await two.elect(designate=True)
        assert (reply.code, reply.remark, reply.ext, reply.body) == (2012, "Failed to elect a new master", {}, None)
        assert await two.info() == before

    async def test_an_election_that_finds_nobody_in_the_controllers_own_words(self, start):
        async with start("scanInactiveMasterInterval=1000000") as scene:
            one, two = await scene.group(2)
            await one.dies()
            await scene.until(lambda info: info["master"] is None)
            reply = await two.elect(-1)
            remark = "Old master has down and failed to elect a new broker master"
            assert (reply.code, reply.remark) == (2004, remark)
            assert (await two.elect()).code == 2012


class TestRegister:
    async def test_strangers_have_to_apply_first(self, scene):
        broker = await scene.broker("fx")
        broker.id = 9
        reply = await broker.register()
        assert (reply.code, reply.remark) == (2010, "Broker-set: fx hasn't been registered in controller")
        broker.id = 0
        await broker.join()
        broker.id = 9
        reply = await broker.register()
        assert (reply.code, reply.remark) == (2010, "BrokerId: 9 hasn't been registered in broker-set: fx")

    async def test_a_master_is_named_if_it_is_alive(self, scene):
        one, two = await scene.broker(), await scene.broker()
        await one.join()
        reply = await one.register()
        assert (reply.ext, reply.body) == (
            {"clusterName": "c", "brokerName": "b"},
            b'{"syncStateSet":[],"syncStateSetEpoch":0}',
        )
        await one.beat()
        await one.elect()
        await two.join()
        reply = await two.register()
        assert reply.ext == as_texts(
            clusterName="c",
            brokerName="b",
            masterBrokerId=1,
            masterAddress=one.address,
            masterEpoch=1,
            syncStateSetEpoch=1,
        )
        assert reply.json == {"syncStateSet": [1], "syncStateSetEpoch": 1}

    async def test_a_moved_master_sees_its_old_address_once(self, scene):
        [one] = await scene.group(1)
        old, one.address = one.address, "127.0.0.1:1"
        assert (await one.register()).ext["masterAddress"] == old
        assert (await one.register()).ext["masterAddress"] == "127.0.0.1:1"


class TestGroups:
    async def test_replica_info(self, scene):
        reply = await scene.call(1004, {"brokerName": "zz"})
        assert (reply.code, reply.remark) == (2008, "Broker metadata is not existed")
        one = await scene.broker()
        await one.join()
        reply = await scene.call(1004, {"brokerName": "b"})
        assert (reply.code, reply.ext) == (0, {"masterEpoch": "0"})
        assert reply.body == b'{"syncStateSet":[],"syncStateSetEpoch":0}'
        await one.elect()  # without a beat: 1004 names a master, alive or not
        reply = await scene.call(1004, {"brokerName": "b"})
        assert reply.ext == as_texts(masterEpoch=1, masterBrokerId=1, masterAddress=one.address)
        assert reply.body == b'{"syncStateSet":[1],"syncStateSetEpoch":1}'

    async def test_sync_state_data(self, scene):
        for body in (b"", b"[]"):
            reply = await scene.call(1006, {}, body)
            assert (reply.code, reply.remark) == (1, "not set any response code")
        fresh = await scene.broker("fresh")
        await fresh.join()
        one, two = await scene.group(2)
        await two.dies()
        table = None
        while table is None or table["b"]["notInSyncReplicas"][0]["alive"]:
            table = (await scene.call(1006, {}, b'["b","zz","fresh"]')).json["replicasInfoTable"]

        def replica(broker, alive):
            return {"alive": alive, "brokerAddress": broker.address, "brokerId": broker.id, "brokerName": broker.name}

        assert table == {
            "b": {
                "inSyncReplicas": [replica(one, True)],
                "masterAddress": one.address,
                "masterBrokerId": 1,
                "masterEpoch": 1,
                "notInSyncReplicas": [replica(two, False)],
                "syncStateSetEpoch": 1,
            },
            "fresh": {
                "inSyncReplicas": [],
                "masterEpoch": 0,
                "notInSyncReplicas": [replica(fresh, False)],
                "syncStateSetEpoch": 0,
            },
        }

    async def test_metadata(self, scene):
        reply = await scene.call(1005)
        address = scene.controller.address
        assert address == f"127.0.0.1:{scene.controller.port}"
        assert (reply.code, reply.ext) == (
            0,
            {
                "group": "group1",
                "controllerLeaderId": "n0",
                "controllerLeaderAddress": address,
                "isLeader": "true",
                "peers": f"n0:{address};",
            },
        )

    @pytest.mark.scenario("controller 32")
    async def test_clean(self, scene):
        one, two, three = await scene.group(3)
        await one.alter([1, 3])

        async def clean(ids=None, *, living=False, name="b"):
            ext = {"brokerName": name, "clusterName": "c", "isCleanLivingBroker": str(living).lower()}
            reply = await scene.call(1011, ext | ({"brokerControllerIdsToClean": ids} if ids else {}))
            return reply.code, reply.remark

        assert await clean() == (2009, "Broker b is still alive, clean up failure")
        assert await clean("2;1") == (2009, "Broker [b,  1] is still alive, clean up failure")
        code, remark = await clean("x")
        assert (code, remark[:60]) == (2009, "Please set the option <brokerControllerIdsToClean> according")
        assert await clean("1", name="zz") == (2009, "Broker zz is not existed,clean broker data failure.")
        assert await clean("1", living=True) == (2009, "Broker [b,  1] is the master, clean up failure")
        # a stopped one, which was in the set; the master learns of the new set by its epoch
        await three.dies()
        while (await clean("3"))[0]:
            pass
        assert await one.info() == {"master": 1, "epoch": 1, "set": [1], "set_epoch": 3}
        # a live one, by name and by force
        assert await clean("2") == (2009, "Broker [b,  2] is still alive, clean up failure")
        assert await clean("2", living=True) == (0, None)
        assert (await two.register()).code == 2010
        # the ids go on
        assert (await scene.call(1012, {"brokerName": "b"})).ext == {"brokerName": "b", "nextBrokerId": "4"}
        # everything
        assert await clean(living=True) == (0, None)
        assert (await scene.call(1004, {"brokerName": "b"})).code == 2008
        assert (await scene.call(1012, {"brokerName": "b"})).ext["nextBrokerId"] == "1"


class TestIds:
    async def test_next_id_reserves_nothing(self, scene):
        for _ in range(2):
            reply = await scene.call(1012, {"brokerName": "fx", "clusterName": "c"})
            assert (reply.code, reply.ext) == (0, as_texts(clusterName="c", brokerName="fx", nextBrokerId=1))

    async def test_an_id_is_applied_for(self, scene):
        async def apply(broker_id, code="h:1;1000", name="fx"):
            asked = {"brokerName": name, "clusterName": "c", "appliedBrokerId": broker_id, "registerCheckCode": code}
            return await scene.call(1013, asked)

        reply = await apply(2, name="zz")
        remark = "Broker-set: zz hasn't been registered in controller, but broker try to apply brokerId: 2"
        assert (reply.code, reply.remark) == (2014, remark)
        for broker_id in (1, 5, 2):
            reply = await apply(broker_id)
            assert (reply.code, reply.ext) == (0, {"clusterName": "c", "brokerName": "fx"})
        # RocketMQ says 4 here, and meets the taken 5 next.
        assert (await scene.call(1012, {"brokerName": "fx"})).ext["nextBrokerId"] == "6"
        assert (await apply(1)).code == 0
        reply = await apply(1, "h:1;2000")
        assert (reply.code, reply.remark) == (2014, "Fail to apply brokerId: 1 in broker-set: fx")


class TestSettings:
    async def test_they_are_listed_and_changed(self, scene, tmp_path):
        reply = await scene.call(1010)
        lines = dict(line.split("=", 1) for line in reply.body.decode().splitlines())
        assert [*lines] == sorted(lines)
        assert lines["enableElectUncleanMaster"] == "false"
        assert lines["controllerDLegerGroup"] == "group1"
        assert lines["jRaftElectionTimeoutMs"] == "1000"
        reply = await scene.call(1009, {}, b"enableElectUncleanMaster=true")
        assert (reply.code, reply.remark) == (0, None)
        assert "enableElectUncleanMaster=true" in (await scene.call(1010)).body.decode()
        assert "enableElectUncleanMaster=true" in (tmp_path / "controller.properties").read_text()

    @pytest.mark.parametrize(
        ("text", "code", "remark"),
        [
            (b"configStorePath=/x", 16, "Can not update config in black list."),
            (b"rocketmqHome=/x", 16, "Can not update config in black list."),
            (rb"a=\uXXXX", 1, "string2Properties error"),
        ],
    )
    async def test_what_may_not_change_is_refused(self, text, code, remark, scene):
        reply = await scene.call(1009, {}, text)
        assert (reply.code, reply.remark) == (code, remark)

    async def test_a_change_that_no_start_would_take_is_refused(self, scene):
        reply = await scene.call(1009, {}, b"controllerDLegerPeers=n0-a:1;n1-b:2")
        assert reply.code == 1
        assert "more than one needs controllerStore=etcd" in reply.remark


async def test_what_is_not_json_is_an_error_of_the_sender(scene):
    reply = await scene.call(1001, {"brokerName": "b", "masterBrokerId": 1, "masterEpoch": 1}, b"no")
    assert reply.code == 1
    reply = await scene.call(1006, {}, json.dumps({"a": 1}).encode())
    assert (reply.code, reply.remark) == (1, "the body must be a list of broker names")
