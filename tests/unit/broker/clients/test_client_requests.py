"""What clients ask about clients, processor by processor: real tables, no loop, no socket."""

from __future__ import annotations

import json

import pytest

from pyromq.auth import Anyone, RequestGuard
from pyromq.auth.refusals import Refusals
from pyromq.broker.clients.connected import Clients
from pyromq.broker.clients.queue_locks import QueueLocks
from pyromq.broker.clients.requests import ClientProcessors, LockProcessors
from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.context import Tables
from pyromq.broker.filters.consumer_filters import Filters
from pyromq.broker.groups import GroupTable
from pyromq.broker.offsets.consumer_offsets import ConsumerOffsets
from pyromq.broker.topics import TopicTable
from pyromq.errors import BrokerError, MissingField, RemoteProtocolError
from pyromq.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionGroupConfig
from pyromq.protocol.command import Command, Language

# Heartbeats of the group g, which subscribes topic T with tag A, and of the producer group p, in the words of each.
HEARTBEATS = {
    "java 4.9": (
        b'{"clientID":"192.0.2.7@4711#88","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":'
        b'[{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG","subString":"A","subVersion":1700000000123,'
        b'"tagsSet":["A"],"topic":"T"}],"unitMode":false}],"producerDataSet":[{"groupName":"p"}]}'
    ),
    "java 5.5": (
        b'{"clientID":"192.0.2.7@4711#88","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":'
        b'[{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG","subString":"A","subVersion":1700000000123,'
        b'"tagsSet":["A"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":'
        b'[{"groupName":"p"}],"withoutSub":false}'
    ),
    "go": (
        b'{"clientID":"192.0.2.7@4711#88","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"subscriptionDataSet":[{"classFilterMode":false,"topic":"T","subString":"A","tagsSet":["A"],"codeSet":["65"],'
        b'"subVersion":1700000000123,"expressionType":"TAG"}],"unitMode":false}]}'
    ),
    "node": (
        b'{"clientID":"192.0.2.7@4711#88","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"groupName":"g","unitMode":false,"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"subscriptionDataSet":[{"topic":"T","subString":"A","classFilterMode":false,"tagsSet":["A"],"codeSet":[65],'
        b'"subVersion":1700000000123}]}],"producerDataSet":[{"groupName":"p"}]}'
    ),
    "c++": (
        b'{"clientID":"192.0.2.7@4711#88","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g",'
        b'"messageModel":1,"subscriptionDataSet":[{"codeSet":["65"],"subString":"A","subVersion":"1700000000123",'
        b'"tagsSet":["A"],"topic":"T"}]}],"producerDataSet":[{"groupName":"p"}]}\n'
    ),
}
CLIENT_ID = "192.0.2.7@4711#88"


class FakeConnection:
    peer = "192.0.2.7:5123"


def connection():
    return FakeConnection()


class Scene:
    """The tables of a broker, and a client that asks."""

    def __init__(self, **config):
        self.now = 1_700_000_000_000
        self.told: list[str] = []
        live = LiveConfig.of(BrokerConfig(broker_name="b", broker_ip1="192.0.2.1", broker_ip2="192.0.2.1", **config))
        self.clients = Clients(lambda group, connections: self.told.append(group))
        self.topics = TopicTable(live, self.clock)
        self.groups = GroupTable(live, self.clock)
        self.filters = Filters(live, self.clock)
        tables = Tables(
            topics=self.topics,
            groups=self.groups,
            offsets=ConsumerOffsets(),
            filters=self.filters,
            clients=self.clients,
        )
        self.clients.emptied = self.filters.unregister
        self.processors = {
            **ClientProcessors(
                live,
                self.clock,
                self.clock,
                tables,
                lambda response, **made: response,
                guard=RequestGuard({}, Anyone(), Refusals()),
            ).table(),
            **LockProcessors(QueueLocks(), self.clock).table(),
        }
        self.connection = connection()

    def clock(self):
        return self.now

    def call(self, code, ext=None, body=None, *, on=None, language=Language.JAVA, version=409):
        body = json.dumps(body).encode() if isinstance(body, dict) else body
        request = Command(code, language, version, opaque=5, ext=ext, body=body)
        return self.processors[code](on or self.connection, request)

    def refused(self, code, ext=None, body=None):
        with pytest.raises(BrokerError) as error:
            self.call(code, ext, body)
        return error.value.code, error.value.remark

    def beat(self, who="java 4.9", **more):
        return self.call(34, body=HEARTBEATS[who], **more)


@pytest.fixture
def scene():
    return Scene()


