"""Whether etcd went back, judged from what was seen before; and where a prefix ends."""

from __future__ import annotations

import pytest

from pyromq.controller.etcd_seen import Known, Seen, SeenFile, went_back
from pyromq.controller.replicas import Group

SEEN = Seen(revision=100, groups={"b": (7, 5, 9)})


def group(master_epoch, set_epoch):
    return {"b": Group(cluster="c", name="b", master_epoch=master_epoch, set_epoch=set_epoch)}


@pytest.mark.parametrize(
    ("revision", "created", "groups"),
    [
        (100, 7, group(5, 9)),
        (200, 7, group(6, 9)),
        (200, 150, group(1, 1)),  # removed and made again
        (200, 0, {}),  # removed
    ],
)
def test_what_goes_on_did_not_go_back(revision, created, groups):
    assert went_back(SEEN, revision, {"b": Known(created, revision)}, groups) is None


@pytest.mark.parametrize(
    ("revision", "groups", "words"),
    [
        (99, group(5, 9), "its revision is 99, it was 100"),
        (99, {}, "its revision is 99, it was 100"),
        (200, group(4, 9), "b is at epoch 4 and set epoch 9, it was at 5 and 9"),
        (200, group(5, 8), "b is at epoch 5 and set epoch 8, it was at 5 and 9"),
    ],
)
def test_what_is_smaller_went_back(revision, groups, words):
    assert went_back(SEEN, revision, {"b": Known(7, 50)}, groups) == words


def test_a_file_that_nobody_can_read_is_no_reason_to_stay_away(tmp_path, caplog):
    file = SeenFile(tmp_path / "new")
    assert file.read() is None
    file.write(SEEN)
    assert file.read() == SEEN
    file.path.write_text("{")
    assert file.read() is None
    assert "whether etcd went back is not checked" in caplog.text
