"""`pyromq message`, `dlq`, `trace`, `queue` and `bench` at Apache's brokers of both lines: every verb once."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.apache import CONSUMED_WITHIN
from tests.interop.test_cli_apache import Ended, eventually

from pyromq.cli.main import main
from pyromq.client import Client, Consumer, Producer, StartAt

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.apache_with_client import Apache

pytestmark = pytest.mark.interop

MESSAGES = 6


class Commands:
    """Runs `pyromq …`, given as words, in this process for one cluster."""

    def __init__(self, capsys: pytest.CaptureFixture[str], apache: Apache) -> None:
        self._capsys = capsys
        self._apache = apache

    def __call__(self, *words: str) -> Ended:
        # A broker of Apache that has just been started answers its first requests slowly.
        with pytest.raises(SystemExit) as done:
            main([*words, "-n", self._apache.namesrv, "--timeout", "20"])
        out, err = self._capsys.readouterr()
        return Ended(int(done.value.code or 0), out, err)

    def rows(self, *words: str) -> Any:
        ended = self(*words, "-o", "json")
        assert ended.code == 0, f"{words}\n{ended}"
        return json.loads(ended.out)


@pytest.fixture
def pyromq(capsys: pytest.CaptureFixture[str], apache: Apache, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "PYROMQ_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Commands(capsys, apache)


def make_topic(apache: Apache, name: str) -> str:
    topic = f"{name}-{apache.version.replace('.', '-')}"
    asyncio.run(apache.create_topic(topic))
    return topic


def test_messages_are_sent_read_found_and_carried_over(pyromq: Commands, apache: Apache, tmp_path: Path) -> None:
    topic, copies = make_topic(apache, "cli-messages"), make_topic(apache, "cli-copies")
    broker = apache.broker.name
    for number in range(MESSAGES):
        words = ("--tag", "red" if number % 2 else "blue", "-k", f"key-{number}", "-p", f"n={number}")
        assert pyromq.rows("message", "send", topic, f"body-{number}", *words)[0]["status"] == "SEND_OK"
    rows = pyromq.rows("message", "list", topic)
    assert [row["body"] for row in rows] == [f"body-{number}" for number in range(MESSAGES)]
    assert [row["body"] for row in pyromq.rows("message", "list", topic, "--last", "2")] == ["body-4", "body-5"]
    assert len(pyromq.rows("message", "list", topic, "--tag", "red", "--begin", "-1h", "--end", "now")) == 3
    assert len(pyromq.rows("message", "list", topic, "--sql", "n = 3 OR n = 4")) == 2
    assert pyromq.rows("message", "list", topic, "--end", "-1h") == []
    assert pyromq.rows("message", "count", topic)[0]["messages"] == MESSAGES
    assert {row["what"]: row["messages"] for row in pyromq.rows("message", "count", topic, "--by", "tag")} == {
        "red": 3,
        "blue": 3,
    }
    [found] = eventually(lambda: pyromq.rows("message", "find", topic, "--key", "key-3"))
    whole = pyromq.rows("message", "get", found["id"], "-t", topic, "--track")
    assert (whole["body"], whole["at"]) == ("body-3", found["at"])
    assert pyromq.rows("message", "get", whole["offsetId"])["id"] == found["id"]
    assert pyromq.rows("message", "get", "--at", found["at"], "-t", topic)["id"] == found["id"]
    assert len(pyromq("message", "tail", topic, "--begin", "-1h", "--count", "6", "-o", "name").out.split()) == MESSAGES
    assert pyromq("message", "tail", topic, "--for", "0.5").out == ""
    assert len(pyromq.rows("queue", "dump", topic, f"{broker}:0")) >= 1
    file = tmp_path / "out.ndjson"
    assert pyromq("message", "export", topic, "-f", str(file)).code == 0
    assert pyromq("message", "import", str(file), "-t", copies).code == 0
    # Many are under way at once, and Apache's threads overtake each other.
    copied = pyromq.rows("message", "list", copies)
    assert sorted(row["body"] for row in copied) == [row["body"] for row in rows]
    assert pyromq.rows("bench", "send", copies, "-c", "100")[0]["messages"] == 100
    assert pyromq.rows("bench", "consume", copies, "-c", "50")[0]["messages"] == 50
    group = f"{topic}-group"
    assert len(pyromq.rows("message", "consume", topic, "-g", group, "--count", "6", "--idle", "40")) == MESSAGES
    assert pyromq("message", "list", f"{topic}x").code == 3


def test_a_java_consumer_handles_a_message_at_once(pyromq: Commands, apache: Apache) -> None:
    topic = make_topic(apache, "cli-direct")
    group = f"{topic}-group"
    apache.java.do("push", name=topic, group=group, topic=topic)
    [sent] = pyromq.rows("message", "send", topic, "do it")
    apache.java.wait_for_bodies(topic, {"do it"}, CONSUMED_WITHIN)
    before = len(apache.java.bodies(topic))
    words = ("message", "direct", sent["id"], "-t", topic, "-g", group)
    assert pyromq.rows(*words)["result"] == "CR_SUCCESS"
    eventually(lambda: len(apache.java.bodies(topic)) > before)
    apache.java.do("leave", name=topic)


def test_dead_letters_are_seen_sent_again_and_purged(pyromq: Commands, apache: Apache, tmp_path: Path) -> None:
    topic = make_topic(apache, "cli-dead")
    group = f"{topic}-group"
    asyncio.run(_fail(apache, topic, group))
    eventually(lambda: [row["messages"] for row in pyromq.rows("dlq", "list") if row["group"] == group] == [MESSAGES])
    shown = pyromq.rows("dlq", "show", group)
    assert {row["origin"] for row in shown} == {topic}
    redriven = pyromq.rows("dlq", "redrive", group, "--yes", "--rate", "100")
    assert {row["error"] for row in redriven} == {None}
    again = pyromq.rows("message", "list", topic, "--last", str(MESSAGES))
    assert {row["properties"]["REPLAY_OF"] for row in again} == {row["id"] for row in shown}
    assert pyromq("dlq", "export", group, "-f", str(tmp_path / "dead.csv")).code == 0
    assert pyromq("dlq", "purge", group, "--yes").code == 0


async def _fail(apache: Apache, topic: str, group: str) -> None:
    failed: set[bytes] = set()
    done = asyncio.Event()
    consumer = Consumer(group, namesrv=apache.namesrv, start_at=StartAt.FIRST)

    @consumer.on(topic)
    async def handle(message: Any) -> None:
        message.dead_letter()
        failed.add(message.body)
        if len(failed) == MESSAGES:
            done.set()

    async with consumer, Producer("makers", namesrv=apache.namesrv) as producer:
        for number in range(MESSAGES):
            await producer.send(topic, b"bad %d" % number)
        async with asyncio.timeout(CONSUMED_WITHIN):
            await done.wait()


def test_a_trace_of_both_clients_is_shown(pyromq: Commands, apache: Apache) -> None:
    topic = make_topic(apache, "cli-traced")

    async def send() -> str:
        client = Client(apache.namesrv, trace=True)
        async with client, Producer("tracers", client=client) as producer:
            return (await producer.send(topic, b"x", keys=["cli-traced-key"])).id

    message_id = asyncio.run(send())
    [publish] = eventually(lambda: _trace(pyromq, message_id))
    assert (publish["event"], publish["group"], publish["status"]) == ("publish", "tracers", "success")


def _trace(pyromq: Commands, message_id: str) -> Any:
    ended = pyromq("trace", "get", message_id, "-o", "json")
    return json.loads(ended.out) if ended.code == 0 else []