class TestHeartbeat:
    @pytest.mark.parametrize("who", HEARTBEATS)
    def test_each_client_is_understood(self, scene, who):
        scene.beat(who)
        group = scene.clients.consumer_group("g")
        assert group.message_model is MessageModel.CLUSTERING
        assert group.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        wanted = group.subscriptions["T"]
        assert (wanted.sub_string, wanted.code_set, wanted.tags_set) == ("A", {65}, {"A"})
        assert (wanted.sub_version, wanted.expression_type) == (1700000000123, "TAG")
        assert scene.clients.find_consumer("g", CLIENT_ID) is not None
        assert scene.clients.producer_connection(CLIENT_ID) is scene.connection

    def test_the_answer_has_a_version_and_no_fields(self, scene):
        answer = scene.beat()
        # Java selects by SQL only if the version says so, and 5.x omits subscriptions if a field invites it to.
        assert (answer.code, answer.version, answer.ext, answer.body) == (0, 409, None, None)

    def test_group_and_retry_topic_exist_from_then_on(self, scene):
        scene.groups.update(SubscriptionGroupConfig(group_name="wide", retry_queue_nums=3))
        scene.beat()
        scene.call(34, body={"clientID": "c", "consumerDataSet": [{"groupName": "wide", "unitMode": True}]})
        assert scene.groups.find("g") is not None
        retry = scene.topics.get("%RETRY%g")
        assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm, retry.topic_sys_flag) == (1, 1, 6, 0)
        wide = scene.topics.get("%RETRY%wide")
        assert (wide.read_queue_nums, wide.topic_sys_flag) == (3, 2)

    def test_a_second_one_changes_no_table(self, scene):
        scene.beat()
        versions = scene.groups.data_version, scene.topics.data_version
        scene.beat()
        assert (scene.groups.data_version, scene.topics.data_version) == versions
        assert scene.told == ["g"]

    def test_a_group_that_may_not_be_made_is_registered_without_a_retry_topic(self):
        scene = Scene(auto_create_group=False)
        assert scene.beat().code == 0
        assert scene.clients.consumer_group("g") is not None
        assert scene.groups.find("g") is None
        assert scene.topics.get("%RETRY%g") is None

    def test_a_group_can_be_left_in_peace(self, scene):
        scene.groups.update(SubscriptionGroupConfig(group_name="g", notify_consumer_ids_changed_enable=False))
        scene.beat()
        scene.beat(on=connection())
        scene.call(35, {"clientID": CLIENT_ID, "consumerGroup": "g"})
        assert len(scene.clients.consumer_group("g").connections) == 1
        assert scene.told == []

    @pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b'{"consumerDataSet":[]}', b'{"clientID":"c","x":'])
    def test_one_that_cannot_be_read_is_an_error_and_registers_nobody(self, scene, body):
        with pytest.raises(RemoteProtocolError):
            scene.call(34, body=body)
        assert scene.clients.expire(2**62) == []


class TestLeaving:
    def test_a_client_leaves_the_groups_that_it_names(self, scene):
        scene.beat()
        answer = scene.call(35, {"clientID": CLIENT_ID, "producerGroup": "p", "consumerGroup": "g"})
        assert answer.code == 0
        assert scene.clients.consumer_group("g") is None
        assert scene.clients.producer_group("p") is None

    @pytest.mark.parametrize("ext", [None, {}, {"clientID": "stranger", "consumerGroup": "nobody's"}])
    def test_whoever_was_never_there_may_leave_too(self, scene, ext):
        scene.beat()
        assert scene.call(35, ext).code == 0
        assert scene.clients.consumer_group("g") is not None
        assert scene.groups.find("nobody's") is None


class TestMembers:
    def test_a_group_lists_the_ids_of_its_members_one_per_connection(self, scene):
        scene.beat()
        scene.beat(on=connection())
        assert scene.call(38, {"consumerGroup": "g"}).body == (
            b'{"consumerIdList":["192.0.2.7@4711#88","192.0.2.7@4711#88"]}'
        )

    def test_a_group_without_members_is_an_error(self, scene):
        assert scene.refused(38, {"consumerGroup": "g"}) == (1, "no consumer for this group, g")

    def test_consumer_connections(self, scene):
        scene.beat(language=Language.CPP, version=63)
        answer = json.loads(scene.call(203, {"consumerGroup": "g"}).body)
        wanted = answer["subscriptionTable"].pop("T")
        assert (wanted["subString"], wanted["subVersion"]) == ("A", 1700000000123)
        assert answer == {
            "connectionSet": [
                {"clientAddr": "192.0.2.7:5123", "clientId": CLIENT_ID, "language": "CPP", "version": 63}
            ],
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "subscriptionTable": {},
        }

    def test_consumer_connections_of_a_group_that_is_not_online(self, scene):
        assert scene.refused(203, {"consumerGroup": "g"}) == (206, "the consumer group[g] not online")

    def test_producer_connections(self, scene):
        scene.beat()
        assert scene.call(204, {"producerGroup": "p"}).body == (
            b'{"connectionSet":[{"clientAddr":"192.0.2.7:5123","clientId":"192.0.2.7@4711#88","language":"JAVA",'
            b'"version":409}]}'
        )
        assert scene.refused(204, {"producerGroup": "q"}) == (1, "the producer group[q] not exist")

    def test_all_producers(self, scene):
        assert scene.call(328).body == b'{"data":{}}'
        scene.beat()
        assert scene.call(328).body == (
            b'{"data":{"p":[{"clientId":"192.0.2.7@4711#88","language":"JAVA","lastUpdateTimestamp":1700000000000,'
            b'"remoteIP":"/192.0.2.7:5123","version":409}]}}'
        )

    @pytest.mark.parametrize(("code", "field"), [(38, "consumerGroup"), (203, "consumerGroup"), (204, "producerGroup")])
    def test_a_group_has_to_be_named(self, scene, code, field):
        with pytest.raises(MissingField) as error:
            scene.call(code)
        assert error.value.field == field


