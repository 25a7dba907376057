"""What a signature proves, tried by an enemy who sees and changes bytes on the wire (docs/security.md).

Requests are signed and framed by hand, with headers of both kinds. A signature covers the values of the fields in the
order of their names, and the body: nothing says which value belongs to which field, or what is asked for.
"""

from __future__ import annotations

import pytest
from tests.integration.broker.account_kit import SECRET, account, connect, signed_ext, write_accounts
from tests.integration.broker.scene_kit import running, send_ext
from tests.integration.namesrv.raw_client import RawClient, binary_request, json_request

from pyromq.broker.requests import RULES
from pyromq.remoting import Admin

SEND, RUNTIME_INFO, DELETE_EXPIRED = 310, 28, 329
BODY = b"an order"
OTHER_SECRET = "an0ther-secret"


@pytest.fixture
async def scene(tmp_path):
    rights = {"topics": ["orders=PUB"], "groups": ["g=SUB"]}
    other = account("other-sender", **rights).replace(SECRET, OTHER_SECRET)
    write_accounts(tmp_path / "store", account("orders-sender", **rights), other)
    async with running(tmp_path / "store", "aclEnable=true") as scene:
        # It may: then the topic is there.
        assert (await ask(scene, *signed())).code == 0
        yield scene


@pytest.fixture(params=["json", "binary"])
def framed(request):
    return {"json": json_request, "binary": binary_request}[request.param]


def signed(name="orders-sender", secret=SECRET, **fields):
    """A send that is allowed, signed as clients do it: its fields, and its body."""
    return signed_ext(send_ext("orders") | fields, BODY, name, secret), BODY


async def ask(scene, ext, body, code=SEND, framed=json_request):
    client = await RawClient.connect(scene.port)
    try:
        client.send(framed(code, ext, body))
        return await client.receive()
    finally:
        await client.close()


async def stored(scene, topic="orders"):
    return [each.body for each in await (await connect(scene, "administrator")).read(topic)]


def without(ext, name):
    return {key: value for key, value in ext.items() if key != name}


CHANGES = {
    "a field": lambda ext, body: (ext | {"h": "1"}, body),
    "the topic": lambda ext, body: (ext | {"b": "order5"}, body),
    "the body": lambda ext, body: (ext, b"an 0rder"),
    "no body": lambda ext, body: (ext, b""),
    "a longer body": lambda ext, body: (ext, body + b"s"),
    "another field": lambda ext, body: (ext | {"i": "KEYS\x01k"}, body),
    "another field, of which nobody knows": lambda ext, body: (ext | {"x-tra": "1"}, body),
    "a field less": lambda ext, body: (without(ext, "h"), body),
    "a sign of the signature": lambda ext, body: (
        ext | {"Signature": ("B" if ext["Signature"][0] == "A" else "A") + ext["Signature"][1:]},
        body,
    ),
    "half of the signature": lambda ext, body: (ext | {"Signature": ext["Signature"][:14]}, body),
    "an empty signature": lambda ext, body: (ext | {"Signature": ""}, body),
    "no signature": lambda ext, body: (without(ext, "Signature"), body),
    "the account": lambda ext, body: (ext | {"AccessKey": "other-sender"}, body),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_request_that_was_changed_is_refused_and_counted(scene, framed, change):
    before = scene.broker._access.refusals.counts[SEND]
    ext, body = change(*signed())
    reply = await ask(scene, ext, body, framed=framed)
    assert (reply.code, reply.remark) == (16, f"Check signature failed for accessKey={ext['AccessKey']}")
    assert scene.broker._access.refusals.counts[SEND] == before + 1
    assert await stored(scene) == [BODY]


async def test_nobody_signs_for_another_account(scene, framed):
    ext, body = signed("other-sender", OTHER_SECRET)
    assert (await ask(scene, ext, body, framed=framed)).code == 0
    for posing in (ext | {"AccessKey": "orders-sender"}, signed("orders-sender", OTHER_SECRET)[0]):
        reply = await ask(scene, posing, body, framed=framed)
        assert (reply.code, reply.remark) == (16, "Check signature failed for accessKey=orders-sender")


async def test_a_signature_counts_in_headers_of_both_kinds(scene, framed):
    ext, body = signed()
    assert (await ask(scene, ext, body, framed=framed)).code == 0


# What it does not prove: only TLS does


async def test_a_request_can_be_repeated(scene, framed):
    ext, body = signed()
    for _ in range(2):
        assert (await ask(scene, ext, body, framed=framed)).code == 0
    assert await stored(scene) == [BODY] * 3


@pytest.mark.slow
async def test_a_request_becomes_another_with_the_same_fields_and_no_more_rights(scene):
    """Signed for 28, figures of the broker, which have no fields; sent as every other request."""
    ext, body = signed_ext({}, b"", "orders-sender", SECRET), b""
    allowed = {code for code in RULES if (await ask(scene, ext, body, code)).code == 0}
    assert RUNTIME_INFO in allowed
    assert {RULES[code].admin for code in allowed} == {Admin.NEVER}
    reply = await ask(scene, ext, body, DELETE_EXPIRED)
    assert (reply.code, reply.remark.split(",")[0]) == (16, "Need admin permission for request code=329")
    of_administrator = signed_ext({}, b"", "administrator", SECRET)
    assert (await ask(scene, of_administrator, b"", DELETE_EXPIRED)).code == 0


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        # Renamed, but still between its neighbours.
        ({"b": None, "bb": "orders"}, (16, "No default permission for topic:")),
        # A part of one value, moved to the next.
        ({"a": "producerso", "b": "rders"}, (16, "No default permission for topic:rders")),
        ({"a": "producersorder", "b": "s"}, (16, "No default permission for topic:s")),
        # Empty fields have nothing that could be signed.
        ({"zz": ""}, (0, None)),
        # What some clients leave out.
        ({"SecurityToken": "t", "__ZONE_NAME": "z", "_UNIQUE_KEY_QUERY": "true"}, (0, None)),
    ],
)
async def test_what_can_be_changed_is_judged_by_the_rights_of_the_account(scene, framed, fields, answer):
    ext, body = signed()
    changed = {key: value for key, value in (ext | fields).items() if value is not None}
    reply = await ask(scene, changed, body, framed=framed)
    assert (reply.code, reply.remark) == answer


async def test_a_field_that_is_given_twice_is_one_for_all_who_read_it(scene):
    """Whoever decides and whoever stores must not take different ones for the topic."""
    administrator = await connect(scene, "administrator")
    assert (await administrator.create_topic("secrets")).code == 0
    for first, second in (("orders", "secrets"), ("secrets", "orders")):
        for read_as in (first, second):
            ext, body = signed(b=read_as)
            frame = json_request(SEND, ext, body)
            given, twice = f'"b": "{read_as}"'.encode(), f'"b": "{first}", "b": "{second}"'.encode()
            assert frame.count(given) == 1
            header_size = int.from_bytes(frame[5:8], "big") + len(twice) - len(given)
            rest = frame[8:].replace(given, twice)
            client = await RawClient.connect(scene.port)
            client.send((4 + len(rest)).to_bytes(4, "big") + header_size.to_bytes(4, "big") + rest)
            reply = await client.receive()
            await client.close()
            assert reply.code == (0 if read_as == second == "orders" else 16), reply
    assert await stored(scene, "secrets") == []
