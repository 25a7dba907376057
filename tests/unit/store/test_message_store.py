"""The life of a store: opening, refusing, closing."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from tests.unit.store.kit import bodies, files_of, numbered, put, small, state

from pyromq.errors import ConfigError, StoreError
from pyromq.protocol.hashing import tags_code
from pyromq.store import MessageStore, StoreConfig
from pyromq.store.metadata import checked_file
from pyromq.store.queues import queue_ends
from pyromq.store.queues.queue_ends import QUEUE_ENDS
from pyromq.store.tags import TagsCodes, parse_delay_levels
from pyromq.testing import FaultyDisk


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_new_store_is_made_with_the_folders_above_it(stores):
    config = stores.config(root=stores.folder / "some" / "where")
    store = stores.start(config)
    assert (stores.folder / "some" / "where" / "commitlog").is_dir()
    assert not (stores.folder / "some" / "where" / "consumequeue").exists()
    put(store, b"a")
    assert bodies(store) == [b"a"]


def test_a_store_is_a_context(tmp_path):
    with MessageStore(small(tmp_path)) as store:
        put(store, b"a")
    with MessageStore(small(tmp_path)) as store:
        assert bodies(store) == [b"a"]


def test_closing_gives_everything_back(stores):
    before = open_files()
    store = stores.open()
    put(store, *numbered(0, 100), keys="k")
    stores.close(store)
    assert open_files() == before
    store.close()
    assert sorted(path.name for path in stores.root.iterdir()) == [
        "checkpoint",
        "commitlog",
        "consumequeue",
        "index",
        "lock",
        QUEUE_ENDS,
    ]


def test_a_store_is_opened_once(stores, store):
    stores.close(store)
    with pytest.raises(StoreError, match="create a new"):
        store.open()
    stores.start(store.config)


@pytest.mark.scenario("store 26")
def test_a_second_store_on_the_same_folder_is_refused_and_changes_nothing(stores, store):
    put(store, *numbered(0, 20))
    store.queue("T", 0).write_out()
    before = files_of(stores.root)
    with pytest.raises(StoreError, match=f"{stores.root} is in use by this process"):
        MessageStore(store.config).open()
    assert files_of(stores.root) == before
    put(store, b"m20")
    assert bodies(store) == numbered(0, 21)
    stores.close(store)
    assert bodies(stores.start(store.config)) == numbered(0, 21)


@pytest.mark.parametrize("fault", ["fail_folder_syncs", "fail_zeros", "fail_syncs", "fail_writes"])
def test_a_disk_that_fails_while_a_store_is_opened_is_a_clear_error(stores, store, fault):
    put(store, *numbered(0, 100))
    config = stores.crashed_copy(store)
    broken = FaultyDisk()
    getattr(broken, fault)(errno.EIO)
    before = open_files()
    with pytest.raises(StoreError, match=r"cannot open .*copy1.*Input/output error|cannot .*Input/output error"):
        MessageStore(config, disk=broken, clock=stores.clock).open()
    assert open_files() == before
    assert bodies(stores.start(config)) == numbered(0, 100)


def test_a_recovery_that_was_broken_off_is_done_again(stores, store):
    """The stop was clean, so nothing but the mark tells that the queues were being made anew."""
    put(store, *numbered(0, 100))
    before = state(store)
    stores.close(store)
    shutil.rmtree(stores.root / "consumequeue")
    broken = FaultyDisk()
    broken.fill(1500)
    with pytest.raises(StoreError, match="No space left"):
        MessageStore(store.config, disk=broken, clock=stores.clock).open()
    assert (stores.root / "abort").exists()
    assert state(stores.start(store.config)) == before


def test_a_place_where_no_folder_can_be_is_a_clear_error(stores):
    (stores.folder / "file").touch()
    with pytest.raises(StoreError, match="cannot create"):
        MessageStore(small(stores.folder / "file" / "store")).open()


def test_the_log_may_lie_in_other_folders(stores):
    paths = f"{stores.folder}/b, {stores.folder}/a"
    store = stores.open(commit_log_paths=paths)
    put(store, *numbered(0, 200))
    assert bodies(stores.reopen(store)) == numbered(0, 200)
    counts = [len(list((stores.folder / name).iterdir())) for name in ("a", "b")]
    assert min(counts) >= 2
    assert (stores.folder / "a" / f"{0:020d}").exists()
    assert not (stores.root / "commitlog").exists()


def test_the_log_lies_in_the_root_by_default():
    assert [str(path) for path in StoreConfig(root="/r").commit_log_folders] == ["/r/commitlog"]
    assert [str(path) for path in StoreConfig(root="/r", commit_log_paths="/y,/x,").commit_log_folders] == ["/x", "/y"]


# Delay levels


def test_delay_levels_are_read_as_rocketmq_writes_them():
    assert parse_delay_levels("1s 5m 2h 1d") == (1000, 300_000, 7_200_000, 86_400_000)
    assert len(parse_delay_levels(StoreConfig(root="/r").delay_levels)) == 18
    for wrong in ("5", "s", "5w", "1.5s", "-1s", "٣s"):
        with pytest.raises(ConfigError, match="messageDelayLevel"):
            parse_delay_levels(f"1s {wrong}")


def test_a_level_that_is_not_configured_is_delivered_soon():
    assert TagsCodes(()).of("SCHEDULE_TOPIC_XXXX", b"DELAY\x013", 5000) == 6000


def test_of_equal_names_the_last_with_a_value_is_the_tag():
    of_tag = TagsCodes(()).of_tag
    plain = of_tag(b"TAGS\x01B")
    assert plain != 0
    for properties in (
        b"TAGS\x01A\x02TAGS\x01B",
        b"TAGS\x01B\x02TAGS\x01",
        b"a\x01b\x02TAGS\x01B\x02c\x01d\x02",
        b"a\x01b\x02TAGS\x01A\x02TAGS\x01B\x02",
        b"XTAGS\x01A\x02TAGS\x01B",
    ):
        assert of_tag(properties) == plain
    for properties in (b"", b"TAGS", b"TAGS\x01", b"XTAGS\x01A", b"a\x01TAGS\x01A", b"a\x01b\x02TAGS\x01\x02"):
        assert of_tag(properties) == 0


@pytest.mark.parametrize("start", [b"TAGS\x01", b"a\x01b\x02TAGS\x01"])
def test_tags_are_remembered_within_bounds(start):
    codes = TagsCodes(())
    for number in range(10_100):
        codes.of_tag(start + b"t%d" % number)
    codes.of_tag(start + b"x" * 30_000)
    for known in (codes.known, codes._by_tag):
        assert len(known) <= 10_000
        assert max(map(len, known), default=0) < 1000
    assert codes.of_tag(start + b"t5") == codes.of_tag(start + b"t5") == tags_code("t5")


def test_what_no_other_message_has_is_not_remembered():
    codes = TagsCodes(())
    for number in range(100):
        codes.of_tag(b"a\x01b\x02TAGS\x01A\x02UNIQ_KEY\x01%d" % number)
    assert not codes.known


# Where queues ended


def test_where_queues_ended_is_written_down_at_the_stop_and_gone_while_the_store_is_open(stores, store):
    put(store, *numbered(0, 15))
    put(store, b"a", topic="U", queue_id=3)
    store.queue("Empty", 0)
    end = int(store.log.end)
    assert not (stores.root / QUEUE_ENDS).exists()
    stores.close(store)
    ends = queue_ends.load(stores.root / QUEUE_ENDS)
    assert ends is not None
    assert ends.log_end == end
    assert [(queue.topic, queue.queue_id, queue.max_offset) for queue in ends.queues] == [("T", 0, 15), ("U", 3, 1)]
    again = stores.start(store.config)
    assert not (stores.root / QUEUE_ENDS).exists()
    assert again.queues.find("Empty", 0) is None


def test_a_checked_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "file"
    for content in (b"long content", b"short", b""):
        checked_file.save(path, content, FaultyDisk())
        assert checked_file.load(path) == content


@pytest.mark.parametrize("cut", range(20))
def test_a_checked_file_that_is_torn_says_nothing(tmp_path, cut):
    path = tmp_path / "file"
    checked_file.save(path, b"abc", FaultyDisk())
    path.write_bytes(path.read_bytes()[:cut].ljust(20, b"\0"))
    assert checked_file.load(path) == (b"abc" if cut == 20 else None)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"00000000\n{}", b"\xff" * 50, b"a3c44e2300000002\n{}"])
def test_what_was_not_written_down_whole_says_nothing(tmp_path, content):
    path = tmp_path / QUEUE_ENDS
    if content is not None:
        path.write_bytes(content)
    assert queue_ends.load(path) is None


def test_what_was_written_down_says_nothing_once_others_wrote_to_the_log(stores, store):
    put(store, *numbered(0, 15))
    stores.close(store)
    old = (stores.root / QUEUE_ENDS).read_bytes()
    again = stores.start(store.config)
    again.delete_topic("T")
    put(again, b"new", topic="U")
    stores.close(again)
    (stores.root / QUEUE_ENDS).write_bytes(old)  # as if RocketMQ had done all that
    third = stores.start(store.config)
    assert state(third) == {("U", 0): (0, 1, [b"new"])}
    stores.is_damaged()  # a check wonders where the messages of the deleted topic are
