"""Damage in the checkpoint and in the config files."""

from __future__ import annotations

import os
import struct

import pytest
from tests.unit.store.check.kit import found, overwrite, records


def test_a_short_checkpoint(root):
    os.truncate(root / "checkpoint", 10)
    assert found(root) == ["warning: checkpoint: has 10 bytes of 4096; what is missing counts as 0"]


def test_no_checkpoint_is_a_note(root):
    (root / "checkpoint").unlink()
    assert found(root) == ["note: checkpoint: is missing; after a crash the whole log would be read again"]


@pytest.mark.parametrize("number", range(3))
def test_a_checkpoint_beyond_the_newest_message(root, number):
    newest = records(root)[-1].store_timestamp
    name = ("the commit log", "the consume queues", "the index")[number]
    for time_, severity in ((newest + 1, "note"), (2**62, "warning")):
        overwrite(root / "checkpoint", 8 * number, struct.pack(">q", time_))
        assert found(root) == [
            (
                f"{severity}: checkpoint: says that {name} is on disk up to {time_}, "
                f"but the newest message is from {newest}"
            )
        ]


def test_a_checkpoint_with_a_time_that_is_none(root):
    overwrite(root / "checkpoint", 8, struct.pack(">q", -5))
    assert found(root) == ["warning: checkpoint: says that the consume queues is on disk up to -5, which is not a time"]


def test_unknown_files_are_noted_and_left_alone(root):
    (root / "notes.txt").write_text("mine")
    assert found(root) == ["note: notes.txt: is unknown; left alone"]
    assert (root / "notes.txt").read_text() == "mine"


TOPICS = '{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{"T":{"topicName":"T"}}}'


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"x.json": "{}"}, []),
        ({"x.json": '{"offsetTable":{1:2,3:9\n\t}}'}, []),
        ({"x.json": "{", "x.json.bak": "{}"}, ["warning: config/x.json: is torn: {}; x.json.bak is used instead"]),
        ({"x.json": "{"}, ["error: config/x.json: is torn: {}; x.json.bak is missing"]),
        ({"x.json": "", "x.json.bak": "{"}, ["error: config/x.json: is empty; x.json.bak is torn: {}"]),
        ({"x.json": "[]"}, ["error: config/x.json: is not a JSON object; x.json.bak is missing"]),
        ({"x.json.bak": "{}"}, ["warning: config/x.json: is missing; x.json.bak is used instead"]),
        ({"x.json": "{}", "x.json.bak": "{"}, ["note: config/x.json.bak: is torn: {}"]),
        ({"x.json.tmp": "{"}, ["note: config/x.json.tmp: is left over from an interrupted write"]),
        ({"x": "?"}, ["note: config/x: is unknown; left alone"]),
        ({"consumerOffset.json": '{"offsetTable":[]}', "consumerOffset.json.bak": "{}"}, ["warning"]),
    ],
)
def test_config_files(root, files, what):
    (root / "config").mkdir()
    for name, text in files.items():
        (root / "config" / name).write_text(text)
    texts = found(root)
    assert len(texts) == len(what)
    for text, expected in zip(texts, what, strict=True):
        start, _, end = expected.partition("{}")
        assert text.startswith(start)
        assert text.endswith(end)


def test_offsets_behind_the_ends_of_queues(root):
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Orders@g":{0:6,1:10},"Gone@g":{0:5}}}')
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{3:2,4:7}}')
    assert found(root) == [
        "warning: config/consumerOffset.json: group g continues at 10 in Orders/1, which ends at 9",
        "warning: config/delayOffset.json: delivery of level 3 continues at 2, but its queue ends at 1",
    ]