class TestFilters:
    def test_a_heartbeat_registers_filters_which_die_with_the_last_member(self, scene):
        body = HEARTBEATS["java 4.9"].replace(b'"TAG","subString":"A"', b'"SQL92","subString":"a > 5"')
        other = connection()
        scene.call(34, body=body)
        scene.call(34, body=body, on=other)
        data = scene.filters.get("T", "g")
        assert (data.expression, data.client_version) == ("a > 5", 1700000000123)
        scene.clients.closed(scene.connection)
        assert not data.is_dead
        scene.call(35, {"clientID": CLIENT_ID, "consumerGroup": "g"}, on=other)
        assert data.is_dead
        scene.call(34, body=body)
        assert not data.is_dead
        scene.now += 121_000
        scene.clients.expire(scene.now)
        assert data.is_dead


class TestClientConfig:
    @pytest.mark.parametrize("kind", ["TAG", "", None])
    def test_tags_are_always_possible(self, scene, kind):
        subscription = {"topic": "T", "subString": "A", "expressionType": kind}
        assert scene.call(46, body={"clientId": "c", "group": "g", "subscriptionData": subscription}).code == 0

    @pytest.mark.scenario("broker 7.1")
    def test_sql_is_not_unless_it_is_allowed(self, scene):
        subscription = {"topic": "T", "subString": "a > 5", "expressionType": "SQL92"}
        code, remark = scene.refused(46, body={"clientId": "c", "group": "g", "subscriptionData": subscription})
        assert (code, remark) == (1, "The broker does not support consumer to filter message by SQL92")

    @pytest.mark.parametrize(
        ("kind", "text", "answer"),
        [
            ("SQL92", "a > 5", None),
            ("SQL92", "a >", (23, "Invalid MessageSelector. column 4: expected a value, found the end")),
            ("SQL92", "", (23, "Invalid MessageSelector. column 1: expected a value, found the end")),
            ("XPATH", "a", (23, "Invalid MessageSelector. column 1: unknown filter type XPATH")),
        ],
    )
    def test_an_expression_is_tried(self, kind, text, answer):
        scene = Scene(enable_property_filter=True)
        subscription = {"topic": "T", "subString": text, "expressionType": kind}
        body = {"clientId": "c", "group": "g", "subscriptionData": subscription}
        if answer is None:
            assert scene.call(46, body=body).code == 0
        else:
            assert scene.refused(46, body=body) == answer

    def test_it_has_to_name_a_subscription(self, scene):
        with pytest.raises(RemoteProtocolError, match="subscriptionData"):
            scene.call(46, body={"clientId": "c", "group": "g"})


def locking(client_id, *queue_ids):
    queues = [{"brokerName": "b", "queueId": queue_id, "topic": "T"} for queue_id in queue_ids]
    return {"clientId": client_id, "consumerGroup": "g", "mqSet": queues, "onlyThisBroker": False}


def locked(scene, client_id, *queue_ids):
    answer = json.loads(scene.call(41, body=locking(client_id, *queue_ids)).body)
    return [queue["queueId"] for queue in answer["lockOKMQSet"]]


class TestLocks:
    @pytest.mark.scenario("broker 10.1")
    def test_a_queue_is_locked_by_one_client(self, scene):
        assert locked(scene, "A", 0) == [0]
        assert locked(scene, "B", 0, 1) == [1]

    @pytest.mark.scenario("broker 10.2")
    def test_the_lock_of_a_client_that_died_lasts_a_minute(self, scene):
        locked(scene, "A", 0)
        scene.now += 30_000
        assert locked(scene, "B", 0) == []
        scene.now += 31_000
        assert locked(scene, "B", 0) == [0]

    def test_a_client_gives_its_locks_back(self, scene):
        locked(scene, "A", 0, 1)
        answer = scene.call(42, body=locking("A", 0))
        assert (answer.code, answer.body) == (0, None)
        assert locked(scene, "B", 0, 1) == [0]

    def test_the_answer_is_written_as_java_does(self, scene):
        assert scene.call(41, body=locking("A", 3)).body == (
            b'{"lockOKMQSet":[{"brokerName":"b","queueId":3,"topic":"T"}]}'
        )

    @pytest.mark.parametrize("code", [41, 42])
    def test_a_request_without_a_body_is_an_error(self, scene, code):
        with pytest.raises(RemoteProtocolError):
            scene.call(code)
