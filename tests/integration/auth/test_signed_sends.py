"""Signed sends on a real port: many in one read, some of them wrong. Compiled code and the guard decide the same."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.integration.broker.scene_kit import running
from tests.unit.broker.message_kit import send_request
from tests.unit.store.kit import bodies

from pyromq import _native
from pyromq.protocol.command import Command, SerializeType
from pyromq.protocol.frame import FrameDecoder, encode
from pyromq.remoting import SigningHook

ACCOUNTS = """
accounts:
- accessKey: producer
  secretKey: a-secret-of-many
  topicPerms: [orders=PUB, events=PUB]
- accessKey: {long}
  secretKey: {secret}
  defaultTopicPerm: PUB
- accessKey: reader-1
  secretKey: another-secret
  defaultTopicPerm: SUB
- accessKey: admin-1
  secretKey: admin-secret
  admin: true
""".format(long="k" * 90, secret="s" * 90)
NAMES = {"producer": "a-secret-of-many", "k" * 90: "s" * 90, "reader-1": "another-secret", "admin-1": "admin-secret"}


BODY = b"body of some length"


def signed(
    who="producer",
    *,
    topic="orders",
    kind=SerializeType.JSON,
    secret=None,
    text="TAGS\x01A",
    body=BODY,
    queue=1,
    **after,
):
    """A send as an account signs it; `after` are fields that somebody else changed on the way."""
    request = send_request(body, text, topic=topic, queue_id=queue)
    request.serialize, request.opaque = kind, 7
    SigningHook(who, secret or NAMES[who]).before_request("", request)
    request.ext = {key: value for key, value in ((request.ext or {}) | after).items() if value != "(gone)"}
    return request


# Plain Python is the reference, and all there is where nothing is compiled.
WAYS = ["plain"] if _native.module("send_run") is None else ["compiled", "plain"]


@pytest.fixture(params=WAYS)
async def scene(request, tmp_path, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr("pyromq.broker.fast_sends._compiled", None)
    conf = tmp_path / "store" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    async with running(tmp_path / "store", "aclEnable=true") as scene:
        scene.accounts = conf / "plain_acl.yml"
        scene.is_compiled = request.param == "compiled"
        yield scene


async def answers(scene, *requests):
    """What each of these gets, sent in one piece."""
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
    writer.write(b"".join(map(encode, requests)))
    decoder = FrameDecoder()
    replies: list[Command] = []
    async with asyncio.timeout(10):
        while len(replies) < len(requests):
            data = await reader.read(1 << 16)
            assert data, replies
            decoder.feed(data)
            while (reply := decoder.next()) is not None:
                replies.append(reply)
    writer.close()
    return replies


def general_sends(scene):
    return scene.broker._parts.sends.general_sends


@pytest.mark.parametrize("kind", list(SerializeType))
async def test_good_ones_pass_and_wrong_ones_do_not_wherever_they_stand(scene, kind):
    good = [signed(who, kind=kind) for who in ("producer", "k" * 90, "admin-1")]
    wrong = {
        "another secret": signed(secret="wrong", kind=kind),
        "another account": signed(AccessKey="admin-1", kind=kind),
        "an altered field": signed(e="2", kind=kind),
        "altered properties": signed(i="TAGS\x01B", kind=kind),
        "a field more": signed(o="more", kind=kind),
        "a field less": signed(h="(gone)", kind=kind),
        "an altered signature": signed(Signature="A" * 27 + "=", kind=kind),
        "a short signature": signed(Signature="AAAA", kind=kind),
        "no signature": signed(Signature="(gone)", kind=kind),
        "nobody": signed(AccessKey="(gone)", Signature="(gone)", kind=kind),
        "a stranger": signed(AccessKey="stranger", kind=kind),
        "another body": signed(kind=kind),
        "a topic without rights": signed(topic="secrets", kind=kind),
        "no right to send": signed("reader-1", kind=kind),
    }
    wrong["another body"].body = b"body of some lengtj"
    assert [reply.code for reply in await answers(scene, *good)] == [0, 0, 0]  # the topic exists from here on
    asked = [request for bad in wrong.values() for request in (good[0], bad, good[1])]
    codes = [reply.code for reply in await answers(scene, *asked)]
    got = dict(zip(wrong, [codes[at : at + 3] for at in range(0, len(codes), 3)], strict=True))
    # Refusals come before what is stored at the end of the turn.
    assert sorted(codes) == sorted([16, 0, 0] * len(wrong)), got


async def test_a_right_that_is_taken_away_does_not_count_for_the_next_send(scene):
    assert [each.code for each in await answers(scene, *[signed()] * 5)] == [0] * 5
    scene.accounts.write_text(ACCOUNTS.replace("topicPerms: [orders=PUB, events=PUB]", "topicPerms: [orders=DENY]"))
    scene.broker._access.authority.files.load()
    assert [each.code for each in await answers(scene, *[signed()] * 5)] == [16] * 5
    scene.accounts.write_text(ACCOUNTS.replace("a-secret-of-many", "a-new-secret"))
    scene.broker._access.authority.files.load()
    assert [each.code for each in await answers(scene, signed(), signed(secret="a-new-secret"))] in ([16, 0], [0, 16])


async def test_usual_ones_need_no_command(scene):
    await answers(scene, signed())
    before = general_sends(scene)
    assert [each.code for each in await answers(scene, *[signed()] * 20)] == [0] * 20
    assert general_sends(scene) == before


async def test_every_alteration_of_a_bit_is_noticed(scene):
    await answers(scene, signed())
    frame = bytearray(encode(signed(kind=SerializeType.ROCKETMQ)))
    text = frame.index(b"TAGS\x01A")
    body = frame.index(b"body of")
    for at in (text, text + 5, body, len(frame) - 1, frame.index(b"producer") + 1):
        frame[at] ^= 1
        decoder = FrameDecoder()
        decoder.feed(bytes(frame))
        (reply,) = await answers(scene, decoder.next())
        assert reply.code == 16, at
        frame[at] ^= 1


@pytest.mark.parametrize("seed", range(6))
async def test_many_in_one_read_are_each_judged_by_their_own_signature(scene, seed):
    """They are checked side by side, in lanes: of all lengths, accounts and queues, with wrong ones anywhere."""
    random = Random(seed)
    await answers(scene, *[signed(topic=topic, queue=0) for topic in ("orders", "events")])
    lengths = [0, 1, *range(40, 72), 119, 120, 128, 1024, 4000, 8000, 8192, 9000]
    asked, right = [], []
    for number in range(120):
        body = random.randbytes(random.choice(lengths))
        request = signed(
            random.choice(["producer", "k" * 90, "admin-1"]),
            topic=random.choice(["orders", "events"]),
            kind=random.choice(list(SerializeType)),
            queue=random.randrange(4),
            text=random.choice(["TAGS\x01A", "TAGS\x01B\x02KEYS\x01k", "WAIT\x01false\x02TAGS\x01A", "DELAY\x010"]),
            body=body,
        )
        request.opaque = number
        is_right = random.random() > (0.02, 0.3)[seed % 2]
        if not is_right:
            request.body = body + b"more"
        asked.append(request)
        right.append(is_right)
    codes = {reply.opaque: reply.code for reply in await answers(scene, *asked)}
    assert [codes[number] == 0 for number in range(120)] == right
    store = scene.broker._parts._store
    stored = [body for topic in ("orders", "events") for queue in range(4) for body in bodies(store, topic, queue)]
    good = [request.body for request, is_right in zip(asked, right, strict=True) if is_right]
    assert sorted(stored) == sorted([BODY, BODY, *good])
