"""Signatures of requests: the vectors of docs/spec/remoting.md 8, and the clients that sign in their own way."""

from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.protocol.command import Command
from pyromq.remoting import SigningHook, is_signed_by, signature
from pyromq.remoting.acl import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, _variants

SECRET = "12345678"


def request(body: bytes | None = None, version: int = 409, **ext: str) -> Command:
    return Command(12, version=version, ext=ext or None, body=body)


def signed(command: Command, *unsigned: str, secret: str = SECRET) -> Command:
    """`command` as a client sends it that leaves `unsigned` out of what it signs."""
    command.ext = {**(command.ext or {}), SIGNATURE: signature(command, secret, unsigned)}
    return command


def test_the_vector_without_a_body():
    command = request(AccessKey="RocketMQ", queueId="1", topic="TopicTest")
    assert signature(command, SECRET) == "WuDH0ZqVURR+7gyUb+C65vmx7Jw="


def test_the_vector_with_token_and_body():
    command = request(b"hello", AccessKey="RocketMQ", queueId="1", topic="TopicTest", SecurityToken="tok")
    assert signature(command, SECRET) == "jGNNg+srRRaFgHOw6QAmd2gfXrA="


def test_the_hook_signs_as_the_vectors_do():
    plain = request(queueId="1", topic="TopicTest")
    SigningHook("RocketMQ", SECRET).before_request("peer", plain)
    assert plain.ext == {
        "queueId": "1",
        "topic": "TopicTest",
        ACCESS_KEY: "RocketMQ",
        SIGNATURE: "WuDH0ZqVURR+7gyUb+C65vmx7Jw=",
    }
    with_token = request(b"hello", queueId="1", topic="TopicTest")
    SigningHook("RocketMQ", SECRET, "tok").before_request("peer", with_token)
    assert with_token.ext is not None
    assert with_token.ext[SECURITY_TOKEN] == "tok"
    assert with_token.ext[SIGNATURE] == "jGNNg+srRRaFgHOw6QAmd2gfXrA="


def test_signing_twice_gives_the_same_signature():
    """A request may be sent again, to another server or on a new connection."""
    hook = SigningHook("RocketMQ", SECRET, "tok")
    command = request(b"hello", topic="TopicTest")
    hook.before_request("peer", command)
    first = command.ext
    hook.before_request("peer", command)
    assert command.ext == first


def test_the_hook_leaves_the_callers_own_fields_alone():
    ext = {"topic": "TopicTest"}
    command = Command(12, ext=ext)
    SigningHook("RocketMQ", SECRET).before_request("peer", command)
    assert ext == {"topic": "TopicTest"}


def test_a_hook_does_not_show_its_secrets():
    assert SECRET not in repr(SigningHook("RocketMQ", SECRET, "token of mine"))
    assert "token of mine" not in repr(SigningHook("RocketMQ", SECRET, "token of mine"))


def test_what_the_hook_signed_is_accepted_and_another_secret_is_not():
    command = request(b"body", topic="orders", z="ü", A="upper case comes first")
    SigningHook("RocketMQ", SECRET, "tok").before_request("peer", command)
    assert is_signed_by(command, SECRET)
    assert not is_signed_by(command, "87654321")


@pytest.mark.parametrize("change", ["a value", "a new field", "the body", "the access key"])
def test_whatever_was_signed_cannot_be_changed(change: str):
    command = request(b"body", AccessKey="RocketMQ", topic="orders")
    signed(command)
    assert command.ext is not None
    if change == "a value":
        command.ext["topic"] = "payments"
    elif change == "a new field":
        command.ext["queueId"] = "3"
    elif change == "the body":
        command.body = b"another body"
    else:
        command.ext[ACCESS_KEY] = "Somebody"
    assert not is_signed_by(command, SECRET)


@given(st.text(min_size=1, max_size=200), st.dictionaries(st.text(max_size=9), st.text(max_size=9)), st.binary())
def test_signatures_are_the_hmac_of_the_standard_library(secret: str, ext: dict[str, str], body: bytes):
    ext.pop(SIGNATURE, None)
    signed_bytes = "".join(ext[key] for key in sorted(ext)).encode("utf-8", "replace") + body
    expected = base64.b64encode(hmac.digest(secret.encode("utf-8", "replace"), signed_bytes, "sha1")).decode()
    assert signature(Command(12, ext=ext, body=body), secret) == expected
    command = Command(12, ext={**ext, SIGNATURE: expected}, body=body)
    assert is_signed_by(command, secret)
    assert not is_signed_by(command, secret + "x")


