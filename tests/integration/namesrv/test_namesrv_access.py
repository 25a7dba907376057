"""Who may change a name server: anybody near, or an administrator with access control."""

from __future__ import annotations

import json
import logging

import pytest
from tests.integration.broker.account_kit import SECRET, account, signed_ext, write_accounts
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.scene_kit import running
from tests.integration.namesrv.raw_client import RawClient, json_request

from pyromq.errors import ConfigError
from pyromq.namesrv import NameServer, load_settings
from pyromq.remoting.addresses import is_loopback, local_address

HERE = "127.0.0.1"
CHANGES = {
    100: {"namespace": "n", "key": "k", "value": "v"},
    102: {"namespace": "n", "key": "k"},
    205: {"brokerName": "b"},
    216: {"topic": "t"},
    327: {"brokerName": "b"},
}
REGISTRATION = (
    {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "brokerId": 0, "haServerAddr": "h:1"},
    json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": {}}, "filterServerList": []}).encode(),
)


def name_server(folder, *sets):
    files = [f"kvConfigPath={folder}/kv.json", f"configStorePath={folder}/namesrv.properties"]
    return NameServer(load_settings(sets=[*files, "listenPort=0", *sets]))


async def ask(server, code, ext=None, body=b"", *, host=HERE, account=None, secret=SECRET):
    client = await RawClient.connect(server.port, host)
    try:
        client.send(json_request(code, signed_ext(ext, body, account, secret) if account else ext, body))
        return await client.receive()
    finally:
        await client.close()


@pytest.fixture
def elsewhere():
    """An address of this machine by which it looks like another."""
    address = local_address()
    if is_loopback(address):
        pytest.skip("this machine has no network")
    return address


@pytest.mark.scenario("admin 46")
async def test_settings_are_not_changed_from_afar(tmp_path, elsewhere, caplog):
    async with name_server(tmp_path) as server:
        stolen = b"configStorePath=/tmp/stolen\n"
        reply = await ask(server, 318, body=stolen, host=elsewhere)
        assert (reply.code, "adminAllowCidr" in reply.remark) == (16, True)
        assert f"refused request 318 of '' from {elsewhere}: " in caplog.text
        # From near it is possible, but not for this key.
        reply = await ask(server, 318, body=stolen)
        assert (reply.code, reply.remark) == (16, "Can not update config in black list.")
        assert (await ask(server, 318, body=b"orderMessageEnable=true\n")).code == 0
        reply = await ask(server, 318, body=b"orderMessageEnable=true\n", host=elsewhere)
        assert reply.code == 16


async def test_a_network_that_was_allowed_changes_settings(tmp_path, elsewhere):
    async with name_server(tmp_path, f"adminAllowCidr=203.0.113.0/24, {elsewhere}/32") as server:
        assert (await ask(server, 318, body=b"orderMessageEnable=true\n", host=elsewhere)).code == 0


async def test_a_network_that_is_none_stops_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"adminAllowCidr: .*10\.0\.0\.0/33"):
        name_server(tmp_path, "adminAllowCidr=10.0.0.0/33")


@pytest.mark.parametrize("code", CHANGES)
async def test_other_changes_are_open_without_access_control_and_logged(tmp_path, code, caplog):
    caplog.set_level(logging.INFO)
    async with name_server(tmp_path) as server:
        assert (await ask(server, code, CHANGES[code])).code != 16
    assert f"request {code} of 127.0.0.1:" in caplog.text


@pytest.mark.parametrize("code", [*CHANGES, 318])
async def test_with_access_control_changes_are_for_administrators(tmp_path, code):
    write_accounts(tmp_path, account("somebody", more=", defaultTopicPerm: PUB|SUB"))
    async with name_server(tmp_path, "aclEnable=true") as server:
        ext, body = CHANGES.get(code), b"orderMessageEnable=true\n" if code == 318 else b""
        reply = await ask(server, code, ext, body)
        assert (reply.code, reply.remark) == (16, "No accessKey is configured")
        reply = await ask(server, code, ext, body, account="somebody")
        need = f"Need admin permission for request code={code}, but accessKey=somebody is not"
        assert (reply.code, reply.remark) == (16, need)
        reply = await ask(server, code, ext, body, account="administrator", secret="another-secret")
        assert (reply.code, reply.remark) == (16, "Check signature failed for accessKey=administrator")
        assert (await ask(server, code, ext, body, account="administrator")).code != 16


async def test_what_clients_and_brokers_ask_stays_open(tmp_path):
    write_accounts(tmp_path)
    async with name_server(tmp_path, "aclEnable=true") as server:
        assert (await ask(server, 105, {"topic": "t"})).code == 17
        assert (await ask(server, 106)).code == 0
        assert (await ask(server, 206)).code == 0
        assert (await ask(server, 103, *REGISTRATION)).code == 0


@pytest.mark.parametrize("code", [103, 104, 904, 217])
async def test_strangers_do_not_pose_as_brokers_if_only_known_ones_are_wanted(tmp_path, code):
    write_accounts(tmp_path, account("somebody"))
    async with name_server(tmp_path, "aclEnable=true", "knownBrokersOnly=true") as server:
        reply = await ask(server, code, *REGISTRATION)
        assert (reply.code, reply.remark) == (16, "No accessKey is configured")
        assert (await ask(server, code, *REGISTRATION, account="somebody")).code == 16
        assert (await ask(server, code, *REGISTRATION, account="administrator")).code != 16
        # Clients need no account here.
        assert (await ask(server, 106)).code == 0


@pytest.mark.slow
async def test_our_brokers_sign_when_they_register(tmp_path):
    path = write_accounts(tmp_path)
    own = f'innerClientAuthenticationCredentials={{"accessKey":"administrator","secretKey":"{SECRET}"}}'
    async with name_server(tmp_path, "aclEnable=true", "knownBrokersOnly=true") as server:
        here = f"127.0.0.1:{server.port}"
        on = ("aclEnable=true", f"rocketmq.acl.plain.file={path}", own)
        async with running(tmp_path / "store", *on, namesrv_addr=here):

            async def registered():
                return (await ask(server, 106)).json["brokerAddrTable"]

            assert "broker-a" in await eventually(registered)
        assert (await ask(server, 106)).json["brokerAddrTable"] == {}
        assert not server._access.refusals.total


async def test_known_brokers_are_known_by_access_control(tmp_path):
    with pytest.raises(ConfigError, match="knownBrokersOnly needs access control"):
        name_server(tmp_path, "knownBrokersOnly=true")


async def test_accounts_of_a_name_server_are_followed(tmp_path):
    write_accounts(tmp_path)
    async with name_server(tmp_path, "aclEnable=true") as server:
        assert (await ask(server, 319, account="another-admin")).code == 16
        write_accounts(tmp_path, account("another-admin", more=", admin: true"))
        server.reload()

        async def known():
            return (await ask(server, 319, account="another-admin")).code == 0

        await eventually(known)
