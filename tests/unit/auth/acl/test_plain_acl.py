"""The decisions of RocketMQ 4.x, in its order and with its texts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyromq.auth import Refused, RequestGuard
from pyromq.auth.acl import PlainAcl
from pyromq.auth.acl.folder import AccountChange, AccountFiles
from pyromq.auth.refusals import Refusals
from pyromq.broker.requests import RULES
from pyromq.namesrv.requests import RULES as NAME_SERVER
from pyromq.protocol.codes import RequestCode as Code
from pyromq.protocol.command import Command
from pyromq.remoting import SigningHook

SECRET = "a-long-secret"
HERE = "10.0.0.1:4711"
ACCOUNTS = f"""
globalWhiteRemoteAddresses: [10.9.9.*]
accounts:
- accessKey: orders-1
  secretKey: {SECRET}
  whiteRemoteAddress: 10.8.8.8
  defaultGroupPerm: SUB
  topicPerms: [topicA=PUB, topicB=SUB, topicC=PUB|SUB, topicD=DENY]
  groupPerms: [groupA=DENY]
- {{accessKey: everything, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: PUB|SUB}}
- {{accessKey: administrator, secretKey: {SECRET}, admin: true}}
- {{accessKey: half-administrator, secretKey: {SECRET}, admin: true, topicPerms: [topicA=PUB]}}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("acl") / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    path.chmod(0o600)
    files = AccountFiles(path)
    files.load()
    return files


def signed(code, ext=None, account="orders-1", secret=SECRET, body=None):
    request = Command.request(code, body=body)
    request.ext = dict(ext or {})
    if account is not None:
        SigningHook(account, secret).before_request(HERE, request)
    return request


def decide(files, request, address=HERE, rules=RULES, **options):
    """None if it is allowed, otherwise why it is not."""
    acl = PlainAcl(files, **options)
    rule = rules[request.code]
    found: list[Refused] = []
    try:
        account = acl.identify(request, address, rule)
        body = rule.needs.body(request.body_bytes) if rule.needs.body else ()
        acl.allow(account, [*rule.needs.of(request.ext or {}), *body], address, rule, request.code)
    except Refused as refused:
        found.append(refused)
    assert [each.code for each in found if SECRET not in each.remark] == [16] * len(found)
    return found[0].remark if found else None


def test_who_is_not_known_is_refused_in_the_order_of_rocketmq(files):
    assert decide(files, signed(Code.SEND_MESSAGE, {"topic": "topicA"}, None)) == "No accessKey is configured"
    assert decide(files, Command.request(Code.HEART_BEAT, body=b"{}")) == "No accessKey is configured"
    assert decide(files, signed(Code.SEND_MESSAGE, {"topic": "topicA"}, "nobody-1")) == "No acl config for nobody-1"
    wrong = signed(Code.SEND_MESSAGE, {"topic": "topicA"}, secret="another-secret")
    assert decide(files, wrong) == "Check signature failed for accessKey=orders-1"
    unsigned = Command.request(Code.SEND_MESSAGE)
    unsigned.ext = {"AccessKey": "orders-1", "topic": "topicA"}
    assert decide(files, unsigned) == "Check signature failed for accessKey=orders-1"


def test_a_long_access_key_is_not_told_again(files):
    remark = decide(files, signed(Code.SEND_MESSAGE, {"topic": "topicA"}, "x" * 50_000))
    assert remark == "No acl config for " + "x" * 100


def test_a_request_that_was_altered_is_refused(files):
    request = signed(Code.SEND_MESSAGE, {"topic": "topicA"}, body=b"1 euro")
    assert decide(files, request) is None
    request.body = b"2 euro"
    assert decide(files, request) == "Check signature failed for accessKey=orders-1"
    request = signed(Code.SEND_MESSAGE, {"topic": "topicD"})
    request.ext = {**(request.ext or {}), "topic": "topicA"}
    assert decide(files, request) == "Check signature failed for accessKey=orders-1"


def test_white_addresses_need_no_signature_and_may_do_everything(files):
    anonymous = signed(Code.UPDATE_BROKER_CONFIG, account=None)
    assert decide(files, anonymous, "10.9.9.200:1") is None
    assert decide(files, anonymous, "10.9.8.200:1") == "No accessKey is configured"
    named = Command.request(Code.UPDATE_BROKER_CONFIG)
    named.ext = {"AccessKey": "orders-1"}
    assert decide(files, named, "10.8.8.8:1") is None
    assert decide(files, anonymous, "10.8.8.8:1") == "No accessKey is configured"
    assert decide(files, named, "10.8.8.9:1") == "Check signature failed for accessKey=orders-1"


SEND = Code.SEND_MESSAGE_V2
PULL = Code.PULL_MESSAGE


