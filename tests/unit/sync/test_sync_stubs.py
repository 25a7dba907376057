"""The type stubs of pyromq.sync are those that the script makes, and a type checker understands them."""

from __future__ import annotations

import ast
import re

import pytest
from mypy import api
from scripts.sync_stubs import STUB, stub

from pyromq import sync

PROGRAM = """\
from __future__ import annotations

from concurrent.futures import Future

from pyromq import Message, MessageQueue, Retry, SendResult, StartAt
from pyromq.sync import AdminClient, Client, Consumer, Producer, PullConsumer, ReceivedMessage, TransactionProducer

def typed(client: Client) -> None:
    with Producer("g", client=client, linger=0.005) as producer:
        sent: SendResult = producer.send(Message("t", b"b"), shard_key="k")
        future: Future[SendResult] = producer.submit("t", b"b", tags="a")
        reply: ReceivedMessage = producer.request("t", b"b", timeout=1.0)
        handle: str | None = future.result().recall_handle
        print(sent, handle, reply.reply(b"").status)
    with Consumer("g", {"t": "*"}, namesrv="localhost:9876", start_at=StartAt.FIRST) as consumer:
        for message in consumer:
            body: bytes = message.body
            message.ack()
        queues: frozenset[MessageQueue] = consumer.assignment
    consumer = Consumer("g")

    @consumer.on("t")
    def handle_it(message: ReceivedMessage) -> Retry | None:
        answered: SendResult = message.reply(b"yes")
        return Retry(3) if answered else None

    handle_it.__name__
    with PullConsumer("g") as pull:
        for batch in pull:
            bodies: list[bytes] = [message.body for message in batch]
            pull.commit({queue: 1 for queue in queues}, wait=False)
    with AdminClient() as admin:
        lag: int = admin.groups.progress("g").lag
    tp = TransactionProducer("g", client=client)
    with tp, tp.transaction("t", b"b") as tx:
        tx.rollback()
    print(body, bodies, lag)

async def awaited(producer: Producer) -> None:
    await producer.send("t", b"b")  # wrong
    producer.send(b"t", b"b")  # wrong
    Producer("g", lingr=1.0)  # wrong
    producer.submit("t", b"b").add_done_callbak(print)  # wrong
    Consumer("g").subscribe("t", handler=3)  # wrong
    async with producer:  # wrong
        pass
"""


def test_the_committed_stub_is_the_one_that_the_script_makes():
    assert STUB.read_text() == stub(), "make it anew: python scripts/sync_stubs.py"


def test_the_stub_defines_exactly_what_the_package_exports():
    classes = {node.name: node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)}
    assert classes.keys() == set(sync.__all__)
    for name, definition in classes.items():
        methods = {node.name for node in definition.body if isinstance(node, ast.FunctionDef)}
        assert methods <= set(dir(getattr(sync, name)))


@pytest.mark.slow
def test_a_type_checker_finds_mistakes_in_a_program_and_nothing_else(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said, errors, _ = api.run(["--strict", "--config-file=", "--no-error-summary", str(program)])
    assert errors == ""
    wrong = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")]
    assert sorted({int(number) for number in re.findall(r"program\.py:(\d+): error", said)}) == wrong, said
