"""A cluster inside this process: there in a moment, gone without a trace."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pyromq import Message, Producer, PullConsumer, StartAt
from pyromq.errors import PyroMQError
from pyromq.testing import Cluster, running_cluster


async def send(namesrv: str) -> None:
    async with Producer("makers", namesrv=namesrv) as producer:
        await producer.send(Message("orders", b"hello"))


async def bodies(namesrv: str) -> list[bytes]:
    async with PullConsumer("readers", namesrv=namesrv, start_at=StartAt.FIRST) as consumer:
        consumer.subscribe("orders")
        return [message.body for message in await consumer.poll(timeout=20)]


async def test_messages_go_through_it_and_its_folder_goes_with_it():
    async with Cluster() as cluster:
        await send(cluster.namesrv)
        assert await bodies(cluster.namesrv) == [b"hello"]
        folder = cluster.folder
        assert folder.exists()
    assert not folder.exists()


async def test_what_is_in_a_given_folder_stays(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await send(cluster.namesrv)
    async with Cluster(tmp_path) as cluster:
        assert await bodies(cluster.namesrv) == [b"hello"]


def test_it_can_run_in_a_thread():
    with running_cluster() as cluster:
        asyncio.run(send(cluster.namesrv))
        assert asyncio.run(bodies(cluster.namesrv)) == [b"hello"]
    assert not [thread for thread in threading.enumerate() if thread.name == "pyromq cluster"]


def test_why_it_does_not_start_is_raised(tmp_path):
    (tmp_path / "broker-a").write_text("in the way")
    with pytest.raises(PyroMQError, match="broker-a"), running_cluster(tmp_path):
        pytest.fail("it runs")
