"""`pyromq message` against a real cluster."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from pyromq import AdminClient, Consumer, MessageQueue, Producer
from pyromq.admin.messages.ranges import topic_ranges
from pyromq.admin.messages.tail import Tail
from pyromq.testing import Cluster


def sent(pyromq, topic, *words):
    return pyromq.rows("message", "send", topic, *words)


def bodies(rows):
    return [row["body"] for row in rows]


@pytest.fixture
def stdin(monkeypatch, tmp_path):
    """Gives bytes to the command that is run next."""
    opened = []

    def give(data):
        file = tmp_path / "stdin"
        file.write_bytes(data)
        opened.append(file.open())
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield give
    for file in opened:
        file.close()


def test_what_was_sent_is_read_in_the_order_of_sending(pyromq, topic):
    for number in range(6):
        [row] = sent(pyromq, topic, f"body {number}", "--tag", "red" if number % 2 else "blue", "-k", f"k{number}")
        assert row["status"] == "SEND_OK"
    assert bodies(pyromq.rows("message", "list", topic)) == [f"body {number}" for number in range(6)]
    assert bodies(pyromq.rows("message", "list", topic, "--last", "2")) == ["body 4", "body 5"]
    assert bodies(pyromq.rows("message", "list", topic, "--tag", "red")) == ["body 1", "body 3", "body 5"]
    assert bodies(pyromq.rows("message", "list", topic, "--tag", "red", "--last", "1")) == ["body 5"]
    assert bodies(pyromq.rows("message", "list", topic, "--where", "KEYS=k4")) == ["body 4"]
    assert bodies(pyromq.rows("message", "list", topic, "--grep", "[23]$")) == ["body 2", "body 3"]
    few = pyromq("message", "list", topic, "--limit", "3", "-o", "ndjson")
    assert (few.code, len(few.lines)) == (0, 3)
    assert "stopped at 3" in few.err
    assert bodies(pyromq.rows("message", "consume", topic, "--count", "2")) == ["body 0", "body 1"]
    assert pyromq.rows("message", "count", topic) == [{"what": topic, "messages": 6}]
    assert pyromq.rows("message", "count", topic, "--by", "tag") == [
        {"what": "blue", "messages": 3},
        {"what": "red", "messages": 3},
    ]
    assert sum(row["messages"] for row in pyromq.rows("message", "count", topic, "--by", "queue")) == 6
    assert pyromq.rows("message", "count", topic, "--tag", "red")[0]["messages"] == 3


def test_times_choose_messages(pyromq, topic):
    sent(pyromq, topic, "before")
    middle = pyromq.rows("message", "list", topic)[0]["stored"]
    while sent(pyromq, topic, "after") and pyromq.rows("message", "list", topic, "--last", "1")[0]["stored"] == middle:
        pass
    since = pyromq.rows("message", "list", topic, "--last", "1")[0]["stored"]
    assert "before" not in bodies(pyromq.rows("message", "list", topic, "--begin", since))
    assert set(bodies(pyromq.rows("message", "list", topic, "--begin", since))) == {"after"}
    assert "before" in bodies(pyromq.rows("message", "list", topic, "--end", middle))
    assert pyromq.rows("message", "list", topic, "--end", "-1h") == []
    assert pyromq.rows("message", "count", topic, "--begin", "-1h")[0]["messages"] >= 2
    assert pyromq("message", "list", topic, "--begin", "yesterday").code == 2


def test_a_message_is_found_by_ids_place_and_key(pyromq, topic):
    [row] = sent(pyromq, topic, '{"n": 1}', "-k", "order-1", "-k", "alpha", "-p", "region=eu", "--tag", "red")
    whole = pyromq("message", "get", row["id"], "-t", topic, "--track", "-o", "json").json
    assert (whole["body"], whole["keys"], whole["properties"]["region"]) == ('{"n": 1}', ["order-1", "alpha"], "eu")
    assert whole["tracks"] == []
    assert pyromq("message", "get", whole["offsetId"], "-o", "json").json["id"] == row["id"]
    assert pyromq("message", "get", "--at", row["at"], "-t", topic, "-o", "json").json["id"] == row["id"]
    assert [found["id"] for found in pyromq.rows("message", "find", topic, "--key", "alpha")] == [row["id"]]
    shown = pyromq("message", "get", row["id"], "-t", topic)
    assert '\n{\n  "n": 1\n}\n' in shown.out
    assert "properties.region" in shown.out
    assert pyromq("message", "get", row["id"], "-t", topic, "--body").out == '{"n": 1}'


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("get",), 2),
        (("get", "C0A8000100002A9F0000000000000001"), 2),
        (("get", "--at", "broker-a:0:0"), 2),
        (("get", "--at", "nowhere", "-t", "{topic}"), 2),
        (("get", "--at", "broker-a:0:99", "-t", "{topic}"), 3),
        (("get", "C0A8000100002A9F0000000000000001", "-t", "{topic}"), 3),
        (("find", "{topic}", "--key", "nothing"), 3),
        (("list", "{topic}x"), 3),
        (("list", "{topic}", "-q", "broker-b:0"), 3),
        (("list", "{topic}", "-q", "broker-a:77"), 3),
        (("list", "{topic}", "-q", "broker-a:x"), 2),
        (("list", "{topic}", "--tag", "a", "--sql", "b = 1"), 2),
        (("list", "{topic}", "--where", "region"), 2),
        (("list", "{topic}", "--grep", "("), 2),
        (("tail", "{topic}x"), 3),
        (("consume", "{topic}", "-g", "g", "--offset", "3"), 2),
        (("send", "{topic}"), 2),
        (("send", "{topic}", "a", "--stdin"), 2),
        (("send", "{topic}", "a", "--lines"), 2),
        (("send", "{topic}", "a", "-p", "region"), 2),
        (("send", "{topic}", "a", "--delay", "soon"), 2),
        (("send", "{topic}", "a", "-q", "broker-a"), 2),
        (("send", "{topic}", "-f", "/no/such/file"), 2),
        (("import", "/no/such/file", "-t", "{topic}"), 2),
        (("export", "{topic}", "-f", "/no/such/folder/file"), 2),
    ],
)
def test_what_cannot_be_done_ends_in_one_line_and_a_code(pyromq, topic, words, code):
    ended = pyromq("message", *(word.format(topic=topic) for word in words))
    assert ended.code == code
    assert ended.err.startswith("pyromq message")
    assert "Traceback" not in ended.err
    assert pyromq.rows("message", "count", topic)[0]["messages"] == 0


def test_many_are_sent_from_a_file_from_stdin_and_by_count(pyromq, topic, tmp_path, stdin):
    file = tmp_path / "lines"
    file.write_bytes(b"one\r\ntwo\n\nthree")
    assert re.match(
        rf"sent 3 messages to {topic} in ", pyromq("message", "send", topic, "-f", str(file), "--lines").out
    )
    assert bodies(pyromq.rows("message", "list", topic)) == ["one", "two", "three"]
    stdin(b"whole\ninput\n")
    sent(pyromq, topic, "--stdin")
    stdin(b"a\nb\n")
    assert len(sent(pyromq, topic, "--stdin", "--lines")) == 2
    assert bodies(pyromq.rows("message", "list", topic))[3:] == ["whole\ninput\n", "a", "b"]
    assert pyromq("message", "send", topic, "again", "-c", "30").out.startswith(f"sent 30 messages to {topic}")
    assert len(sent(pyromq, topic, "slowly", "-c", "5", "--rate", "200")) == 5
    assert pyromq.rows("message", "count", topic)[0]["messages"] == 41
    assert "would send 9 messages" in pyromq("message", "send", topic, "x", "-c", "9", "--dry-run").err
    assert pyromq.rows("message", "count", topic)[0]["messages"] == 41


def test_a_message_goes_to_a_queue_or_later(pyromq, topic):
    [row] = sent(pyromq, topic, "there", "-q", "broker-a:2")
    assert row["at"].startswith("broker-a:2:")
    places = {sent(pyromq, topic, "same", "--shard-key", "k")[0]["at"].rsplit(":", 1)[0] for _ in range(3)}
    assert len(places) == 1
    sent(pyromq, topic, "later", "--delay-level", "18")
    assert "later" not in bodies(pyromq.rows("message", "list", topic))


def test_a_new_topic_is_made_by_the_first_message(pyromq):
    ended = pyromq("message", "send", "brand-new", "hello")
    assert ended.code == 0
    assert "topic brand-new did not exist" in ended.err
    # Name servers hear of it a moment later.
    deadline = time.monotonic() + 10
    while pyromq("message", "list", "brand-new").code == 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert bodies(pyromq.rows("message", "list", "brand-new")) == ["hello"]


def test_export_and_import_keep_what_was_said(pyromq, topic, tmp_path):
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)))
    sent(pyromq, topic, "-f", str(binary), "--tag", "red", "-k", "k1", "-p", "region=eu")
    sent(pyromq, topic, "ünï\ncode")
    before = [(row["body"], row["encoding"], row["tags"], row["keys"]) for row in pyromq.rows("message", "list", topic)]
    for name in ("out.ndjson", "out.csv", "out.parquet"):
        file, copies = tmp_path / name, f"{topic}-{name.replace('.', '-')}"
        assert pyromq("message", "export", topic, "-f", str(file)).code == 0
        assert pyromq("topic", "create", copies, "-q", "4").code == 0
        assert pyromq("message", "import", str(file), "-t", copies).out.startswith("sent 2 messages")
        rows = pyromq.rows("message", "list", copies)
        assert [(row["body"], row["encoding"], row["tags"], row["keys"]) for row in rows] == before
        assert rows[0]["properties"]["region"] == "eu"
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.csv", "out.ndjson", "out.parquet"]
    assert pyromq("message", "import", str(tmp_path / "out.csv")).code == 2  # many topics may be meant: say --yes
    assert pyromq("message", "export", topic, "-f", "-", "--to", "parquet").code == 2
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    assert pyromq("message", "import", str(tmp_path / "bad.parquet"), "-t", topic).code == 2
    piped = pyromq("message", "export", topic, "-f", "-")
    assert [json.loads(line)["encoding"] for line in piped.lines] == ["base64", "utf-8"]


def test_a_group_consumes_once_and_moves_on(pyromq, topic):
    sent(pyromq, topic, "one", "-c", "3")
    words = ("message", "consume", topic, "-g", f"group-of-{topic}", "-o", "ndjson")
    assert len(pyromq(*words, "--count", "3", "--idle", "20").lines) == 3
    assert pyromq(*words, "--idle", "0.5").out == ""


def test_a_consumer_handles_a_message_at_once(pyromq, cluster, topic):
    [row] = sent(pyromq, topic, "do it")
    group, got = f"direct-{topic}", []
    running, stop = threading.Event(), threading.Event()

    async def consume():
        consumer = Consumer(group, namesrv=cluster.namesrv)

        @consumer.on(topic)
        async def handle(message):
            got.append(message.body)

        async with consumer:
            running.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(consume(),))
    thread.start()
    try:
        assert running.wait(10)
        assert (
            "would make a consumer" in pyromq("message", "direct", row["id"], "-t", topic, "-g", group, "--dry-run").err
        )
        assert (
            pyromq("message", "direct", row["id"], "-t", topic, "-g", group, "-o", "json").json["result"]
            == "CR_SUCCESS"
        )
    finally:
        stop.set()
        thread.join()
    assert b"do it" in got


@pytest.mark.scenario("admin 16")
def test_tail_shows_every_message_of_a_tag_once_and_commits_nothing(cluster, pyromq, topic):
    """500 messages/s, shortened: as many as fit into the time, and then the tail is told to end by its count."""
    total, wanted = 600, 300
    words = ["message", "tail", topic, "--tag", "A", "-o", "ndjson", "--count", str(wanted), "--for", "30"]
    command = [sys.executable, "-m", "pyromq.cli.main", *words, "-n", cluster.namesrv, "--begin", "-1m"]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    async def produce():
        async with Producer("makers", namesrv=cluster.namesrv) as producer:
            for number in range(total):
                await producer.submit(topic, b"%d" % number, tags="A" if number % 2 else "B")
                await asyncio.sleep(0.002)
            await producer.flush()

    try:
        asyncio.run(produce())
        out, _ = tail.communicate(timeout=40)
    finally:
        tail.kill()
        tail.wait()
    rows = [json.loads(line) for line in out.splitlines()]
    assert sorted(int(row["body"]) for row in rows) == list(range(1, total, 2))
    assert {row["tags"] for row in rows} == {"A"}
    assert pyromq.rows("topic", "groups", topic) == []
    assert tail.returncode == 0


def test_tail_begins_at_the_end_or_where_it_is_told(pyromq, topic):
    sent(pyromq, topic, "old", "-c", "3")
    assert pyromq("message", "tail", topic, "--for", "0.3").out == ""
    assert len(pyromq("message", "tail", topic, "--begin", "-1h", "--count", "3", "-o", "name").lines) == 3
    assert len(pyromq("message", "tail", topic, "--last", "5", "--grep", "old", "--for", "1", "-o", "name").lines) == 3
    assert pyromq("message", "tail", topic, "--last", "5", "--where", "a=b", "--for", "0.3").out == ""


def test_tail_follows_queues_that_the_topic_gets_later(cluster, topic, monkeypatch):
    monkeypatch.setattr("pyromq.admin.messages.tail._NEW_QUEUES", 0.02)

    async def work():
        async with AdminClient(cluster.namesrv) as admin, Producer("makers", client=admin.client) as producer:
            ranges = await topic_ranges(admin, topic)
            async with Tail(admin, ranges) as tail, asyncio.timeout(20):
                await admin.topics.update(topic, read_queues=5, write_queues=5)
                new = MessageQueue(topic=topic, broker_name="broker-a", queue_id=4)
                await producer.send(topic, b"new", queue=new)
                return (await anext(tail)).body

    assert asyncio.run(work()) == b"new"


def test_tail_says_once_that_a_broker_fails_and_goes_on(topic):
    said = []

    async def work():
        async with Cluster() as short, AdminClient(short.namesrv, timeout=1.0) as admin:
            await admin.topics.create(topic, read_queues=4, write_queues=4)
            ranges = await topic_ranges(admin, topic)
            lost = replace(ranges, queues=tuple(replace(part, address="127.0.0.1:1") for part in ranges.queues))
            heard = asyncio.Event()

            def trouble(line):
                said.append(line)
                heard.set()

            async with Tail(admin, lost, trouble=trouble), asyncio.timeout(20):
                await heard.wait()
                await asyncio.sleep(0)

    asyncio.run(work())
    assert len(said) == 1
    assert "127.0.0.1:1" in said[0]


def test_help_names_every_verb(pyromq, capsys):
    from pyromq.cli.nouns.message.message import main

    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for verb in ("get", "find", "list", "count", "send", "consume", "tail", "export", "import", "direct"):
        assert re.search(rf"^  {verb} ", out, re.MULTILINE)
