"""The fast decoder gives what the plain one gives, whatever the records are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.property.spark_records import buffers, records
from tests.unit.spark.rows import equal, plain_values, rows_of

from pyromq.protocol.record import encode_record
from pyromq.spark.decode import columns, general_columns
from pyromq.spark.decode.selection import Selection
from pyromq.spark.schema import ARROW_SCHEMA, COLUMNS


@given(buffers, st.booleans(), st.booleans(), st.booleans())
def test_fast_and_plain_give_the_same_rows(buffer, decompress, verify_crc, include_properties):
    equal(buffer, decompress=decompress, verify_crc=verify_crc, include_properties=include_properties)


@given(buffers, st.integers(1, 5), st.sampled_from([1, 100, 1000]))
def test_limits_change_batches_but_no_rows(buffer, max_rows, max_bytes):
    assert rows_of(columns.decode, buffer, max_rows=max_rows, max_bytes=max_bytes) == equal(buffer)


@given(buffers, st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
def test_any_columns_in_any_order_have_the_values_of_the_full_row(buffer, names):
    full = rows_of(columns.decode, buffer)
    assert rows_of(columns.decode, buffer, tuple(names)) == [
        row if "corrupt" in row else {name: row[name] for name in names} for row in full
    ]


@given(
    buffers,
    st.builds(
        Selection,
        topics=st.none() | st.just(frozenset({"orders", "%RETRY%g"})),
        tags=st.none() | st.just(frozenset({"A", "日本"})),
        internal=st.booleans(),
        since=st.none() | st.integers(0, 2**42),
        until=st.none() | st.integers(0, 2**42),
        queue_ids=st.none() | st.frozensets(st.integers(-1, 3)),
        first_offset=st.none() | st.just(0),
        offsets=st.none() | st.frozensets(st.integers(0, 5) | st.just(2**63 - 1)),
    ),
)
def test_fast_and_plain_select_the_same_records(buffer, selection):
    equal(buffer, selection=selection)


@given(buffers, st.data())
def test_damage_ends_in_rows_or_in_corrupt_record_at_the_same_place(buffer, data):
    damaged = bytearray(buffer)
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    equal(bytes(damaged), verify_crc=data.draw(st.booleans()))


# Without batches whose offsets go beyond what an offset can be: those are damaged.
sound = records().filter(lambda record: record.queue_offset < 2**62)


@given(st.lists(sound, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_records_at_positions_are_read_in_the_order_of_the_positions(found, random):
    starts = np.cumsum([0, *(len(encode_record(each)) for each in found)])[:-1]
    buffer = b"".join(map(encode_record, found))
    order = list(range(len(found)))
    random.shuffle(order)
    got = []
    positions = starts[order]
    while len(positions):
        batch, _, used = columns.decode(buffer, ARROW_SCHEMA, broker_name="broker-a", positions=positions)
        got += plain_values(batch)
        positions = positions[used:]
    expected = [rows_of(general_columns.decode, encode_record(found[index])) for index in order]
    assert got == [row for rows in expected for row in rows]
