"""The epochs of a log: their file, how they grow and shrink, and what two logs have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import StoreError
from pyromq.protocol.auto_switch import Epoch
from pyromq.store.disk import Disk
from pyromq.store.metadata.epochs import EpochTable, common_end
from pyromq.testing import FaultyDisk


def table(folder, *entries, disk=None):
    made = EpochTable(folder / "epochFileCheckpoint", disk or Disk())
    for entry in entries:
        made.append(Epoch(*entry))
    return made


def loaded(folder):
    made = table(folder)
    made.load()
    return made.entries


# docs/spec/controller.md 5, written by RocketMQ 5.5.0
FILES = [
    (b"1\n1725254278\n1-0\n", ((1, 0),)),
    (b"2\n1365812397\n1-0\n2-696\n", ((1, 0), (2, 696))),
    (b"3\n2145959714\n1-0\n2-696\n3-922\n", ((1, 0), (2, 696), (3, 922))),
]


@pytest.mark.parametrize(("text", "entries"), FILES)
def test_the_file_is_rocketmqs(tmp_path, text, entries):
    saved = table(tmp_path, *entries)
    assert saved.unsaved
    saved.save()
    assert not saved.unsaved
    assert (tmp_path / "epochFileCheckpoint").read_bytes() == text
    assert loaded(tmp_path) == entries


def test_no_file_is_no_epochs(tmp_path):
    assert loaded(tmp_path) == ()
    assert table(tmp_path).last_epoch == -1
    assert table(tmp_path).last is None


def test_a_checksum_of_0_is_not_looked_at(tmp_path):
    (tmp_path / "epochFileCheckpoint").write_bytes(b"1\n0\n4-17\n")
    assert loaded(tmp_path) == ((4, 17),)


@pytest.mark.parametrize(
    "damage",
    [b"", b"\n\n", b"2\n1365812397\n1-0\n", b"2\n1365812397\n1-0\n2-697\n", b"1\n0\nx-y\n", b"1\n0\n5\n", b"0\n0\n"],
)
def test_a_damaged_file_is_replaced_by_the_one_before(tmp_path, damage):
    saved = table(tmp_path, (1, 0))
    saved.save()
    saved.append(Epoch(2, 696))
    saved.save()
    path = tmp_path / "epochFileCheckpoint"
    path.write_bytes(damage)
    assert loaded(tmp_path) == ((1, 0),)

    again = table(tmp_path)
    again.load()
    again.append(Epoch(3, 700))
    again.save()
    assert loaded(tmp_path) == ((1, 0), (3, 700))
    # The damaged file never took the place of a sound one.
    path.unlink()
    assert loaded(tmp_path) == ((1, 0),)
    path.write_bytes(damage)
    (tmp_path / "epochFileCheckpoint.bak").write_bytes(damage)
    with pytest.raises(StoreError, match="epochFileCheckpoint"):
        loaded(tmp_path)


def test_epochs_out_of_order_are_damage(tmp_path):
    (tmp_path / "epochFileCheckpoint").write_bytes(b"2\n0\n2-0\n1-5\n")
    with pytest.raises(StoreError, match="epoch 1 follows epoch 2"):
        loaded(tmp_path)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path):
    disk = FaultyDisk()
    saved = table(tmp_path, (1, 0), disk=disk)
    saved.save()
    disk.fill(3)
    saved.append(Epoch(2, 696))
    with pytest.raises(OSError, match="No space"):
        saved.save()
    assert saved.unsaved
    assert loaded(tmp_path) == ((1, 0),)
    assert [path.name for path in tmp_path.iterdir()] == ["epochFileCheckpoint"]
    disk.free()
    saved.save()
    assert loaded(tmp_path) == ((1, 0), (2, 696))


def test_a_table_without_entries_has_no_file(tmp_path):
    saved = table(tmp_path, (1, 0))
    saved.save()
    saved.append(Epoch(2, 5))
    saved.save()
    saved.clear()
    assert saved.unsaved
    saved.save()
    assert list(tmp_path.iterdir()) == []


def test_an_epoch_without_a_message_is_forgotten_when_the_next_begins(tmp_path):
    epochs = table(tmp_path, (4, 1152), (5, 1606), (6, 1606))
    assert epochs.entries == ((4, 1152), (6, 1606))
    epochs.append(Epoch(9, 100))
    assert epochs.entries == ((9, 100),)


@pytest.mark.parametrize("epoch", [5, 4])
def test_an_epoch_follows_older_ones_only(tmp_path, epoch):
    epochs = table(tmp_path, (5, 10))
    with pytest.raises(StoreError, match=f"epoch {epoch} cannot follow epoch 5"):
        epochs.append(Epoch(epoch, 20))
    assert epochs.entries == ((5, 10),)


def test_which_epoch_a_byte_belongs_to_and_where_that_ends(tmp_path):
    epochs = table(tmp_path, (1, 10), (2, 696), (3, 922))
    assert epochs.entry_of(9) is None
    assert [epochs.entry_of(at) for at in (10, 695, 696, 921, 922, 5000)] == [
        *[(1, 10)] * 2,
        *[(2, 696)] * 2,
        *[(3, 922)] * 2,
    ]
    assert [epochs.end_of(at, 1152) for at in (10, 695, 696, 922)] == [696, 696, 922, 1152]


def test_what_is_cut_off_takes_its_epochs_along(tmp_path):
    epochs = table(tmp_path, (1, 0), (2, 696), (3, 922))
    epochs.save()
    epochs.cut(923)
    assert not epochs.unsaved
    epochs.cut(922)
    assert epochs.entries == ((1, 0), (2, 696))
    assert epochs.unsaved
    epochs.cut(0)
    assert epochs.entries == ()


def test_epochs_go_with_the_files_they_lie_in(tmp_path):
    epochs = table(tmp_path, (1, 0), (2, 696), (3, 922))
    epochs.drop_before(696)
    assert epochs.entries == ((1, 0), (2, 696), (3, 922))  # as RocketMQ: the end is compared with the byte before
    epochs.drop_before(697)
    assert epochs.entries == ((2, 696), (3, 922))
    epochs.drop_before(99_999)
    assert epochs.entries == ((3, 922),)


@pytest.mark.parametrize(
    ("own", "own_end", "other", "other_end", "common"),
    [
        # docs/spec/controller.md 6.2: back after two elections
        (((1, 0), (2, 696)), 1384, ((1, 0), (2, 696), (3, 922)), 1152, 922),
        (((1, 0),), 500, ((1, 0),), 900, 500),
        (((1, 0),), 900, ((1, 0),), 500, 500),
        # nothing was written in the newest epoch
        (((1, 0), (2, 696)), 696, ((1, 0), (3, 696)), 800, 696),
        # the log lost its end, and the table did not
        (((1, 0), (2, 696), (3, 922)), 800, ((1, 0), (2, 696), (3, 922)), 1152, 800),
        # an entry that the other side has elsewhere
        (((1, 0), (2, 600)), 900, ((1, 0), (2, 700)), 900, 600),
        # nothing in common
        (((1, 0),), 10, ((2, 0),), 10, None),
        (((1, 5),), 10, ((1, 0),), 10, None),
        (((1, 5),), 10, (), 10, None),
        ((), 10, ((1, 5),), 10, None),
    ],
)
def test_what_two_logs_have_in_common(own, own_end, other, other_end, common):
    one, two = (tuple(Epoch(*entry) for entry in entries) for entries in (own, other))
    assert common_end(one, own_end, two, other_end) == common
    assert common_end(two, other_end, one, own_end) == common


class Log:
    """A log as a list of the epochs in which its bytes were written, with its table."""

    def __init__(self, folder):
        self.bytes = []
        self.table = table(folder)

    def lead(self, epoch, count):
        self.table.append(Epoch(epoch, len(self.bytes)))
        self.bytes += [(epoch, number) for number in range(count)]

    def follow(self, other, count):
        common = self.table.common_end(len(self.bytes), other.table.entries, len(other.bytes))
        if common is None:
            if self.table.entries:
                assert not self.bytes or not other.bytes or self.bytes[0] != other.bytes[0]
                return
            common = len(self.bytes)
        assert self.bytes[:common] == other.bytes[:common]
        del self.bytes[common:]
        self.table.cut(common)
        for at in range(common, min(common + count, len(other.bytes))):
            entry = other.table.entry_of(at)
            if entry.epoch != self.table.last_epoch:
                self.table.append(entry)
            self.bytes.append(other.bytes[at])


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2), st.integers(0, 4), st.integers(0, 4)),
        max_size=25,
    )
)
def test_logs_are_equal_up_to_what_their_tables_have_in_common(steps):
    """Whoever leads, whoever follows how far, and whoever loses the end of its log."""
    from pathlib import Path

    logs = [Log(Path()) for _ in range(3)]
    for epoch, (leads, one, two, count, lost) in enumerate(steps, 1):
        if leads:
            logs[one].lead(epoch, count)
        elif one != two:
            logs[one].follow(logs[two], count)
        if lost == 4 and logs[one].bytes:
            logs[one].bytes.pop()
            # A log that ends earlier than its table says never leads in an epoch that it has.
    for one in logs:
        for two in logs:
            end = one.table.common_end(len(one.bytes), two.table.entries, len(two.bytes))
            if end is not None:
                assert one.bytes[:end] == two.bytes[:end]
