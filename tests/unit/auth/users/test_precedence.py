"""Which entry of a user's policies decides: literal, longest prefix, any; denials first; custom before default."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.auth.users.model import Decision, Match, PolicyEntry, PolicyType, Resource, address_of, deciding
from pyromq.protocol.rights import Action, Need, ResourceKind

ALLOW, DENY = Decision.ALLOW, Decision.DENY
PUB, SUB, GET = frozenset((Action.PUB,)), frozenset((Action.SUB,)), frozenset((Action.SUB, Action.GET))
HERE = ipaddress.ip_address("10.1.2.3")


def entry(resource, decision=ALLOW, *actions, sources=()):
    return PolicyEntry(Resource.parse(resource), actions or (Action.ALL,), decision, tuple(sources))


def custom(*entries):
    return {PolicyType.CUSTOM: entries}


def decision(policies, need, host=HERE):
    found = deciding(policies, need, host)
    return None if found is None else found.decision


def topic(name, actions=PUB):
    return Need(ResourceKind.TOPIC, name, actions)


@pytest.mark.parametrize(
    ("closer", "wider"),
    [
        ("Topic:orders", "Topic:orders*"),
        ("Topic:orders", "Topic:*"),
        ("Topic:orders", "*"),
        ("Topic:order*", "Topic:o*"),
        ("Topic:o*", "Topic:*"),
        ("Topic:*", "*"),
    ],
)
@pytest.mark.parametrize("first", [ALLOW, DENY])
def test_the_closest_entry_decides_in_whatever_order_they_stand(closer, wider, first):
    second = DENY if first is ALLOW else ALLOW
    entries = [entry(closer, first), entry(wider, second)]
    assert decision(custom(*entries), topic("orders")) is first
    assert decision(custom(*reversed(entries)), topic("orders")) is first


def test_without_a_match_nothing_decides():
    policies = custom(entry("Topic:orders", ALLOW, Action.SUB), entry("Group:*"), entry("Topic:orde"))
    assert decision(policies, topic("orders")) is None
    assert decision({}, topic("orders")) is None


def test_default_policies_count_only_where_custom_ones_say_nothing():
    policies = {
        PolicyType.DEFAULT: (entry("Topic:orders", DENY), entry("Topic:*", DENY)),
        PolicyType.CUSTOM: (entry("*", ALLOW, Action.PUB),),
    }
    assert decision(policies, topic("orders")) is ALLOW
    assert decision(policies, topic("orders", SUB)) is DENY


def test_an_entry_about_one_of_several_actions_matches():
    assert decision(custom(entry("Topic:a", ALLOW, Action.GET)), topic("a", GET)) is ALLOW
    assert decision(custom(entry("Topic:a", DENY, Action.GET), entry("Topic:*")), topic("a", GET)) is DENY
    assert decision(custom(entry("Topic:a", DENY, Action.GET), entry("Topic:*")), topic("a", SUB)) is ALLOW


def test_only_rights_on_all_cover_all():
    need = topic("*", frozenset((Action.LIST,)))
    assert decision(custom(entry("Topic:a*"), entry("Topic:orders")), need) is None
    assert decision(custom(entry("Topic:*")), need) is ALLOW
    assert decision(custom(entry("*")), need) is ALLOW


@pytest.mark.parametrize(
    ("sources", "host", "matches"),
    [
        (["10.1.2.3"], "10.1.2.3", True),
        (["10.1.2.3"], "10.1.2.4", False),
        (["10.1.0.0/16"], "10.1.255.255", True),
        (["10.1.2.3/16"], "10.1.9.9", True),  # the rest of the address does not matter
        (["10.1.0.0/16"], "10.2.0.0", False),
        (["192.168.0.1", "10.0.0.0/8"], "10.2.0.0", True),
        (["10.0.0.0/8"], "::ffff:10.2.0.0", True),
        (["0.0.0.0/0"], "::1", False),
        (["::1"], "0:0:0:0:0:0:0:1", True),
        (["fe80::/10"], "fe80::1%eth0", True),
        (["0.0.0.0/0"], "?", False),
        ([], "?", True),
    ],
)
def test_an_entry_with_addresses_counts_only_from_there(sources, host, matches):
    policies = custom(entry("*", ALLOW, sources=sources))
    assert decision(policies, topic("orders"), address_of(host)) is (ALLOW if matches else None)


@pytest.mark.parametrize("text", ["Topic:a", "Topic:a*", "Topic:*", "*", "Group:ns%g", "Cluster:c:d", "Namespace:n"])
def test_resources_are_written_as_they_were_read(text):
    assert str(Resource.parse(text)) == text
    assert Resource.parse(f" {text.replace('Topic', 'tOPIC')} ") == Resource.parse(text)


@pytest.mark.parametrize(
    "text", ["", "orders", "Topic:", "Topic", "Topics:a", "Any:*", "Topic:a*b", "Topic:**", "**", "Topic:a\x00"]
)
def test_what_names_no_resource_is_refused(text):
    with pytest.raises(ValueError, match=r"is not of the form|has a \*"):
        Resource.parse(text)


# Against a slow model

LETTERS = st.text("ab", min_size=1, max_size=3)
KINDS = st.sampled_from(ResourceKind)
ACTIONS = st.sampled_from(Action)
RESOURCES = st.one_of(
    st.builds("{}:{}{}".format, KINDS, LETTERS, st.sampled_from(["", "*"])),
    st.builds("{}:*".format, KINDS),
    st.just("*"),
)
ENTRIES = st.builds(
    lambda resource, decision, actions, sources: entry(resource, decision, *actions, sources=sources),
    RESOURCES,
    st.sampled_from(Decision),
    st.lists(ACTIONS, min_size=1, max_size=3),
    st.sampled_from([(), ("10.0.0.0/8",), ("10.1.2.3", "11.0.0.0/8"), ("11.0.0.1",)]),
)
POLICIES = st.dictionaries(st.sampled_from(PolicyType), st.lists(ENTRIES, min_size=1, max_size=6).map(tuple))
NEEDS = st.builds(Need, KINDS, LETTERS, st.frozensets(ACTIONS.filter(lambda a: a is not Action.ALL), min_size=1))


def model(policies, need, host):
    """The rules of docs/spec/admin.md 5.2, one after the other, from the text of each resource."""
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        matching = []
        for each in policies.get(kind, ()):
            acts = set(each.actions)
            near = not each.sources or any(host in ipaddress.ip_network(s) for s in each.sources)
            if near and (Action.ALL in acts or acts & need.actions):
                matching.append((str(each.resource), each.decision))
        literal = f"{need.kind}:{need.name}"
        levels = [
            literal,
            *(f"{need.kind}:{need.name[:size]}*" for size in range(len(need.name), 0, -1)),
            f"{need.kind}:*",
            "*",
        ]
        for level in levels:
            said = [decided for text, decided in matching if text == level]
            if said:
                return DENY if DENY in said else ALLOW
    return None


@given(POLICIES, NEEDS, st.sampled_from(["10.1.2.3", "11.0.0.1", "12.0.0.1"]))
def test_the_rules_hold_for_all_policies(policies, need, host):
    address = ipaddress.ip_address(host)
    assert decision(policies, need, address) == model(policies, need, address)


def test_ranks_are_a_total_order():
    ranked = ["Topic:abc", "Topic:abc*", "Topic:ab*", "Topic:*", "*"]
    ranks = [Resource.parse(text).rank for text in ranked]
    assert ranks == sorted(ranks)
    assert Resource.parse("Topic:abc").match is Match.LITERAL
