"""Who signed a request, and whether they may: by users and policies."""

from __future__ import annotations

import pytest
from tests.unit.auth.users.users_kit import PEER, SECRETS, authority, entry, policies, signed

from pyromq.auth import Refused
from pyromq.auth.users import UsersConfig
from pyromq.auth.users.changes import with_changed_user, with_policies, without_policies, without_user
from pyromq.auth.users.user_authority import REMEMBERED
from pyromq.protocol.bodies import UserInfo
from pyromq.protocol.command import Command
from pyromq.protocol.rights import OPEN, SIGNED, Action, Need, ResourceKind, cluster, topic
from pyromq.remoting import Admin, Rule
from pyromq.testing import Clock

SEND = Rule(needs=topic(Action.PUB, field="b"))
PUB, SUB = frozenset((Action.PUB,)), frozenset((Action.SUB,))
STATEFUL = "org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy"


def to(name, actions=PUB):
    return (Need(ResourceKind.TOPIC, name, actions),)


def refusal(call, *arguments):
    with pytest.raises(Refused) as caught:
        call(*arguments)
    assert caught.value.code == 16
    for secret in SECRETS.values():
        assert secret not in caught.value.remark
    return caught.value


# Who


@pytest.mark.parametrize("name", ["root", "alice"])
def test_whoever_signs_with_their_secret_is_known(name, tmp_path):
    assert authority(tmp_path).identify(signed(name, b="orders"), PEER, SEND) == name


@pytest.mark.parametrize(
    ("request_", "text", "account"),
    [
        (Command(310), "username cannot be null.", ""),
        (Command(310, ext={"b": "orders"}), "username cannot be null.", ""),
        (Command(310, ext={"AccessKey": "", "Signature": ""}), "username cannot be null.", ""),
        (signed("nobody"), "User:nobody is not found.", "nobody"),
        (signed("gone"), "User:gone is disabled.", "gone"),
        (signed("alice", secret="guessed"), "check signature failed.", "alice"),
        (signed("alice", secret=SECRETS["root"]), "check signature failed.", "alice"),
        (Command(310, ext={"AccessKey": "alice"}), "check signature failed.", "alice"),
        (Command(310, ext={"AccessKey": "alice", "Signature": "ü"}), "check signature failed.", "alice"),
    ],
)
def test_others_are_refused_with_the_texts_of_rocketmq(request_, text, account, tmp_path):
    refused = refusal(authority(tmp_path).identify, request_, PEER, SEND)
    assert (refused.remark, refused.account) == (text, account)


def test_an_altered_request_is_not_signed(tmp_path):
    asked = authority(tmp_path)
    for change in ({"b": "others"}, {"extra": "1"}, {"AccessKey": "root"}):
        request = signed("alice", body=b"hello", b="orders")
        request.ext = {**request.ext, **change}
        assert refusal(asked.identify, request, PEER, SEND).remark == "check signature failed."
    request = signed("alice", body=b"hello", b="orders")
    request.body = b"hallo"
    assert refusal(asked.identify, request, PEER, SEND).remark == "check signature failed."


def test_what_is_open_needs_nobody(tmp_path):
    asked = authority(tmp_path)
    assert asked.identify(Command(1), PEER, Rule(needs=OPEN)) is None
    assert refusal(asked.identify, Command(1), PEER, Rule(needs=SIGNED))


def test_name_servers_are_open_but_for_changes(tmp_path):
    asked = authority(tmp_path, only_changes=True)
    look, change = Rule(needs=SEND.needs), Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT)
    assert asked.identify(Command(105), PEER, look) is None
    asked.allow(None, to("orders"), PEER, look, 105)
    assert refusal(asked.identify, Command(318), PEER, change).remark == "username cannot be null."
    assert asked.identify(signed("alice", 318), PEER, change) == "alice"
    assert refusal(asked.allow, "alice", change.needs.of({}), PEER, change, 318)
    asked.allow("root", change.needs.of({}), PEER, change, 318)


def test_codes_in_the_whitelist_are_taken_unsigned_but_claims_count_for_nothing(tmp_path):
    config = UsersConfig(
        authentication=True, authorization=True, authentication_whitelist="310, 34", authorization_whitelist="34,x"
    )
    asked = authority(tmp_path, config=config)
    assert asked.identify(Command(310), PEER, SEND) is None
    assert asked.identify(signed("root", secret="guessed"), PEER, SEND) is None
    assert asked.identify(signed("root"), PEER, SEND) == "root"
    assert "Authorization failed" in refusal(asked.allow, None, to("orders"), PEER, SEND, 310).remark
    asked.allow(None, to("orders"), PEER, SEND, 34)
    asked.allow("alice", to("orders"), PEER, SEND, 34)
    assert refusal(asked.identify, Command(11), PEER, SEND)


async def test_a_change_counts_at_once(tmp_path):
    asked = authority(tmp_path)
    assert asked.identify(signed("alice"), PEER, SEND) == "alice"
    await asked.directory.change(lambda known: with_changed_user(known, UserInfo(username="alice", password="new")))
    assert refusal(asked.identify, signed("alice"), PEER, SEND).remark == "check signature failed."
    assert asked.identify(signed("alice", secret="new"), PEER, SEND) == "alice"
    await asked.directory.change(
        lambda known: with_changed_user(known, UserInfo(username="alice", user_status="disable"))
    )
    assert refusal(asked.identify, signed("alice", secret="new"), PEER, SEND).remark == "User:alice is disabled."
    await asked.directory.change(lambda known: without_user(known, "alice"))
    assert refusal(asked.identify, signed("alice", secret="new"), PEER, SEND).remark == "User:alice is not found."


