from __future__ import annotations

import pytest

from pyromq.protocol import sysflag

V4 = bytes(8)
V6 = bytes(20)


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        (0x001, sysflag.ZLIB),
        (0x301, sysflag.ZLIB),
        (0x101, sysflag.LZ4),
        (0x201, sysflag.ZSTD),
        (0x701, 7),
    ],
)
def test_an_absent_compression_type_means_zlib(flag, kind):
    assert sysflag.compression_type(flag) == kind


def test_compression_replaces_the_type_and_keeps_the_other_bits():
    assert sysflag.with_compression(0x0, sysflag.ZLIB) == 0x301
    assert sysflag.with_compression(0x30C, sysflag.LZ4) == 0x10D
    assert sysflag.without_compression(0x30D) == 0x00C


@pytest.mark.parametrize("kind", [sysflag.NOT_TRANSACTION, sysflag.PREPARED, sysflag.COMMIT, sysflag.ROLLBACK])
def test_the_transaction_type_is_replaced_not_added(kind):
    flag = sysflag.with_transaction_type(0x301 | sysflag.PREPARED, kind)
    assert sysflag.transaction_type(flag) == kind
    assert flag & ~sysflag.TRANSACTION_MASK == 0x301


@pytest.mark.parametrize(("born", "store", "bits"), [(V4, V4, 0x00), (V6, V4, 0x10), (V4, V6, 0x20), (V6, V6, 0x30)])
def test_host_bits_follow_the_hosts_whatever_the_sender_claimed(born, store, bits):
    for claimed in (0x00, 0x10, 0x20, 0x30):
        flag = sysflag.with_hosts(0x301 | claimed, born, store)
        assert flag == 0x301 | bits
        assert sysflag.born_host_length(flag) == len(born)
        assert sysflag.store_host_length(flag) == len(store)
