"""What stands in one file of accounts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.auth.acl.files import DENY, PUB, SUB, AclFile, parse
from pyromq.auth.acl.yaml_text import dump, plain, read
from pyromq.errors import ConfigError

ROCKETMQ = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB

  - accessKey: rocketmq2
    secretKey: "00123456"
    whiteRemoteAddress: 192.168.1.*
    admin: true
dataVersion:
- counter: 3
  timestamp: 1700000000000
"""


def test_the_file_that_comes_with_rocketmq():
    found = parse(ROCKETMQ, "plain_acl.yml")
    assert found.white == ["10.10.103.*", "192.168.0.*"]
    first, second = found.accounts
    assert (first.access_key, first.secret_key, first.admin) == ("RocketMQ", "12345678", False)
    assert (first.default_topic, first.default_group) == (DENY, SUB)
    assert first.topics == {"topicA": DENY, "topicB": PUB | SUB, "topicC": SUB}
    assert first.groups == {"groupA": DENY, "groupB": PUB | SUB}
    assert not first.white
    assert not first.may_all
    assert (second.secret_key, second.may_all, second.white.texts) == ("00123456", True, ["192.168.1.*"])
    assert (second.default_topic, second.default_group) == (DENY, DENY)
    assert (found.version.counter, found.version.timestamp) == (3, 1700000000000)
    assert found.notes == []


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "---\n", "~", "accounts:\n", "accounts: []\ndataVersion:\n"])
def test_an_empty_file_has_no_accounts(text):
    assert parse(text, "f") == AclFile()


@pytest.mark.parametrize(
    "secret", ["00123456", "1234567890123456789012", "1e5000000", "0x12345678", "on_and_on", "true_1234"]
)
def test_a_secret_is_what_stands_there(secret):
    text = f"accounts: [{{accessKey: orders-1, secretKey: {secret}}}]"
    assert parse(text, "f").accounts[0].secret_key == secret
    # And stays so when the file is written anew.
    assert parse(dump(plain(read(text, "f"))), "f").accounts[0].secret_key == secret


def account(**fields):
    return dump({"accounts": [{"accessKey": "orders-1", "secretKey": "a-long-secret"} | fields]})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "accounts:\n- accessKey: admin\n  secretKey: a-long-secret",
            "f:2: accessKey must be longer than 6 characters",
        ),
        ("accounts:\n- accessKey: orders-1\n  secretKey: secret", "f:3: secretKey must be longer than 6 characters"),
        ("accounts:\n- accessKey: orders-1\n", "f:2: secretKey is missing"),
        ("accounts:\n- accessKey:\n  secretKey: a-long-secret", "f:2: accessKey is missing"),
        ("accounts:\n- accessKey: [a]\n", "f:2: accessKey must be text"),
        ("accounts:\n- orders-1\n", "f:2: an account needs accessKey and secretKey"),
        ("accounts: orders-1\n", "f:1: accounts must be a list"),
        ("accounts: {a: b}\n", "f:1: accounts must be a list"),
        ("- accessKey: orders-1\n", "f:1: needs accounts or globalWhiteRemoteAddresses"),
        (account(admin="maybe"), "f:4: admin must be true or false"),
        (account(defaultTopicPerm="PUBSUB"), "f:4: defaultTopicPerm: 'PUBSUB' is not one of DENY, PUB, SUB, PUB|SUB"),
        (account(topicPerms=["a=PUB", "b"]), "f:6: topicPerms: 'b' is not of the form name=PUB"),
        (account(topicPerms=["a=READ"]), "f:5: topicPerms: 'READ' is not one of DENY, PUB, SUB, PUB|SUB"),
        (account(groupPerms=["=SUB"]), "f:5: groupPerms: '=SUB' is not of the form name=PUB"),
        (account(whiteRemoteAddress="10.0.0"), "f:4: whiteRemoteAddress: '10.0.0' is not an address"),
        ("globalWhiteRemoteAddresses:\n- 10.0.0.1\n- here\n", "f:3: globalWhiteRemoteAddresses: 'here' is not an"),
        ("dataVersion:\n- counter: many\n", "f:2: counter must be a number"),
        ("accounts:\n- accessKey: &a orders-1\n  secretKey: *a\n", "f:2: anchors and aliases are not allowed"),
        ("accounts: []\naccounts: []\n", "f:2: accounts stands there twice"),
        ("accounts: []\n--- \nb: 1\n", "f:2: a second document is not allowed"),
        ("? [a]\n: b\n", "f:1: a key must be text"),
        ("[" * 20, "f:1: is nested too deeply"),
        ("accounts:\n  - a: 1\n - b: 2\n", "f:3: "),
        ("accounts:\n- a: \x01\n", "f:2: is not YAML: "),
        ("accounts:\n- '", "f:"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_field(text, error):
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    assert str(caught.value).startswith(error)
    assert "a-long-secret" not in str(caught.value)


def test_unknown_keys_are_noted():
    assert parse(account(topicPerm=["a=PUB"]) + "more: 1\n", "f").notes == [
        "f:5: unknown key topicPerm",
        "f:6: unknown key more",
    ]


def test_the_tag_that_rocketmq_allows_is_passed_over():
    text = "accounts: [!!org.apache.rocketmq.common.PlainAccessConfig {accessKey: orders-1, secretKey: a-long-secret}]"
    assert parse(text, "f").accounts[0].access_key == "orders-1"


def test_an_account_does_not_show_its_secret():
    assert "a-long-secret" not in repr(parse(account(), "f"))


LINES = st.sampled_from(
    [
        "accounts:",
        "- accessKey: orders-1",
        "  secretKey: a-long-secret",
        "  admin: true",
        "  topicPerms: [a=PUB]",
        "  topicPerms:",
        "  - b=SUB",
        "globalWhiteRemoteAddresses: [10.0.0.*]",
        "dataVersion: [{counter: 1}]",
        "x: &a [*a]",
        "'",
        "{",
    ]
)


@given(st.lists(LINES | st.text(max_size=12), max_size=12).map("\n".join))
def test_any_text_is_a_file_or_an_error_with_its_place(text):
    try:
        found = parse(text, "f")
    except ConfigError as exc:
        error = exc
    else:
        again = parse(dump(plain(read(text, "f"))), "f")
        assert [each.secret_key for each in again.accounts] == [each.secret_key for each in found.accounts]
        return
    assert error.source.startswith("f:")
    assert "a-long-secret" not in str(error)