def stateful(folder, clock, **more):
    config = UsersConfig(authentication=True, authorization=True, strategy=STATEFUL, **more)
    return authority(folder, clock, config)


async def test_a_stateful_strategy_trusts_a_connection_for_a_while(tmp_path):
    clock = Clock()
    asked = stateful(tmp_path, clock)
    peer, same_port_later = "10.1.2.3:" + str(4567), "10.1.2.3:" + str(4567)
    forged = signed("alice", secret="guessed")
    assert refusal(asked.identify, forged, peer, SEND)
    assert asked.identify(signed("alice"), peer, SEND) == "alice"
    assert asked.identify(forged, peer, SEND) == "alice"
    # Another user, and another connection, have proven nothing.
    assert refusal(asked.identify, signed("root", secret="guessed"), peer, SEND)
    assert peer == same_port_later
    assert refusal(asked.identify, forged, same_port_later, SEND)
    clock.advance(60)
    assert refusal(asked.identify, forged, peer, SEND)
    assert asked.identify(signed("alice"), peer, SEND) == "alice"
    await asked.directory.change(lambda known: without_user(known, "bob"))
    assert refusal(asked.identify, forged, peer, SEND)


def test_a_stateful_strategy_remembers_no_more_connections_than_it_should(tmp_path):
    asked = stateful(tmp_path, Clock(), stateful_most=3)
    peers = [f"10.1.2.3:{port}" for port in range(4001, 4006)]
    for peer in peers:
        asked.identify(signed("alice"), peer, SEND)
    forged = signed("alice", secret="guessed")
    assert refusal(asked.identify, forged, peers[1], SEND)
    assert [asked.identify(forged, peer, SEND) for peer in peers[2:]] == ["alice"] * 3


# What


def test_policies_decide_and_refusals_say_what_about(tmp_path):
    asked = authority(tmp_path, alice=policies(entry("Topic:orders*", "Pub"), entry("Topic:orders-x", "All", "Deny")))
    for _ in range(2):  # the second time from memory
        asked.allow("alice", to("orders-1"), PEER, SEND, 310)
    no = refusal(asked.allow, "alice", to("bills"), PEER, SEND, 310)
    assert no.remark == "User:alice has no permission to access Topic:bills from 10.1.2.3, no matched policies."
    assert no.account == "alice"
    no = refusal(asked.allow, "alice", to("orders-x"), PEER, SEND, 310)
    assert no.remark == "User:alice has no permission to access Topic:orders-x from 10.1.2.3, the decision is deny."
    assert refusal(asked.allow, "alice", (*to("orders-1"), *to("bills")), PEER, SEND, 310)
    assert refusal(asked.allow, "alice", to("orders-1", SUB), PEER, SEND, 310)
    assert refusal(asked.allow, "bob", to("orders-1"), PEER, SEND, 310)
    asked.allow("bob", (), PEER, SEND, 310)


def test_super_users_may_do_everything_while_they_are_enabled(tmp_path):
    asked = authority(tmp_path)
    asked.allow("root", (*to("anything"), Need(ResourceKind.CLUSTER, "", PUB)), PEER, SEND, 310)
    assert refusal(asked.allow, "gone", to("anything"), PEER, SEND, 310).remark == "User:gone is disabled."
    assert refusal(asked.allow, "nobody", to("anything"), PEER, SEND, 310).remark == "User:nobody not found."


def test_the_cluster_is_the_servers_own(tmp_path):
    needs = cluster(Action.UPDATE).of({})
    rights = {"alice": policies(entry("Cluster:DefaultCluster")), "bob": policies(entry("Cluster:Other"))}
    asked = authority(tmp_path, **rights)
    asked.allow("alice", needs, PEER, SEND, 25)
    assert "access Cluster:DefaultCluster from" in refusal(asked.allow, "bob", needs, PEER, SEND, 25).remark


def test_where_a_request_comes_from_counts_each_time(tmp_path):
    asked = authority(tmp_path, alice=policies(entry("Topic:*", sources=["10.1.0.0/16"])))
    asked.allow("alice", to("orders"), "10.1.2.3:1", SEND, 310)
    asked.allow("alice", to("orders"), "[::ffff:10.1.9.9]:1", SEND, 310)
    no = refusal(asked.allow, "alice", to("orders"), "10.2.2.3:1", SEND, 310)
    assert no.remark.endswith("from 10.2.2.3, no matched policies.")
    assert refusal(asked.allow, "alice", to("orders"), "?", SEND, 310)


async def test_a_change_of_policies_counts_at_once(tmp_path):
    asked = authority(tmp_path, alice=policies(entry("Topic:*")))
    asked.allow("alice", to("orders"), PEER, SEND, 310)
    denied = policies(entry("Topic:orders", "All", "Deny"))
    await asked.directory.change(lambda known: with_policies(known, "alice", denied))
    assert refusal(asked.allow, "alice", to("orders"), PEER, SEND, 310)
    asked.allow("alice", to("others"), PEER, SEND, 310)
    await asked.directory.change(lambda known: without_policies(known, "alice", None, None))
    assert refusal(asked.allow, "alice", to("others"), PEER, SEND, 310)


def test_without_authorization_whoever_signs_may_do_everything(tmp_path):
    asked = authority(tmp_path, config=UsersConfig(authentication=True))
    assert refusal(asked.identify, Command(310), PEER, SEND)
    asked.allow("bob", to("anything"), PEER, SEND, 310)


def test_a_user_of_very_many_topics_does_not_fill_the_memory(tmp_path):
    asked = authority(tmp_path, alice=policies(entry("Topic:*")))
    for number in range(REMEMBERED + 10):
        asked.allow("alice", to(f"topic-{number}"), PEER, SEND, 310)
    assert len(asked._allowed) == 10
