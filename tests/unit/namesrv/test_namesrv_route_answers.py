"""105: the way with kept bodies gives the same replies as the way without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.settings_kit import change as changed

from pyromq.errors import BrokerError, MissingField, ServerError, TopicNotFound
from pyromq.namesrv import load_settings
from pyromq.namesrv.kv_config import KVConfig
from pyromq.namesrv.live_settings import LiveSettings
from pyromq.namesrv.route_answers import RouteAnswers
from pyromq.namesrv.routes import Registration, RouteTables
from pyromq.protocol.bodies import DataVersion, TopicConfig, TopicRouteData
from pyromq.protocol.command import Command, SerializeType

NOBODY: Any = None  # who asks plays no part


class World(SimpleNamespace):
    """A name server without a network, and a clock that is a number."""

    def __init__(self, *sets: str) -> None:
        self.now = 0
        self.tables = RouteTables()
        self.kv_config = KVConfig()
        self.settings = LiveSettings(load_settings(sets=sets))
        self.answers = RouteAnswers(self.tables, self.kv_config, self.settings, lambda: self.now)

    def register(self, counter=1, topics=("T",), name="b", address="10.0.0.1:10911", **more):
        configs = {topic: TopicConfig(topic_name=topic) for topic in topics}
        self.tables.register(
            Registration(
                cluster="c",
                broker_name=name,
                broker_id=0,
                address=address,
                ha_address="",
                data_version=DataVersion(counter=counter),
                topics=configs,
                **more,
            ),
            "connection",
            self.now,
        )

    def ask(self, topic="T", **ext):
        """The reply as code and body, after checking that both ways agree on it and that nothing else was touched."""
        request = Command(105, opaque=9, serialize=SerializeType.ROCKETMQ, ext={"topic": topic} | ext)
        replies = [outcome(self.answers.answer, NOBODY, request), outcome(self.answers.answer_plainly, request)]
        replies.append(outcome(self.answers.answer, NOBODY, request))
        assert replies[0] == replies[1] == replies[2]
        return replies[0]


def outcome(function, *args):
    try:
        reply = function(*args)
    except BrokerError as exc:
        return exc.code, exc.remark
    assert (reply.opaque, reply.serialize, reply.flag, reply.ext) == (9, SerializeType.ROCKETMQ, 1, None)
    return reply.code, reply.body


def route(world, topic="T", **ext):
    code, body = world.ask(topic, **ext)
    assert code == 0
    return TopicRouteData.decode(body)


def test_a_body_is_kept_until_the_tables_change():
    world = World()
    world.register()
    request = Command(105, ext={"topic": "T"})
    first = world.answers.answer(NOBODY, request).body
    assert world.answers.answer(NOBODY, request).body is first
    world.register()  # the same once more is no change
    assert world.answers.answer(NOBODY, request).body is first
    world.register(2, ["T", "T2"])
    assert world.answers.answer(NOBODY, request).body == first
    assert world.answers.answer(NOBODY, request).body is not first


def test_every_change_of_the_tables_is_seen_by_the_next_question():
    world = World()
    assert world.ask()[0] == 17
    world.register()
    assert [data.broker_name for data in route(world).broker_datas] == ["b"]
    world.register(name="b2", address="10.0.0.2:10911")
    assert [data.broker_name for data in route(world).broker_datas] == ["b", "b2"]
    world.tables.wipe_write_perm("b")
    assert [data.perm for data in route(world).queue_datas] == [4, 6]
    world.tables.unregister("b", "10.0.0.1:10911")
    assert [data.broker_name for data in route(world).broker_datas] == ["b2"]
    world.register(name="b2", address="10.0.0.2:10911", filter_servers=["f"])
    assert route(world).filter_server_table == {"10.0.0.2:10911": ["f"]}
    world.tables.delete_topic("T")
    assert world.ask()[0] == 17


def test_changes_of_kv_config_and_settings_are_seen_after_forget():
    world = World()
    world.register()
    world.kv_config.put("ORDER_TOPIC_CONFIG", "T", "b:4")
    world.answers.forget()
    assert route(world).order_topic_conf is None
    changed(world.settings, b"orderMessageEnable=true", "admin")
    world.answers.forget()
    assert route(world).order_topic_conf == "b:4"


def test_a_zone_gets_its_own_body_and_spoils_nobody_elses():
    world = World()
    world.register(zone="east")
    world.register(name="b2", address="10.0.0.2:10911", zone="west")
    assert len(route(world).broker_datas) == 2
    assert len(route(world, __ZONE_MODE="true", __ZONE_NAME="west").broker_datas) == 1
    assert len(route(world).broker_datas) == 2


def test_nothing_is_answered_before_the_service_is_ready():
    world = World("needWaitForService=true", "waitSecondsForService=45")
    world.register()
    world.now = 44_999
    assert world.ask() == (1, "name server not ready")
    world.now = 45_000
    assert world.ask()[0] == 0


def test_a_question_without_topic_names_what_is_missing():
    for request in (Command(105), Command(105, ext={})):
        with pytest.raises(MissingField, match="topic"):
            World().answers.answer(NOBODY, request)


def test_the_remark_for_an_unknown_topic_starts_with_the_line_people_search_for():
    with pytest.raises(TopicNotFound, match=r"^No topic route info in name server for the topic: nope\n"):
        World().answers.answer(NOBODY, Command(105, ext={"topic": "nope"}))


def test_an_unready_service_is_a_server_error():
    with pytest.raises(ServerError):
        World("needWaitForService=true").answers.answer(NOBODY, Command(105, ext={"topic": "T"}))
