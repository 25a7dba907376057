"""`pyromq store`: a data directory looked at without a broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyromq.cli.nouns import store
from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, StoreConfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with three messages in two queues of one topic."""
    config = StoreConfig(root=str(tmp_path), commit_log_file_size=4096, consume_queue_file_size=200)
    with MessageStore(config) as opened:
        for queue_id in (0, 0, 1):
            opened.put([(opened.queue("Orders", queue_id), [MessageRecord("", b"hello")])])
    return tmp_path


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = store.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_people_see_the_facts_and_the_topics(capsys, root):
    code, out, err = run(capsys, "inspect", root)
    assert (code, err) == (0, "")
    facts, _, topics = out.partition("\n\n")
    table = dict(line.split(None, 1) for line in facts.splitlines())
    assert table["stopped"] == "cleanly"
    assert (table["messages"], table["log.files"], table["log.fileSize"]) == ("3", "1", "4.0 KiB")
    heading, row = topics.splitlines()
    assert heading.split() == ["TOPIC", "QUEUES", "MESSAGES", "FIRST", "STORED", "LAST", "STORED"]
    assert row.split()[:3] == ["Orders", "2", "3"]


def test_programs_get_one_document(capsys, root):
    (root / "abort").touch()
    code, out, _ = run(capsys, "inspect", root, "--queues", "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert found["stopped"].startswith("by a crash")
    assert (found["log"]["minOffset"], found["log"]["maxOffset"], found["log"]["tornAt"]) == (0, 306, None)
    assert [(row["queue"], row["minOffset"], row["maxOffset"]) for row in found["queues"]] == [(0, 0, 2), (1, 0, 1)]
    assert run(capsys, "inspect", root, "-o", "name")[1] == "Orders\n"


def test_a_store_in_use_is_shown_and_told(capsys, root):
    with MessageStore(StoreConfig(root=str(root), commit_log_file_size=4096, consume_queue_file_size=200)):
        code, out, err = run(capsys, "inspect", root)
    assert code == 0
    assert err == f"pyromq store inspect: {root} is in use by this process; the figures may be out of date\n"
    assert "not yet" in out


def test_what_is_no_store_is_bad_usage(capsys, tmp_path):
    expected = f"pyromq store inspect: {tmp_path} is not a store: it has no commitlog folder\n"
    assert run(capsys, "inspect", tmp_path) == (2, "", expected)


def test_verify_is_check(capsys, root):
    code, out, _ = run(capsys, "verify", root)
    assert code == 0
    assert out.endswith("nothing is wrong\n")
    (root / "checkpoint").write_bytes(b"")
    code, out, _ = run(capsys, "verify", root, "--quick", "-o", "json")
    assert (code, len(json.loads(out)["findings"])) == (1, 1)
    assert run(capsys, "verify", root / "x") == (2, "", f"pyromq store verify: {root}/x is not a folder\n")
