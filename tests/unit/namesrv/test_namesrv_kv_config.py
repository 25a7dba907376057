"""KV config: the table, its file format, and the file that follows it."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from pyromq.errors import ConfigError, NotSaved
from pyromq.namesrv.kv_config import KVConfig, load_kv_config
from pyromq.settings.saved_file import SavedFile


def test_a_value_is_found_under_its_namespace_and_key_only():
    config = KVConfig()
    config.put("ns", "k", "v")
    assert config.get("ns", "k") == "v"
    assert config.get("ns", "other") is None
    assert config.get("other", "k") is None


def test_its_lines_name_every_key():
    config = KVConfig()
    config.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:8")
    config.put("ns", "empty", None)
    config.put("ns", "k", "v")
    assert config.lines() == [
        "KV config namespace=ORDER_TOPIC_CONFIG key=orders value=broker-a:8",
        "KV config namespace=ns key=k value=v",
    ]


def test_a_put_without_value_makes_the_namespace_only():
    config = KVConfig()
    config.put("ns", "k", None)
    assert config.namespace("ns") == {}
    assert config.namespace("other") is None


def test_an_emptied_namespace_stays():
    config = KVConfig()
    config.put("ns", "k", "v")
    config.delete("ns", "k")
    config.delete("ns", "k")
    config.delete("never", "k")
    assert config.namespace("ns") == {}
    assert config.namespace("never") is None


def test_the_file_is_one_compact_json_object():
    config = KVConfig()
    config.put("ORDER_TOPIC_CONFIG", "orders", "rack1:8")
    config.put("ns2", "ключ", 'a "quoted" value')
    content = config.encode()
    assert content.startswith(b'{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"rack1:8"},"ns2":{')
    assert json.loads(content)["configTable"]["ns2"] == {"ключ": 'a "quoted" value'}
    assert KVConfig.decode(content, "file").encode() == content


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"{}", b'{"configTable":null}', b'{"configTable":{}}', b"\xef\xbb\xbf{}"]
)
def test_an_empty_file_holds_nothing(content):
    assert KVConfig.decode(content, "file").encode() == b'{"configTable":{}}'


def test_values_that_are_not_text_are_read_as_their_json():
    config = KVConfig.decode(b'{"configTable":{"ns":{"n":4,"b":true}}}', "file")
    assert config.namespace("ns") == {"n": "4", "b": "true"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"configTable":\n{"ns":{"k":}}}', r"^kv\.json:2: not JSON: "),
        (b'\xff{"configTable":{}}', r"^kv\.json: not JSON in UTF-8$"),
        (b"[" * 100_000, r"^kv\.json: not JSON"),
        (b"[]", r"^kv\.json: the content must be a JSON object$"),
        (b'{"configTable":[]}', r"^kv\.json: configTable must be a JSON object$"),
        (b'{"configTable":{"ns":"v"}}', r"^kv\.json: ns must be a JSON object$"),
    ],
)
def test_a_file_that_is_something_else_is_refused_with_its_name(content, complaint):
    with pytest.raises(ConfigError, match=complaint):
        KVConfig.decode(content, "kv.json")


def test_a_missing_file_is_an_empty_config_and_an_unreadable_one_an_error(tmp_path):
    assert load_kv_config(tmp_path / "none.json").encode() == b'{"configTable":{}}'
    with pytest.raises(ConfigError, match="cannot be read"):
        load_kv_config(tmp_path)


async def test_the_newest_content_wins_when_many_are_saved_at_once(tmp_path):
    file = SavedFile(tmp_path / "a" / "kv.json")
    await asyncio.gather(*(file.save(b"%d" % n) for n in range(20)))
    assert file.path.read_bytes() == b"19"


async def test_a_cancelled_save_neither_blocks_the_next_nor_overtakes_it(tmp_path):
    file = SavedFile(tmp_path / "kv.json")
    first = asyncio.create_task(file.save(b"first"))
    await asyncio.sleep(0)
    first.cancel()
    await file.save(b"second")
    with pytest.raises(asyncio.CancelledError):
        await first
    assert file.path.read_bytes() == b"second"


def test_a_thread_that_comes_late_does_not_bring_old_content_back(tmp_path):
    file = SavedFile(tmp_path / "kv.json")
    file._write(2, b"new")
    file._write(1, b"old")
    assert file.path.read_bytes() == b"new"


async def test_a_failed_write_is_logged_and_raised(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.ERROR), pytest.raises(NotSaved, match=r"kv\.json could not be written"):
        await SavedFile(tmp_path / "file" / "kv.json").save(b"lost")
    assert "kv.json not written" in caplog.text
