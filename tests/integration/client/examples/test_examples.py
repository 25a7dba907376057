"""Every program in examples/ runs, against a real cluster, and says what it should."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from pyromq import Producer
from pyromq.broker.timers import schedule

EXAMPLES = Path(__file__).parents[4] / "examples"
PATIENCE = 30.0

pytestmark = pytest.mark.slow


class Example:
    """One of the programs, running: `async with` starts it, and kills what has not ended."""

    def __init__(self, name, cluster, source=None):
        program = [str(EXAMPLES / f"{name}.py")] if source is None else ["-c", source]
        self._command = [sys.executable, *program, cluster.namesrv]
        self._process: asyncio.subprocess.Process

    async def __aenter__(self):
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=pipe, stderr=pipe)
        return self

    async def __aexit__(self, *exc_info):
        if self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()

    async def lines(self, count):
        """The next so many lines that it says."""
        said = self._process.stdout
        assert said is not None
        async with asyncio.timeout(PATIENCE):
            return [(await said.readline()).decode().rstrip() for _ in range(count)]

    async def end(self, interrupt=False):
        """Wait until it has ended, without an error; gives what else it said."""
        if interrupt:
            self._process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            said, errors = await self._process.communicate()
        assert errors.decode() == ""
        assert self._process.returncode == 0
        return said.decode().splitlines()


async def run(name, cluster):
    async with Example(name, cluster) as example:
        return await example.end()


@pytest.fixture
async def impatient(cluster_with, monkeypatch):
    """A cluster whose broker does not wait at any delay level."""
    monkeypatch.setattr(schedule, "_FIRST", 0.0)
    monkeypatch.setattr(schedule, "_PAUSE", 0.01)
    return await cluster_with("messageDelayLevel=" + " ".join(["0s"] * 18))


@pytest.fixture
async def with_orders(impatient):
    """The same, with the orders that examples/send.py sends."""
    said = await run("send", impatient)
    assert [line.split(",")[0] for line in said] == [
        "order-1: SEND_OK",
        "order-2: SEND_OK",
        "order-3: SEND_OK",
        "a payment that is seen in a second: SEND_OK",
    ]
    await impatient.routed("orders")
    return impatient


async def test_the_first_lines_of_the_guide_work(cluster):
    guide = (EXAMPLES.parent / "docs" / "client.md").read_text()
    first = re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)[0]
    source = "async def main():\n" + textwrap.indent(first.replace("localhost:9876", cluster.namesrv), "    ")
    async with Example("", cluster, f"import asyncio\n{source}\nasyncio.run(main())") as example:
        (said,) = await example.end()
    assert said.startswith("SendResult(status=<SendStatus.SEND_OK")


def test_every_example_is_tested_here():
    of_the_demo = {"demo", "demo_report", "shop", "bookkeeping", "pipeline"}
    # tests/integration/testing/test_first_run.py, tests/spark
    elsewhere = {"delayed", "filtered", "lake", "large_orders"}
    programs = {path.stem for path in EXAMPLES.glob("*.py")} - of_the_demo - elsewhere
    mentioned = set(re.findall(r"\"(\w+)\", (?:cluster|impatient|with_orders)\)", Path(__file__).read_text()))
    assert programs == mentioned


async def test_messages_with_one_shard_key_stay_in_order(cluster):
    said = await run("send_in_order", cluster)
    assert said == [f"order-{number}: created > paid > packed > sent" for number in (1, 2, 3)]


async def test_batches_and_lingering_submits_are_stored(cluster):
    batch, lingering = await run("send_many", cluster)
    assert batch.startswith("1000 messages in 1 request, ")
    assert lingering.startswith("1000 of 1000 submitted messages stored, ")


async def test_handlers_retry_and_give_up(with_orders):
    async with Producer("senders", namesrv=with_orders.namesrv) as producer:
        await producer.send("orders", b"garbage", tags="created")
    async with Example("consume", with_orders) as example:
        said = await example.lines(7)
        assert await example.end(interrupt=True) == []
    assert sorted(said) == [
        "b'garbage' is no order",
        "order-1: created, try 1",
        "order-1: paid, try 1",
        "order-2: created, try 2",
        "order-2: the bank is busy",
        "order-3: created, try 2",
        "order-3: the bank is busy",
    ]


async def test_a_loop_sees_all_messages(with_orders):
    async with Example("consume_loop", with_orders) as example:
        said = await example.lines(4)
        assert await example.end(interrupt=True) == []
    assert sorted(line.split(" ", 1)[1] for line in said) == [
        'created {"id": "order-1", "total": 60}',
        'created {"id": "order-2", "total": 120}',
        'created {"id": "order-3", "total": 180}',
        'paid {"id": "order-1", "total": 60}',
    ]


async def test_a_pull_consumer_goes_where_it_is_told(cluster):
    assert await run("pull", cluster) == ["first: 0 1 2", "last: 8 9", "committed: 0 messages before the end"]


async def test_a_question_is_answered(cluster):
    assert await run("request_reply", cluster) == ["answer: HOW ARE YOU?", "nobody answers chat"]


async def test_a_message_is_part_of_a_transaction(cluster):
    assert await run("transactions", cluster) == ["30: COMMIT", "-5: ROLLBACK"]


async def test_a_payment_that_comes_twice_is_booked_once(impatient):
    assert await run("idempotent", impatient) == [
        "payment-1: booked",
        "payment-1: already booked",
        "payment-2: booked",
        "payment-2: already booked",
        "balance: 30",
    ]


async def test_an_admin_sees_the_cluster(cluster):
    assert await run("administer", cluster) == [
        "invoices is on 1 broker",
        "archive is 2 messages behind",
        "found 'invoice 0' by its id, 'invoice 5' by its key",
    ]


async def test_threads_send(cluster):
    assert await run("sync_send", cluster) == [
        "order-7: SEND_OK",
        "from threads: SEND_OK, SEND_OK, SEND_OK, SEND_OK",
        "submitted: 100 stored",
    ]


async def test_blocking_consumers_consume(with_orders):
    async with Example("sync_consume", with_orders) as example:
        said = await example.lines(4)
        assert await example.end(interrupt=True) == ["bye"]
    # Handlers print from several threads, and Python writes a line and its end one after the other.
    found = re.findall(r"(?:handler|loop): order-\d", " ".join(said))
    assert sorted(found) == ["handler: order-1", "handler: order-2", "handler: order-3", "loop: order-1"]
