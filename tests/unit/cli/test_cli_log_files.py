"""Logs in files: when a new one begins, what becomes of the old ones, and lines that are folded."""

from __future__ import annotations

import logging
import time

import pytest

from pyromq.cli.servers import logs
from pyromq.cli.servers.log_files import LogFile
from pyromq.cli.servers.log_folding import Folding
from pyromq.errors import ConfigError

NOON = time.mktime((2026, 1, 31, 12, 0, 0, 0, 0, -1))
DAY = 86_400


@pytest.fixture
def log(tmp_path):
    handlers = []

    def opened(**limits):
        handler = LogFile(tmp_path, "broker", **limits)
        handler.setFormatter(logging.Formatter("%(message)s"))
        handlers.append(handler)
        return handler

    yield opened
    for handler in handlers:
        handler.close()


def record(text, created=None, level=logging.WARNING, name="pyromq.store"):
    made = logging.makeLogRecord({"msg": text, "levelno": level, "name": name})
    made.created = time.time() if created is None else created
    return made


def test_lines_are_appended_to_what_is_there(tmp_path, log):
    log().handle(record("one"))
    log().handle(record("two \ud800"))
    assert (tmp_path / "broker.log").read_bytes() == b"one\ntwo \\ud800\n"


def test_a_full_file_makes_room_for_a_new_one(tmp_path, log):
    handler = log(max_file=10)
    now = time.time()
    for number in range(4):
        handler.handle(record(f"line {number}", now))
    # More than one in a second, and still in order.
    assert [path.read_text() for path in handler.old_files()] == ["line 2\n", "line 1\n", "line 0\n"]
    assert (tmp_path / "broker.log").read_text() == "line 3\n"


def test_a_line_longer_than_a_file_is_written_whole(tmp_path, log):
    handler = log(max_file=10)
    handler.handle(record("x" * 100))
    assert (tmp_path / "broker.log").read_text() == "x" * 100 + "\n"
    assert handler.old_files() == []


def test_a_day_has_its_own_file(tmp_path, log):
    handler = log()
    now = time.time()
    handler.handle(record("today", now))
    handler.handle(record("tomorrow", now + DAY))
    handler.handle(record("tomorrow too", now + DAY))
    assert [path.read_text() for path in handler.old_files()] == ["today\n"]


def test_the_oldest_files_go_when_all_together_are_too_much(tmp_path, log):
    (tmp_path / "broker-b.20200101T000000.log").write_text("of another process")
    handler = log(max_file=10, max_total=40)
    for number in range(100):
        handler.handle(record(f"line {number:02d}"))
    kept = [path.read_text() for path in handler.old_files()]
    assert kept == ["line 98\n", "line 97\n", "line 96\n"]
    assert sum(map(len, kept)) + 10 <= 40
    assert (tmp_path / "broker-b.20200101T000000.log").exists()


def test_a_file_that_was_renamed_is_followed_by_a_new_one_when_that_is_asked(tmp_path, log):
    handler = log()
    handler.handle(record("before"))
    (tmp_path / "broker.log").rename(tmp_path / "moved")
    handler.handle(record("still there"))
    handler.reopen()
    handler.handle(record("after"))
    assert (tmp_path / "moved").read_text() == "before\nstill there\n"
    assert (tmp_path / "broker.log").read_text() == "after\n"


def test_a_line_that_cannot_be_written_goes_to_stderr(tmp_path, log, capsys):
    handler = log(max_file=10)
    handler.handle(record("first one"))
    tmp_path.chmod(0o700)
    (tmp_path / "broker.log").unlink()
    handler.handle(record("second one"))  # to be renamed, and not there
    assert capsys.readouterr().err == "second one\n"


@pytest.fixture
def restored_logging():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored_logging")
def test_with_a_folder_nothing_goes_to_stderr(tmp_path, capsys):
    logs.set_up(folder=tmp_path / "logs", name="broker")
    logging.getLogger("pyromq.store").info("hello")
    assert capsys.readouterr().err == ""
    file = tmp_path / "logs" / "broker.log"
    assert file.read_text().endswith(" INFO store: hello\n")
    file.unlink()
    logs.reopen()
    logging.getLogger("pyromq.store").info("again")
    assert file.read_text().endswith(" INFO store: again\n")


@pytest.mark.usefixtures("restored_logging")
def test_a_folder_that_cannot_be_is_said_in_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--log-dir .*/file/logs cannot be written: .*/file is not a directory"):
        logs.set_up(folder=tmp_path / "file" / "logs", name="broker")
    (tmp_path / "broker.log").mkdir()
    with pytest.raises(ConfigError, match="cannot be used: Is a directory"):
        logs.set_up(folder=tmp_path, name="broker")


# Folding


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def folded():
    """What is written, the handler, and its clock."""
    clock = [100.0]
    kept = Kept()
    return kept.lines, Folding(kept, window=60, clock=lambda: clock[0]), clock


def test_what_is_said_again_is_counted_until_something_else_is_said(folded):
    lines, handler, _ = folded
    for text in ("disk is full", "disk is full", "disk is full", "disk has room"):
        handler.handle(record(text))
    assert lines == ["disk is full", "disk is full (+2 more)", "disk has room"]


def test_the_same_words_at_another_level_or_by_another_are_not_the_same(folded):
    lines, handler, _ = folded
    for made in (record("x"), record("x", level=logging.ERROR), record("x", level=logging.ERROR, name="other")):
        handler.handle(made)
    assert lines == ["x"] * 3


def test_what_goes_on_being_said_is_written_every_now_and_then(folded):
    lines, handler, clock = folded
    for _ in range(3):
        handler.handle(record("x"))
    clock[0] += 60
    handler.handle(record("x"))
    assert lines == ["x", "x (+2 more)", "x"]


def test_the_count_is_told_in_the_end(folded):
    lines, handler, _ = folded
    handler.handle(record("x"))
    handler.handle(record("x"))
    handler.close()
    assert lines == ["x", "x (+1 more)"]


def test_what_is_no_warning_is_never_folded(folded):
    lines, handler, _ = folded
    for _ in range(2):
        handler.handle(record("reloaded", level=logging.INFO))
    assert lines == ["reloaded", "reloaded"]


def test_a_stack_trace_is_never_folded(folded):
    lines, handler, _ = folded
    for _ in range(2):
        failed = record("x")
        failed.exc_info = (ValueError, ValueError("boom"), None)
        handler.handle(failed)
    assert lines == ["x", "x"]


def test_arguments_that_do_not_fit_are_the_trouble_of_the_one_who_writes(folded):
    _, handler, _ = folded
    wrong = record("%d")
    wrong.args = ("no number",)
    with pytest.raises(TypeError):  # what this one does; others print it
        handler.handle(wrong)
