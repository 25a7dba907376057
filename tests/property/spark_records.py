"""Records as they may lie in a store: plain ones mostly, and everything that is odd about some."""

from __future__ import annotations

from hypothesis import strategies as st

from pyromq.protocol import batch, compression, sysflag
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, MessageRecord, encode_record

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
times = st.integers(0, 2**42) | i64
hosts = st.sampled_from([bytes(8), bytes(range(8))]) | st.binary(min_size=8, max_size=8)
any_hosts = hosts | st.binary(min_size=20, max_size=20)
# Few names, so that they come twice and are those that have columns of their own.
names = st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"a", "größe".encode()])
values = st.sampled_from([b"A", b"k1 k2", b"", b"x\x01y", "日本".encode(), b"\xff\xfe", b"0" * 40])
regular = st.lists(st.tuples(names, values.filter(lambda v: v and v[0] != 0xFF and b"\x01" not in v)), max_size=6).map(
    lambda items: b"\x02".join(name + b"\x01" + value for name, value in dict(items).items())
)
irregular = st.lists(
    st.tuples(names, values).map(b"\x01".join) | st.sampled_from([b"", b"alone", b"\x01", b"\x01v", b"\xff\x01v"]),
    max_size=6,
).map(b"\x02".join)
properties = regular | regular.map(lambda raw: raw + b"\x02") | irregular | st.binary(max_size=30)
topics = st.sampled_from(["orders", "payments", "%RETRY%g", "RMQ_SYS_TRANS_HALF_TOPIC", "größe", "t" * 127])


@st.composite
def records(draw) -> MessageRecord:
    body = draw(st.binary(max_size=300))
    sys_flag = draw(st.sampled_from([0, 0, 0, 4, 8, 12]) | i32)
    sys_flag &= ~(sysflag.COMPRESSED | sysflag.INNER_BATCH)
    shape = draw(st.sampled_from(["plain"] * 6 + ["packed", "packed", "batch"]))
    if shape == "batch":
        items = draw(
            st.lists(st.builds(batch.BatchItem, st.binary(max_size=9), i32, properties), min_size=1, max_size=4)
        )
        body = batch.encode_batch(items)
        sys_flag |= sysflag.INNER_BATCH | sysflag.NEED_UNWRAP
    if shape == "packed" or (shape == "batch" and draw(st.booleans())):
        kind = draw(st.sampled_from([sysflag.ZLIB, sysflag.LZ4, sysflag.ZSTD]))
        body = compression.compress(body, kind)
        sys_flag = sysflag.with_compression(sys_flag, kind)
    born_host, store_host = draw(st.tuples(hosts, hosts) | st.tuples(any_hosts, any_hosts))
    is_v2 = draw(st.sampled_from([False, False, True]))
    return MessageRecord(
        draw(topics) + ("x" * 200 if is_v2 else ""),
        body,
        draw(properties),
        queue_id=draw(i32),
        flag=draw(i32),
        queue_offset=draw(i64),
        physical_offset=draw(i64),
        sys_flag=sys_flag,
        born_timestamp=draw(times),
        born_host=born_host,
        store_timestamp=draw(times),
        store_host=store_host,
        reconsume_times=draw(i32),
        prepared_transaction_offset=draw(i64),
        magic=MAGIC_V2 if is_v2 else MAGIC_V1,
    )


buffers = st.lists(records(), max_size=12).map(lambda found: b"".join(map(encode_record, found)))
