"""Messages of every kind that a store keeps, and which of them should take the fast paths."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from pyromq.protocol import sysflag
from pyromq.protocol.ids import encode_host
from pyromq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from pyromq.protocol.record import MessageRecord

V4, V6 = encode_host("10.0.0.1", 10911), encode_host("2001:db8::1", 10911)
LONG_TOPIC = "%RETRY%" + "g" * 200


class Kind(NamedTuple):
    """A kind of message: how it differs from the simplest, and whether it should be put and read by the fast path.

    `filtered_fast` is about reading with a filter of properties, for which the whole head must be as most are.
    """

    topic: str = "T"
    properties: str = ""
    sys_flag: int = 0
    born_host: bytes = V4
    store_host: bytes = V4
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    size: int = 20
    messages: int = 1
    put_fast: bool = True
    read_fast: bool = True
    filtered_fast: bool = True
    has_entry: bool = True

    def records(self, body: bytes = b"", more: bytes = b"") -> list[MessageRecord]:
        own = self.properties.encode()
        return [
            MessageRecord(
                self.topic,
                body.ljust(self.size, b"."),
                own + b"\x02" + more if own and more else own + more,
                flag=number,
                sys_flag=self.sys_flag,
                born_timestamp=1_700_000_000_000,
                born_host=self.born_host,
                store_host=self.store_host,
                reconsume_times=self.reconsume_times,
                prepared_transaction_offset=self.prepared_transaction_offset,
            )
            for number in range(self.messages)
        ]


KINDS = {
    "plain": Kind(),
    "empty": Kind(size=0),
    "tagged": Kind(properties="TAGS\x01TagA"),
    "keyed": Kind(properties="KEYS\x01k1 k2\x02UNIQ_KEY\x017F000001"),
    "multi-tag": Kind(properties="TAGS\x01A||B", sys_flag=sysflag.MULTI_TAGS),
    "compressed": Kind(sys_flag=sysflag.with_compression(0, sysflag.ZLIB)),
    "with WAIT": Kind(properties="WAIT\x01true\x02TAGS\x01A"),
    "inner batch": Kind(sys_flag=sysflag.INNER_BATCH | sysflag.NEED_UNWRAP),
    "retried": Kind("%RETRY%billing", "RETRY_TOPIC\x01T", reconsume_times=3),
    "batch": Kind(properties="TAGS\x01B", messages=3),
    "delayed": Kind(SCHEDULE_TOPIC, "DELAY\x013\x02REAL_TOPIC\x01T\x02REAL_QID\x010", put_fast=False),
    "timer": Kind(TIMER_TOPIC, "TIMER_OUT_MS\x011700000100000\x02REAL_TOPIC\x01T\x02REAL_QID\x010", put_fast=False),
    "recall": Kind(TIMER_TOPIC, "TIMER_OUT_MS\x011700000100000\x02TIMER_DEL_UNIQKEY\x017F000001", put_fast=False),
    "half in its topic": Kind("RMQ_SYS_TRANS_HALF_TOPIC", "TRAN_MSG\x01true\x02REAL_TOPIC\x01T\x02REAL_QID\x010"),
    "prepared": Kind(sys_flag=sysflag.PREPARED, put_fast=False, has_entry=False),
    "committed": Kind(sys_flag=sysflag.COMMIT, prepared_transaction_offset=77, put_fast=False),
    "rolled back": Kind(sys_flag=sysflag.ROLLBACK, put_fast=False, has_entry=False),
    "IPv6 producer": Kind(born_host=V6, put_fast=False, filtered_fast=False),
    "IPv6 broker": Kind(store_host=V6, put_fast=False, filtered_fast=False),
    "IPv6 both": Kind(born_host=V6, store_host=V6, put_fast=False, filtered_fast=False),
    "lying host bits": Kind(sys_flag=sysflag.HOSTS_MASK, put_fast=False),
    "topic of 127 bytes": Kind("t" * 127),
    "long topic": Kind(LONG_TOPIC, put_fast=False, read_fast=False, filtered_fast=False),
    "large": Kind(size=40_000, put_fast=False),
    "batch from IPv6": Kind(born_host=V6, messages=2, put_fast=False, filtered_fast=False),
}
TOPICS = sorted({kind.topic for kind in KINDS.values()})

# Any of them, with some body and some property that tells one from the next.
UNITS = st.builds(
    lambda name, body, mark: (KINDS[name], KINDS[name].records(body, mark)),
    st.sampled_from(sorted(KINDS)),
    st.binary(max_size=60),
    st.sampled_from([b"", b"w\x01yes", b"w\x01no", b"TAGS\x01TagB"]),
)
