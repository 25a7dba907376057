"""Bodies as tables and programs show them."""

from __future__ import annotations

import base64

import pytest

from pyromq.cli.nouns.message.rows import body_of, cell_of, encoded, message_row, shown_alone
from pyromq.cli.output import Output
from pyromq.protocol.message import MessageExt
from pyromq.protocol.record import MessageRecord


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ""),
        (b"hello", "hello"),
        (b"two\nlines", r"two\nlines"),
        ("a" * 80, "a" * 72 + "… (80 bytes)"),
        ("订" * 37, "订" * 36 + "… (111 bytes)"),
        (b"\x00\x01\xff", "0x0001ff"),
        (b"\x1b[2J", "0x1b5b324a"),
        (bytes(30), "0x" + "00" * 20 + "… (30 bytes)"),
    ],
)
def test_a_table_shows_the_beginning_of_a_body_on_one_line(body, shown):
    assert cell_of(body.encode() if isinstance(body, str) else body) == shown


def test_programs_get_all_of_it():
    assert encoded("ü".encode() * 1000) == ("ü" * 1000, "utf-8")
    text, encoding = encoded(b"\xff" * 1000)
    assert (base64.b64decode(text), encoding) == (b"\xff" * 1000, "base64")


def test_alone_a_body_is_laid_out():
    assert shown_alone(b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert shown_alone(b"{no json") == "{no json"
    assert shown_alone(b"[" * 100_000).startswith("[[[")
    assert shown_alone(b"\x00AB") == f"00000000  {'00 41 42':<47}  .AB"
    assert shown_alone(b"x" * 70_000).endswith("x\n… cut; --body prints all 70000 bytes")
    assert shown_alone(bytes(70_000)).endswith("… cut; --body prints all 70000 bytes")


def test_a_body_that_cannot_be_decompressed_is_shown_as_it_is():
    message = MessageExt(MessageRecord("orders", b"no zlib", sys_flag=1), "broker-a")
    assert body_of(message) == b"no zlib"


def test_a_row_has_the_whole_message_for_programs():
    properties = b"KEYS\x01a b\x02TAGS\x01red\x02MIN_OFFSET\x010\x02UNIQ_KEY\x01U1\x02region\x01eu"
    record = MessageRecord("orders", b"x" * 100, properties, queue_id=2, queue_offset=7, store_timestamp=1000)
    row = message_row(MessageExt(record, "broker-a"), Output.ndjson)
    assert (row.id, row.at, row.tags, row.keys) == ("U1", "broker-a:2:7", "red", ("a", "b"))
    assert (row.body, row.encoding, row.size) == ("x" * 100, "utf-8", 100)
    assert row.properties == {"KEYS": "a b", "TAGS": "red", "UNIQ_KEY": "U1", "region": "eu"}
    assert message_row(MessageExt(record, "broker-a"), Output.table).body.endswith("(100 bytes)")
