"""A slave is killed or stopped in the middle of a record: none that is not whole survives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.store.kit import message, small, state

if TYPE_CHECKING:
    from tests.unit.store.kit import Stores

    from pyromq.store import MessageStore


def sent(store: MessageStore, **fields: str) -> bytes:
    """Store one message with such fields, and another; the bytes of the log."""
    queue = store.queue("orders", 0)
    for number in range(2):
        store.put([(queue, [message(b"%d" % number, topic="orders", **fields)])])
    segment = store.log.segment_at(0)
    assert segment is not None
    return bytes(segment.view[: int(store.log.end)])


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("fields", [{}, {"tags": "red", "keys": "k1 k2"}], ids=["bare", "with properties"])
def test_no_half_record_is_left(stores: Stores, store: MessageStore, fields: dict[str, str], how: str) -> None:
    log = sent(store, **fields)
    first = len(log) // 2
    for cut in range(first + 1, len(log)):
        slave = stores.start(small(stores.folder / f"slave{cut}"))
        slave.append_copy(0, log[:cut])
        if how == "killed":
            stores.is_damaged(slave.root)
            slave = stores.crash(slave)
        else:
            slave = stores.reopen(slave)
        # Zeros that the record ends with are there without having been sent.
        whole = first if log[cut:].strip(b"\0") else len(log)
        assert (cut, slave.log.end) == (cut, whole if how == "killed" else first)
        slave.append_copy(int(slave.log.end), log[int(slave.log.end) :])
        assert state(slave) == state(store)
        stores.close(slave)


@pytest.mark.parametrize("how", ["restarted", "promoted"])
def test_what_was_once_a_copy_is_not_one_for_ever(stores: Stores, store: MessageStore, how: str) -> None:
    """A producer's own zero at the end of the properties stays, where the log was written by sends."""
    log = sent(store)
    slave = stores.start(small(stores.folder / "slave"))
    slave.append_copy(0, log)
    if how == "restarted":
        slave = stores.reopen(slave)
    else:
        slave.cut_torn_record()
    slave.put([(slave.queue("orders", 0), [message(topic="orders", keys="k\0")])])
    assert stores.crash(slave).queue("orders", 0).max_offset == 3
