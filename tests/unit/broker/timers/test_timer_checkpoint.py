"""How far timers were delivered, in a file that RocketMQ reads and writes, too."""

from __future__ import annotations

import dataclasses
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.timers.checkpoint import TimerCheckpoint, TimerProgress, decode_progress, encode_progress
from pyromq.errors import RemoteProtocolError, StoreError

PROGRESS = TimerProgress(1_700_000_005_000, 90, 12, 1_700_000_006_000, 77)
THEIRS = struct.Struct(">7q")


def test_what_was_saved_is_loaded(tmp_path):
    TimerCheckpoint(tmp_path).save(PROGRESS, 5)
    assert TimerCheckpoint(tmp_path).load() == PROGRESS
    assert (tmp_path / "config/timercheck").stat().st_size == 4096


def test_what_a_clock_that_was_set_back_left_behind_is_loaded_the_last_of_it_if_it_is_much(tmp_path):
    marks = tuple((10 * number, 1_700_000_900_000 - 1000 * number) for number in range(1, 7))
    for count in range(7):
        progress = dataclasses.replace(PROGRESS, log_place=77, earlier=marks[:count])
        TimerCheckpoint(tmp_path).save(progress, 5)
        loaded = TimerCheckpoint(tmp_path).load()
        assert loaded == dataclasses.replace(progress, earlier=marks[:count][-4:])
        assert loaded.log_place == 77


def test_without_a_file_nothing_is_done(tmp_path):
    assert TimerCheckpoint(tmp_path).load() == TimerProgress()


def test_rocketmq_sees_an_offset_before_which_nothing_is_pending(tmp_path):
    checkpoint = TimerCheckpoint(tmp_path)
    checkpoint.save(PROGRESS, 5)
    assert THEIRS.unpack(checkpoint.path.read_bytes()[:56]) == (1_700_000_005_000, 0, 12, 12, 0, 5, 1)


def test_with_its_own_files_rocketmq_sees_where_we_are(tmp_path):
    checkpoint = TimerCheckpoint(tmp_path)
    checkpoint.save(PROGRESS, 5)
    checkpoint.save(PROGRESS, 6, log_end=520)
    assert THEIRS.unpack(checkpoint.path.read_bytes()[:56]) == (1_700_000_005_000, 520, 90, 90, 0, 6, 2)
    assert checkpoint.load() == PROGRESS


def test_what_rocketmq_wrote_since_counts(tmp_path):
    checkpoint = TimerCheckpoint(tmp_path)
    checkpoint.save(PROGRESS, 5)
    with checkpoint.path.open("r+b") as file:
        file.write(THEIRS.pack(1_700_000_050_000, 1040, 200, 200, 0, 9, 40))
    assert checkpoint.load() == TimerProgress(1_700_000_050_000, 200)
    checkpoint.save(PROGRESS, 10)
    assert THEIRS.unpack(checkpoint.path.read_bytes()[:56])[-1] == 41


@given(st.binary(max_size=200))
def test_any_bytes_are_some_progress(tmp_path_factory, data):
    checkpoint = TimerCheckpoint(tmp_path_factory.mktemp("store"))
    checkpoint.path.parent.mkdir()
    checkpoint.path.write_bytes(data)
    progress = checkpoint.load()
    assert progress.done_before >= 0
    assert progress.queue_offset >= 0


def test_what_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "config/timercheck").mkdir(parents=True)
    with pytest.raises(StoreError, match="timercheck"):
        TimerCheckpoint(tmp_path).load()


@pytest.mark.parametrize(
    ("out", "offset", "is_done"),
    [
        (4_000, 5, True),  # before the first pending
        (4_000, 50, True),  # due before
        (5_000, 50, True),  # of the step that was interrupted, delivered
        (5_000, 80, False),  # of the same, not delivered
        (6_000, 50, False),  # due later
        (4_000, 90, False),  # not read yet
    ],
)
def test_done_is_what_was_read_and_due_before(out, offset, is_done):
    assert TimerProgress(5_000, 90, 12, 6_000, 77).is_done(out, offset) is is_done


def test_slaves_copy_how_far_timers_are_in_rocketmqs_form():
    body = encode_progress(TimerProgress(5000, 9, 4, 6000, 2), now=123)
    assert struct.unpack(">7q", body) == (5000, 0, 9, 9, 0, 123, 0)
    for data in (body, body[:32]):  # early 5.x has no data version
        assert decode_progress(data, 77) == TimerProgress(5000, 9, log_place=77)
        assert decode_progress(data, 77).log_place == 77
    with pytest.raises(RemoteProtocolError, match="not 31"):
        decode_progress(body[:31], 0)