@pytest.mark.parametrize("version", [317, 399, 401, 409, 513])
@pytest.mark.parametrize("unsigned", [(), ("_UNIQUE_KEY_QUERY",)])
def test_the_unique_key_flag_may_be_signed_or_not(unsigned: tuple[str, ...], version: int):
    command = request(None, version, AccessKey="RocketMQ", _UNIQUE_KEY_QUERY="true", key="k")
    assert is_signed_by(signed(command, *unsigned), SECRET)


@pytest.mark.parametrize("unsigned", [(), (SECURITY_TOKEN,)])
def test_go_does_not_sign_the_security_token(unsigned: tuple[str, ...]):
    command = request(b"x", AccessKey="RocketMQ", SecurityToken="tok")
    assert is_signed_by(signed(command, *unsigned), SECRET)


@pytest.mark.parametrize("zone", [{"__ZONE_NAME": "z"}, {"__ZONE_NAME": "z", "__ZONE_MODE": "true"}])
def test_zone_fields_are_added_after_signing(zone: dict[str, str]):
    command = signed(request(AccessKey="RocketMQ", topic="orders"))
    command.ext = {**(command.ext or {}), **zone}
    assert is_signed_by(command, SECRET)


def test_all_habits_at_once_are_accepted():
    command = request(AccessKey="RocketMQ", _UNIQUE_KEY_QUERY="true", SecurityToken="t", __ZONE_NAME="z")
    assert is_signed_by(signed(command, "_UNIQUE_KEY_QUERY", SECURITY_TOKEN, "__ZONE_NAME"), SECRET)


def test_nodes_channel_is_signed_like_any_field():
    command = signed(request(AccessKey="RocketMQ", OnsChannel="ALIYUN"))
    assert is_signed_by(command, SECRET)
    assert command.ext is not None
    command.ext["OnsChannel"] = "OTHER"
    assert not is_signed_by(command, SECRET)


@pytest.mark.parametrize("given", ["", "x", "WuDH0ZqVURR+7gyUb+C65vmx7Jw", "é", "\ufffd" * 28])
def test_an_empty_or_senseless_signature_is_refused(given: str):
    command = request(AccessKey="RocketMQ", queueId="1", topic="TopicTest", Signature=given)
    assert not is_signed_by(command, SECRET)


def test_a_request_without_fields_is_not_signed():
    assert not is_signed_by(request(), SECRET)
    assert not is_signed_by(request(AccessKey="RocketMQ"), SECRET)


def test_code_and_number_are_not_part_of_what_is_signed():
    command = signed(request(AccessKey="RocketMQ"))
    command.code, command.opaque, command.remark = 99, 7, "changed"
    assert is_signed_by(command, SECRET)


def test_a_body_in_pieces_is_signed_as_a_whole():
    whole = request(b"hello", AccessKey="RocketMQ")
    pieces = Command(12, ext={"AccessKey": "RocketMQ"}, body=[b"he", memoryview(b"llo")])
    assert signature(whole, SECRET) == signature(pieces, SECRET)


def test_text_that_no_header_can_carry_does_not_stop_the_signing():
    """Writing the header refuses it, with an error that says so."""
    SigningHook("RocketMQ", SECRET).before_request("peer", request(topic="\ud800"))


SOMETIMES_UNSIGNED = ["_UNIQUE_KEY_QUERY", SECURITY_TOKEN, "__ZONE_NAME", "__ZONE_MODE"]
EXTS = st.dictionaries(st.sampled_from(["a", "b", "topic", ACCESS_KEY, *SOMETIMES_UNSIGNED]), st.text(max_size=3))


@given(EXTS, st.none() | st.binary(max_size=5), st.sets(st.sampled_from(SOMETIMES_UNSIGNED)), st.booleans(), st.text())
def test_the_fast_path_agrees_with_the_general_one(ext, body, unsigned, with_secret, forged):
    command = signed(request(body), *unsigned) if not ext else signed(Command(12, ext=ext, body=body), *unsigned)
    if not with_secret:
        command.ext = {**(command.ext or {}), SIGNATURE: forged}
    sent = (command.ext or {})[SIGNATURE].encode("utf-8", "replace")
    general = any(
        hmac.compare_digest(signature(command, SECRET, leave_out).encode(), sent) for leave_out in _variants(command)
    )
    assert is_signed_by(command, SECRET) == general


def test_without_a_signature_nothing_is_signed():
    assert not is_signed_by(request(), SECRET)
    assert not is_signed_by(request(b"hello", AccessKey="a"), SECRET)
    assert not is_signed_by(request(b"hello", Signature=""), SECRET)
