"""Files of messages, as they are read back."""

from __future__ import annotations

import json

import pytest

from pyromq.cli.failures import CommandFailed, Exit
from pyromq.cli.nouns.message.files import messages_in
from pyromq.errors import ConfigError


def line(**fields):
    return json.dumps({"topic": "orders", "body": "hi", "encoding": "utf-8"} | fields) + "\n"


def test_each_line_is_a_message(tmp_path):
    file = tmp_path / "in.ndjson"
    file.write_text(
        line(tags="red", keys=["a", "b"], properties={"region": "eu", "UNIQ_KEY": "U", "__SHARDINGKEY": "s"}, flag=3)
        + "\n"
        + line(body="/w==", encoding="base64")
    )
    first, second = messages_in(file)
    assert (first.topic, first.body, first.tags, first.flag) == ("orders", b"hi", "red", 3)
    assert (first.keys, first.properties, first.shard_key) == (["a", "b"], {"region": "eu"}, "s")
    assert second.body == b"\xff"
    assert [message.topic for message in messages_in(file, "copies")] == ["copies", "copies"]


def test_csv_has_the_same_columns(tmp_path):
    file = tmp_path / "in.csv"
    file.write_text(
        'topic,body,encoding,tags,keys,properties,flag\norders,"two\nlines",utf-8,red,"[""a""]","{""x"": ""1""}",2\n'
        "orders,plain,utf-8,,,,\n"
    )
    first, second = messages_in(file)
    assert (first.body, first.keys, first.properties, first.flag) == (b"two\nlines", ["a"], {"x": "1"}, 2)
    assert (second.body, second.tags, second.keys) == (b"plain", None, [])


def test_an_empty_file_has_no_messages(tmp_path):
    (tmp_path / "empty").write_text("")
    assert list(messages_in(tmp_path / "empty")) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{broken\n", "line 1: not JSON"),
        (line() + "{}\n", "line 2: no body"),
        (line(topic=None), "no topic"),
        (line(body=7), "no body"),
        (line(encoding="base64", body="!"), "the body is not base64"),
        (line(properties=[1]), "keys, properties or flag"),
        (line(keys="a"), "keys, properties or flag"),
        ("topic,body,flag\norders,x,many\n", "line 2: not what"),
        ("just text\n", None),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, reason):
    file = tmp_path / "bad"
    file.write_text(text)
    if reason is None:
        assert list(messages_in(file)) == []
        return
    with pytest.raises(CommandFailed, match=reason) as failed:
        list(messages_in(file))
    assert failed.value.exit_code is Exit.USAGE


def test_a_file_that_cannot_be_read_is_an_error_of_ours(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        list(messages_in(tmp_path / "missing"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        list(messages_in(tmp_path / "binary"))
