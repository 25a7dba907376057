"""Tasks and admission, whatever the ranges: every message once, no limit broken, no end never reached."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.spark.source.test_spark_planning import KIB, kib, queue, span

from pyromq.spark.source.planning import admit, plan


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 100)), max_size=12),
    st.sampled_from([1, KIB, 64 * KIB, 64 << 20]),
    st.none() | st.integers(1, 300),
    st.none() | st.integers(1, 40),
    st.integers(1, 8),
)
def test_every_message_is_in_one_task_and_no_task_is_too_large(found, size, max_records, least, parallelism):
    ranges = [span(number, length, start) for number, (length, start) in enumerate(found)]
    tasks = plan(
        ranges, kib, partition_bytes=size, max_records=max_records, min_partitions=least, parallelism=parallelism
    )
    pieces = sorted((each for task in tasks for each in task), key=lambda each: (each.queue.queue_id, each.start))
    for whole in ranges:
        own = [each for each in pieces if each.queue == whole.queue]
        assert [offset for each in own for offset in range(each.start, each.end)] == [*range(whole.start, whole.end)]
    for task in tasks:
        assert task
        rows = sum(map(len, task))
        assert rows * KIB <= size or rows == 1
        assert max_records is None or rows <= max_records


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=20),
    st.integers(1, 2000),
    st.sampled_from([1.0, 10.0]),
)
def test_a_stream_moves_on_within_its_limit_until_all_is_read(found, limit, price):
    starts = {queue(number): start for number, (start, _) in enumerate(found)}
    ends = {queue(number): start + backlog for number, (start, backlog) in enumerate(found)}
    at = starts
    for _ in range(sum(backlog for _, backlog in found) + 1):
        if at == ends:
            break
        following = admit(at, ends, limit, lambda queue: price)
        taken = sum(following[each] - at[each] for each in ends)
        assert taken >= 1
        assert taken * price <= limit or taken == 1
        assert all(at[each] <= following[each] <= ends[each] for each in ends)
        at = following
    assert at == ends
