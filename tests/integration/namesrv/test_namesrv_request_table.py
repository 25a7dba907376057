"""Every request code of the name server stands in one table, and none of them can be made to hurt by its body."""

from __future__ import annotations

import asyncio
import json
import random
import zlib

import pytest
from tests.integration.namesrv.raw_client import json_request

from pyromq.namesrv import server as server_module
from pyromq.namesrv.requests import RULES
from pyromq.remoting import BodySize

MiB = 1024 * 1024


@pytest.fixture
def served(monkeypatch):
    """The codes that the next name server has processors for."""
    codes: set[int] = set()
    build = server_module.NameServer._processors

    def building(self, client):
        table = build(self, client)
        codes.update(table)
        return table

    monkeypatch.setattr(server_module.NameServer, "_processors", building)
    return codes


async def test_the_table_has_every_code_that_is_served_and_no_other(served, start):
    async with start():
        assert served == set(RULES)


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(RULES))
async def test_no_body_of_any_request_does_harm(code, scenes):
    client = await scenes.connect()
    noise = random.Random(code).randbytes(1000)
    for body in (b"", noise, b"[" * 60_000, b"{" * 60_000):
        reply = await client.call(code, {}, body)
        assert reply.code in (0, 1, 13, 17, 22), reply
    if RULES[code].body is not BodySize.FRAME:
        bound = MiB if RULES[code].body is BodySize.LIST else 65536
        reply = await client.call(code, {}, bytes(bound + 1))
        assert (reply.code, f"at most {bound} are taken" in reply.remark) == (1, True)
    # and it still serves
    assert (await client.call(106)).code == 0


@pytest.mark.slow
async def test_a_large_registration_keeps_nobody_waiting(scenes):
    topics = {
        f"t{n}": {"topicName": f"t{n}", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for n in range(20_000)
    }
    wrapper = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": topics}
    body = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
    ext = {"brokerName": "b", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "brokerId": 0}
    ext |= {"haServerAddr": "10.0.0.1:10912", "bodyCrc32": zlib.crc32(body), "compressed": "false"}
    broker, other = await scenes.connect(), await scenes.connect()
    broker.send(json_request(103, ext, body))
    registered = asyncio.create_task(broker.receive())
    beats = 0
    while not registered.done():
        assert (await other.call(106)).code == 0
        beats += 1
    assert (await registered).code == 0
    assert beats > 2
