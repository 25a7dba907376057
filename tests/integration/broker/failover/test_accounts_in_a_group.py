"""A group that fails over with aclEnable everywhere: brokers and controllers sign what they ask each other."""

from __future__ import annotations

import contextlib

import pytest
from tests.integration.broker.account_kit import SECRET, account, connect, write_accounts
from tests.integration.broker.failover.group_kit import (
    FailoverGroup,
    in_sync,
    is_master,
    is_slave,
    member,
    new_controller,
)
from tests.integration.broker.life_kit import new_broker, new_name_server

from pyromq.errors import ConfigError
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.remoting import RemotingClient

ACL = "aclEnable=true"
OWN = f'innerClientAuthenticationCredentials={{"accessKey":"administrator","secretKey":"{SECRET}"}}'


@pytest.fixture
def files(tmp_path):
    path = write_accounts(
        tmp_path / "accounts", account("orders-sender", topics=["T=PUB"]), account("stranger", groups=["g=SUB"])
    )
    return ACL, f"rocketmq.acl.plain.file={path}"


@pytest.mark.slow
async def test_brokers_and_controllers_sign_what_they_ask_each_other(tmp_path, files):
    async with (
        new_name_server(tmp_path) as name_server,
        new_controller(tmp_path, *files, OWN) as controller,
        contextlib.AsyncExitStack() as life,
    ):
        group = FailoverGroup(tmp_path, name_server, controller, life)
        master = await group.start("a", *files, OWN)
        await is_master(master)
        slave = await group.start("b", *files, OWN)
        await is_slave(slave)
        await in_sync(master, member(master).broker_id, member(slave).broker_id)
        await (await connect(master, "orders-sender")).sent(b"hello")
        await group.stop("a")
        await is_master(slave)
        reader = await connect(slave, "administrator")
        assert [message.body for message in await reader.read()] == [b"hello"]
        for each in (controller, slave.broker):
            assert not each._access.refusals.total
        async with RemotingClient() as stranger:
            reply = await stranger.invoke(controller.address, Command.request(RequestCode.CONTROLLER_ELECT_MASTER))
            assert (reply.code, reply.remark) == (16, "No accessKey is configured")
            # Whom to ask is known to everybody.
            reply = await stranger.invoke(controller.address, Command.request(RequestCode.CONTROLLER_GET_METADATA_INFO))
            assert reply.code == 0


@pytest.mark.slow
async def test_a_slave_that_asks_for_others_does_not_lend_them_its_rights(tmp_path, files):
    """It passes requests on under its own account, and only the master knows which topic is meant by a place."""
    async with (
        new_name_server(tmp_path) as name_server,
        new_controller(tmp_path, *files, OWN) as controller,
        contextlib.AsyncExitStack() as life,
    ):
        group = FailoverGroup(tmp_path, name_server, controller, life)
        master = await group.start("a", *files, OWN)
        await is_master(master)
        slave = await group.start("b", *files, OWN)
        await is_slave(slave)
        sender = await connect(slave, "orders-sender")
        await sender.sent(b"for others")
        half = await sender.sent(b"half", properties={"TRAN_MSG": "true", "PGROUP": "producers"}, f=4)
        [message] = await (await connect(master, "administrator")).read()
        stranger = await connect(slave, "stranger")
        assert (await stranger.send_back(message.physical)).code == 14
        end = {
            "producerGroup": "producers",
            "tranStateTableOffset": half.ext["queueOffset"],
            "commitLogOffset": int(half.ext["msgId"][-16:], 16),
            "commitOrRollback": 8,
        }
        assert (await stranger.call(37, end)).code == 14
        assert len(await (await connect(master, "administrator")).read()) == 1


async def test_a_broker_of_a_group_needs_an_account(tmp_path, files):
    sets = (*files, "enableControllerMode=true", "controllerAddr=127.0.0.1:1")
    with pytest.raises(ConfigError, match="controllers and other brokers of the group would refuse requests without"):
        async with new_broker(tmp_path / "store", *sets):
            pass
