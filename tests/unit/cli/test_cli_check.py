"""`pyromq check`: what it prints, and its exit codes."""

from __future__ import annotations

import io
import json
import time
from typing import TYPE_CHECKING

import pytest

from pyromq.cli.nouns import store_check
from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "Orders"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A sound store with three messages; the second of them begins at 102."""
    config = StoreConfig(
        root=str(tmp_path), commit_log_file_size=4096, consume_queue_file_size=200, hash_slots=5, index_entries=20
    )
    with MessageStore(config) as store:
        store.put([(store.queue(TOPIC, 0), [MessageRecord("", b"hello")])] * 3)
    return tmp_path


def log(root: Path) -> Path:
    return root / "commitlog" / f"{0:020}"


def damage(root: Path) -> None:
    """Change the body of the second message."""
    data = bytearray(log(root).read_bytes())
    data[102 + 88] ^= 1
    log(root).write_bytes(data)


WHAT = "record at 102: body does not match its CRC"


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = store_check.main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_sound_store_is_summed_up(capsys, root):
    code, out, err = run(capsys, root)
    assert (code, err) == (0, "")
    summary, verdict = out.splitlines()
    assert summary.startswith("1 log file, 1 queue file, 0 index files; 3 records in 1 queue, 306 bytes; 0.")
    assert summary.endswith(" records/s")
    assert verdict == "nothing is wrong"


def test_what_is_found_is_grouped_by_severity_and_place(capsys, root):
    damage(root)
    (root / "mine").touch()
    (root / "checkpoint").write_bytes(b"")
    code, out, err = run(capsys, root)
    assert (code, err) == (1, "")
    assert out.startswith(
        f"1 error\n  {log(root)}\n    {WHAT}\n\n"
        f"1 warning\n  {root}/checkpoint\n    has 0 bytes of 4096; what is missing counts as 0\n\n"
        f"1 note\n  {root}/mine\n    is unknown; left alone\n\n"
        "1 log file"
    )
    assert out.endswith("\nfound 1 error, 1 warning, 1 note\n")


def test_notes_alone_are_no_reason_to_fail(capsys, root):
    (root / "mine").touch()
    assert run(capsys, root)[0] == 0


def test_a_warning_alone_is_one(capsys, root):
    (root / "checkpoint").write_bytes(b"")
    assert run(capsys, root)[0] == 1


def test_json_is_one_object(capsys, root):
    damage(root)
    code, out, err = run(capsys, root, "-o", "json")
    assert (code, err) == (1, "")
    told = json.loads(out)
    assert told["findings"] == [{"severity": "error", "where": str(log(root)), "what": WHAT}]
    assert told["summary"].pop("seconds") > 0
    assert told["summary"].pop("recordsPerSecond") > 0
    assert told["summary"] == {
        "logFiles": 1,
        "queueFiles": 1,
        "indexFiles": 0,
        "queues": 1,
        "records": 3,
        "bytes": 306,
    }


def test_ndjson_is_an_object_per_line(capsys, root):
    damage(root)
    code, out, _ = run(capsys, root, "--output", "ndjson")
    finding, summary = map(json.loads, out.splitlines())
    assert code == 1
    assert finding == {"severity": "error", "where": str(log(root)), "what": WHAT}
    assert summary["summary"]["records"] == 3


def test_a_folder_that_is_no_store(capsys, tmp_path):
    expected = f"pyromq check: {tmp_path} is not a store: it has no commitlog folder\n"
    assert run(capsys, tmp_path) == (2, "", expected)
    assert run(capsys, tmp_path / "x") == (2, "", f"pyromq check: {tmp_path}/x is not a folder\n")


def test_a_command_line_that_makes_no_sense(capsys, root):
    assert run(capsys)[0] == 2
    assert run(capsys, root, "--set", "mappedFileSizeCommitLog=much")[0] == 2
    assert run(capsys, root, "-o", "xml")[0] == 2


def test_a_setting_is_believed_rather_than_the_files(capsys, root):
    code, out, _ = run(capsys, root, "--set", "mappedFileSizeCommitLog=8192")
    assert code == 1
    assert "has 4096 bytes where segments have 8192" in out


def test_an_unknown_setting_is_told(capsys, root):
    code, _, err = run(capsys, root, "--set", "messageDelayLevels=1s")
    assert code == 0
    assert err == "pyromq check: --set: unknown setting messageDelayLevels; did you mean messageDelayLevel?\n"


def test_quick_looks_at_less(capsys, root):
    code, out, _ = run(capsys, root, "--quick", "-o", "json")
    assert (code, json.loads(out)["findings"]) == (0, [])


def test_the_help_says_what_the_exit_codes_mean(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for text in ("Usage: pyromq check", "DIR", "--quick", "--set KEY=VALUE", "exit code is 0"):
        assert text in out


def test_of_millions_of_findings_a_text_shows_some(capsys, root, monkeypatch):
    monkeypatch.setattr(store_check, "_KEPT", 2)
    for name in "abcd":
        (root / name).touch()
    _, out, _ = run(capsys, root)
    assert out.startswith(f"4 notes\n  {root}/a\n    is unknown; left alone\n  {root}/b\n")
    assert "\n  and 2 more; -o ndjson lists them all\n" in out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_and_wiped_off(monkeypatch):
    now = 1.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    terminal = Terminal()
    progress = store_check.Progress(terminal)
    progress(1, 100)
    assert terminal.getvalue() == "", "what is over at once needs none"
    now = 3.0
    progress(50 << 20, 100 << 20)
    assert terminal.getvalue() == "\r50 % of 100.0 MiB, 2 s left"
    progress.clear()
    assert terminal.getvalue().endswith("\r" + " " * 27 + "\r")


def test_no_progress_is_shown_where_nobody_looks(monkeypatch):
    stream = io.StringIO()
    progress = store_check.Progress(stream)
    monkeypatch.setattr(time, "monotonic", lambda: 1e12)
    progress(50, 100)
    progress.clear()
    assert stream.getvalue() == ""