@pytest.mark.parametrize(
    ("code", "ext", "why"),
    [
        (SEND, {"b": "topicA"}, None),
        (SEND, {"b": "topicB"}, "No default permission for topic:topicB"),
        (SEND, {"b": "topicC"}, None),
        (SEND, {"b": "topicD"}, "No default permission for topic:topicD"),
        (SEND, {"b": "topicE"}, "No default permission for topic:topicE"),
        (SEND, {}, "No default permission for topic:"),
        (SEND, {"b": "%RETRY%groupB"}, None),
        (SEND, {"b": "%RETRY%groupA"}, "No default permission for group:groupA"),
        (SEND, {"b": "RMQ_SYS_TRACE_TOPIC"}, None),
        (
            PULL,
            {"topic": "RMQ_SYS_TRACE_TOPIC", "consumerGroup": "g"},
            "No default permission for topic:RMQ_SYS_TRACE_TOPIC",
        ),
        (Code.SEND_BATCH_MESSAGE, {"b": "topicB"}, "No default permission for topic:topicB"),
        (PULL, {"topic": "topicB", "consumerGroup": "groupB"}, None),
        (PULL, {"topic": "topicA", "consumerGroup": "groupB"}, "No default permission for topic:topicA"),
        (PULL, {"topic": "topicB", "consumerGroup": "groupA"}, "No default permission for group:groupA"),
        (PULL, {"topic": "%RETRY%groupB", "consumerGroup": "groupB"}, None),
        (Code.CONSUMER_SEND_MSG_BACK, {"group": "groupA"}, "No default permission for group:groupA"),
        (Code.QUERY_MESSAGE, {"topic": "topicA"}, "No default permission for topic:topicA"),
        (Code.POP_MESSAGE, {"topic": "topicA", "consumerGroup": "g"}, "No default permission for topic:topicA"),
        (Code.GET_MAX_OFFSET, {"topic": "topicA"}, "No default permission for topic:topicA"),
        (Code.GET_TOPIC_STATS_INFO, {"topic": "topicA"}, None),
    ],
)
def test_rights_on_topics_and_groups(files, code, ext, why):
    assert decide(files, signed(code, ext)) == why


def test_what_a_body_names_is_checked_too(files):
    beat = b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[%s]}'
    consumer = b'{"groupName":"groupB","subscriptionDataSet":[{"topic":"%s"}]}'
    assert decide(files, signed(Code.HEART_BEAT, body=beat % b"")) is None
    assert decide(files, signed(Code.HEART_BEAT, body=beat % (consumer % b"topicB"))) is None
    refused = decide(files, signed(Code.HEART_BEAT, body=beat % (consumer % b"topicA")))
    assert refused == "No default permission for topic:topicA"


ADMINISTRATORS = [17, 25, 200, 207, 215]
# docs/spec/admin.md 5.1
ADMINISTRATORS_IF_STRICT = [50, 51, 52, 53, 54, 222, 306, 309, 314, 316, 329, 26]


@pytest.mark.parametrize("code", ADMINISTRATORS + ADMINISTRATORS_IF_STRICT)
def test_requests_for_administrators(files, code):
    need = f"Need admin permission for request code={code}, but accessKey=everything is not"
    body = b'{"groupName":"g"}' if code == 200 else None
    assert decide(files, signed(code, account="everything", body=body)) == need
    assert decide(files, signed(code, account="administrator", body=body)) is None
    plain = decide(files, signed(code, account="everything", body=body), strict=False)
    assert plain == (need if code in ADMINISTRATORS else None)


def test_an_administrator_with_a_list_of_rights_has_these_only_as_in_rocketmq(files):
    assert decide(files, signed(SEND, {"b": "topicA"}, "half-administrator")) is None
    assert (
        decide(files, signed(SEND, {"b": "topicB"}, "half-administrator")) == "No default permission for topic:topicB"
    )
    assert decide(files, signed(Code.UPDATE_BROKER_CONFIG, account="half-administrator")) is None
    assert decide(files, signed(SEND, {"b": "topicB"}, "administrator")) is None


def test_without_strict_only_what_rocketmq_asks_for_is_asked(files):
    assert decide(files, signed(Code.SEND_BATCH_MESSAGE, {"b": "topicB"}), strict=False) is None
    assert decide(files, signed(Code.POP_MESSAGE, {"topic": "x", "consumerGroup": "groupA"}), strict=False) is None
    assert decide(files, signed(SEND, {"b": "topicB"}), strict=False) == "No default permission for topic:topicB"
    assert decide(files, signed(Code.SEND_BATCH_MESSAGE, account=None), strict=False) == "No accessKey is configured"


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("code", NAME_SERVER)
def test_a_name_server_wants_an_administrator_for_changes_only(files, code, strict):
    def ask(account):
        request = signed(code, {"topic": "t"}, account)
        return decide(files, request, rules=NAME_SERVER, only_changes=True, strict=strict)

    assert ask("administrator") is None
    if code in (100, 102, 205, 216, 318, 327, 319):  # docs/spec/admin.md 5.3; 319 shows all settings
        assert ask(None) == "No accessKey is configured"
        assert ask("everything") == f"Need admin permission for request code={code}, but accessKey=everything is not"
    else:
        assert ask(None) is None


def test_a_change_counts_for_the_next_request(tmp_path):
    """Whatever is remembered of earlier ones: through the guard, with the same request before and after."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    path.chmod(0o600)
    files = AccountFiles(path)
    files.load()
    guarded = RequestGuard(RULES, PlainAcl(files), Refusals()).over({Code.SEND_MESSAGE: lambda *_: None})
    line = SimpleNamespace(peer=HERE)
    request = signed(Code.SEND_MESSAGE, {"topic": "topicA"})

    def why_not():
        try:
            guarded[Code.SEND_MESSAGE](cast("Any", line), request)
        except Refused as refused:
            return refused.remark
        return None

    assert why_not() is None
    files.set_account(AccountChange(access_key="orders-1", topic_perms=["topicA=SUB"]))
    assert why_not() == "No default permission for topic:topicA"
    files.set_account(AccountChange(access_key="orders-1", topic_perms=["topicA=PUB"]))
    assert why_not() is None
    files.set_account(AccountChange(access_key="orders-1", secret_key="another-secret"))
    assert why_not() == "Check signature failed for accessKey=orders-1"
    files.delete_account("orders-1")
    assert why_not() == "No acl config for orders-1"
