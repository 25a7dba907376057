from __future__ import annotations

from pyromq.client import Client, StartAt
from pyromq.client.consumer.membership import Membership
from pyromq.protocol.bodies import ConsumeType


def member():
    client = Client("localhost:9876")
    passive = ConsumeType.CONSUME_PASSIVELY
    return Membership(client, "g", passive, start_at=StartAt.LAST, broadcast=False, offset_store=None)


def test_tags_separated_by_a_single_bar_are_warned_of_once(caplog):
    membership = member()
    for _ in range(3):
        membership.subscribe("orders", "paid | sent")
        membership.subscribe("orders", "paid || sent")
    assert [record.getMessage() for record in caplog.records] == [
        "g: 'paid | sent' counts as a single tag of orders; separate tags with ||"
    ]


def test_a_renewed_subscription_has_a_later_version(monkeypatch):
    membership = member()
    now = iter((1, 2))
    monkeypatch.setattr("pyromq.client.consumer.membership._now_ms", lambda: next(now))
    membership.subscribe("orders", "paid")
    membership.renew("orders")
    membership.renew("unknown")
    [subscription] = membership.subscriptions.values()
    assert (subscription.sub_version, subscription.sub_string) == (2, "paid")


def test_a_member_that_assigns_its_queues_tells_no_subscriptions():
    membership = member()
    membership.subscribe("orders", "paid")
    assert [each.topic for each in membership.heartbeat_data().subscription_data_set] == ["orders"]
    assert membership.heartbeat_data(subscribed=False).subscription_data_set == []
