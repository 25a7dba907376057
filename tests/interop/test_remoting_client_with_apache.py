"""Our remoting client asks Apache's own name servers, in both header serialisations and over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.interop.peers import NameServer

from pyromq.protocol.bodies import (
    ClusterInfo,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    body_crc32,
)
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import PROTOCOL_VERSION, Command, SerializeType
from pyromq.protocol.headers import (
    GetKVConfig,
    GetKVConfigReply,
    GetKVListByNamespace,
    GetRouteInfo,
    PutKVConfig,
    RegisterBroker,
)
from pyromq.remoting import RemotingClient, TlsConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.interop

ADDRESS = "10.0.0.1:10911"
# Two topics: a 5.x name server refuses the first registration of a broker that has only one.
TOPICS = [TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4) for name in ("orders", "bills")]


@pytest.fixture(scope="module", params=["apache-5.5.0", "apache-4.9.7"])
def namesrv(
    request: pytest.FixtureRequest, java_packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NameServer]:
    with NameServer(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(params=SerializeType, ids=lambda serialize: serialize.name)
def serialize(request: pytest.FixtureRequest) -> SerializeType:
    return SerializeType(request.param)


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[RemotingClient]:
    async with RemotingClient(tls=TlsConfig(client_enable=request.param)) as client:
        yield client


@pytest.mark.parametrize("compressed", [False, True], ids=["json-body", "compressed-body"])
async def test_a_broker_that_we_register_shows_in_routes_and_cluster_info(
    namesrv: NameServer, client: RemotingClient, serialize: SerializeType, compressed: bool
) -> None:
    async def ask(request: Command) -> Command:
        request.serialize = serialize
        return await client.invoke(namesrv.address, request)

    topics = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=1, timestamp=1), topic_config_table={each.topic_name: each for each in TOPICS}
    )
    registration = RegisterBrokerBody(topic_config_serialize_wrapper=topics)
    body = registration.encode_compressed(PROTOCOL_VERSION) if compressed else registration.encode()
    header = RegisterBroker("rack1", ADDRESS, "c1", "10.0.0.1:10912", 0, compressed, body_crc32(body))
    registered = await ask(Command.request(RequestCode.REGISTER_BROKER, header, body))
    assert registered.code == ResponseCode.SUCCESS, registered.remark

    found = await ask(Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo("orders")))
    route = TopicRouteData.decode(found.body_bytes)
    assert [(data.cluster, data.broker_name, data.broker_addrs) for data in route.broker_datas] == [
        ("c1", "rack1", {0: ADDRESS})
    ]
    assert [(data.broker_name, data.write_queue_nums, data.perm) for data in route.queue_datas] == [("rack1", 4, 6)]

    # Java leaves the broker ids in this body without quotes.
    info = ClusterInfo.decode((await ask(Command.request(RequestCode.GET_BROKER_CLUSTER_INFO))).body_bytes)
    assert info.cluster_addr_table == {"c1": ["rack1"]}
    assert info.broker_addr_table["rack1"].broker_addrs == {0: ADDRESS}

    unknown = await ask(Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo("nothing")))
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    assert unknown.remark is not None
    assert unknown.remark.startswith("No topic route info in name server for the topic: nothing")


async def test_kv_config_is_put_listed_read_and_deleted(
    namesrv: NameServer, client: RemotingClient, serialize: SerializeType
) -> None:
    async def ask(request: Command) -> Command:
        request.serialize = serialize
        return await client.invoke(namesrv.address, request)

    key = GetKVConfig("interop", "größe")
    put = await ask(Command.request(RequestCode.PUT_KV_CONFIG, PutKVConfig("interop", "größe", "µ = 1")))
    assert put.code == ResponseCode.SUCCESS, put.remark
    read = await ask(Command.request(RequestCode.GET_KV_CONFIG, key))
    assert read.header(GetKVConfigReply).value == "µ = 1"
    listed = await ask(Command.request(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespace("interop")))
    assert KVTable.decode(listed.body_bytes).table == {"größe": "µ = 1"}
    deleted = await ask(Command.request(RequestCode.DELETE_KV_CONFIG, key))
    assert deleted.code == ResponseCode.SUCCESS, deleted.remark
    assert (await ask(Command.request(RequestCode.GET_KV_CONFIG, key))).code == ResponseCode.QUERY_NOT_FOUND
