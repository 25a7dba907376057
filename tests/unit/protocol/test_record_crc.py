from __future__ import annotations

import zlib

import pytest

from pyromq.protocol import record_crc


def with_crc(record: bytes) -> bytes:
    digits = f"{zlib.crc32(record) & 0x7FFFFFFF:010d}"[::-1]
    return record + b"__CRC32#\x01" + digits.encode() + b"\x02"


def test_an_intact_record_is_recognised():
    assert record_crc.verify(with_crc(b"any record")) is True
    assert record_crc.stored_crc(with_crc(b"any record")) == zlib.crc32(b"any record") & 0x7FFFFFFF


def test_a_changed_record_is_noticed():
    assert record_crc.verify(b"x" + with_crc(b"any record")) is False


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"any record",
        b"__CRC32#\x01123456789\x02",
        b"__CRC32#\x0112345678x0\x02",
        b"__CRC32#\x011234567890\x01",
        b"TAGS\x01a\x02__CRC31#\x011234567890\x02",
    ],
)
def test_a_record_without_one_has_nothing_to_verify(raw):
    assert record_crc.stored_crc(raw) is None
    assert record_crc.verify(raw) is None
