"""A filter that can test many messages together gives what one gives that tests them one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.store.kit import put, records, small

from pyromq.protocol.ids import encode_host
from pyromq.protocol.record import MAGIC_V2, MessageRecord, stored_properties
from pyromq.store import GetResult, GetStatus, MessageStore, PropertiesTest
from pyromq.store.format import ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.store.record_table import PropertiesTable

V4, V6 = encode_host("127.0.0.1", 1), encode_host("::1", 1)
MARK = b"w\x01yes"
LARGE = {"commit_log_file_size": 1 << 20, "consume_queue_file_size": 20_000}


class Marked(PropertiesTest):
    """Selects messages that have a mark, and counts how they were tested."""

    def __init__(self, expected: int = 8) -> None:
        self.alone = 0
        self.together: list[int] = []
        self._expected = expected

    def __call__(self, record: memoryview) -> bool:
        self.alone += 1
        return is_marked(record)

    def of_many(self, properties: PropertiesTable) -> list[bool]:
        self.together.append(len(properties))
        return [MARK in properties.of(number) for number in range(len(properties))]

    def expected(self, wanted: int) -> int:
        return self._expected


def is_marked(record: memoryview) -> bool:
    return MARK in stored_properties(record)


def marked(is_wanted: bool, *, body: bytes = b"", host: bytes = V4, topic: str = "T") -> MessageRecord:
    return MessageRecord(topic, body, MARK if is_wanted else b"w\x01no", born_host=host, store_host=V4)


def fill(store: MessageStore, messages: Iterable[MessageRecord]) -> None:
    queue = store.queue("T", 0)
    store.put([(queue, [each]) for each in messages])


def read_all(store: MessageStore, match, count: int = 32) -> tuple[list[int], list[GetResult]]:
    """The offsets of what is selected, read to the end of the queue, and the answers."""
    queue = store.queue("T", 0)
    at, found, results = int(queue.min_offset), [], []
    while at < queue.max_offset:
        result = store.get(queue, at, count, match=match)
        assert result.next_offset > at
        assert (result.status is GetStatus.FOUND) == bool(result.count)
        assert (result.count, result.size) == (len(result.slices), sum(map(len, result.slices)))
        assert replace(result, is_fast=False) == store.reader.general(queue, at, count, match=is_marked)
        found += [record.queue_offset for record in records(result.slices)]
        results.append(result)
        at = int(result.next_offset)
    return found, results


def test_messages_are_tested_together_where_they_can_be(stores):
    store = stores.open(**LARGE)
    fill(store, [marked(number % 10 == 3) for number in range(100)])
    match = Marked(40)
    found, results = read_all(store, match)
    assert found == list(range(3, 100, 10))
    assert match.alone == 0
    assert match.together == [40, 40, 20]
    assert len(results) == 1


def test_an_answer_that_is_full_goes_on_behind_the_last_that_it_holds(stores):
    store = stores.open(**LARGE)
    fill(store, [marked(number % 10 == 3) for number in range(100)])
    found, results = read_all(store, Marked(100), count=4)
    assert found == list(range(3, 100, 10))
    assert [int(result.next_offset) for result in results] == [34, 74, 100]
    assert [result.count for result in results] == [4, 4, 2]


def test_an_answer_holds_no_more_bytes_than_it_may(stores):
    store = stores.open(**LARGE, max_bytes_in_memory=1000)
    fill(store, [marked(number % 2 == 0, body=bytes(300)) for number in range(19)])
    found, results = read_all(store, Marked(100))
    assert found == list(range(0, 19, 2))
    assert {result.count for result in results} == {2}


def test_one_message_always_has_room(stores):
    store = stores.open(**LARGE, max_bytes_in_memory=1)
    fill(store, [marked(number % 2 == 0) for number in range(19)])
    assert [result.count for result in read_all(store, Marked(100))[1]] == [1] * 10


def test_messages_of_several_files_are_found(stores):
    store = stores.open()  # files of 4 KB
    fill(store, [marked(number % 3 == 0, body=bytes(100)) for number in range(200)])
    match = Marked(50)
    assert read_all(store, match)[0] == list(range(0, 200, 3))
    assert match.together


@pytest.mark.parametrize("host", [V4, V6])
@pytest.mark.parametrize("topic_of_v2", [False, True])
def test_unusual_records_are_tested_one_by_one(stores, host, topic_of_v2):
    topic = "%RETRY%" + "g" * 200 if topic_of_v2 else "T"
    store = stores.open(**LARGE)
    queue = store.queue(topic, 0)
    store.put([(queue, [marked(number % 4 == 1, host=host, topic=topic)]) for number in range(40)])
    match = Marked()
    found = store.get(queue, 0, 32, match=match)
    assert [record.queue_offset for record in records(found.slices)] == list(range(1, 40, 4))
    is_usual = host == V4 and not topic_of_v2
    assert (match.alone == 0) == is_usual
    if topic_of_v2:
        assert records(found.slices)[0].magic == MAGIC_V2


def test_damaged_entries_select_nothing_and_hide_nothing(stores):
    store = stores.open(**LARGE)
    fill(store, [marked(True) for _ in range(30)])
    queue = store.queue("T", 0)
    good = bytes(queue.tail)
    physical, size, code = ENTRY.unpack_from(good, 7 * ENTRY.size)
    for wrong in (
        (physical + 1, size, code),
        (physical, size + 1, code),
        (physical, 5, code),
        (-1, size, code),
        (2**40, size, code),
        (physical, 2**31 - 1, code),
    ):
        ENTRY.pack_into(queue.tail, 7 * ENTRY.size, *wrong)
        assert read_all(store, Marked(100))[0] == [*range(7), *range(8, 30)], wrong
    stores.is_damaged()


@given(
    wanted=st.lists(st.tuples(st.booleans(), st.sampled_from([V4, V4, V4, V6]), st.integers(0, 400)), max_size=60),
    count=st.integers(1, 40),
    expected=st.integers(1, 100),
)
def test_the_same_messages_are_found_either_way(tmp_path_factory, wanted, count, expected):
    root = tmp_path_factory.mktemp("store")
    with MessageStore(small(root)) as store:
        if not wanted:
            put(store, b"only this")
        fill(store, [marked(is_wanted, body=bytes(size), host=host) for is_wanted, host, size in wanted])
        plain = Marked()
        together = read_all(store, Marked(expected), count)[0]
        one_by_one = read_all(store, lambda record: plain(record), count)[0]
        assert together == one_by_one == [at for at, (is_wanted, *_) in enumerate(wanted) if is_wanted]
