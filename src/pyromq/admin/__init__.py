"""Operations for people, as functions on an AdminClient that give typed values: what the CLI and the dashboard show.

Many servers are asked at once, and `within` gives all of it one deadline. What some of them did not answer is in
`Listing.missing`, and None where a figure would stand.

Each name is imported when it is first asked for, as a command needs few of them and starts often.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .asking import Answers, fan_out, more_time, within
    from .clusters import BrokerRow, cluster_table
    from .kinds import TopicKind, is_system_group, topic_kind
    from .lag import (
        BrokerLag,
        GroupLag,
        GroupRow,
        GroupWithClients,
        QueueLag,
        broker_lag,
        group_lag,
        group_list,
        people_groups,
        with_clients,
    )
    from .listing import Listing, Missing
    from .members import (
        ClientRow,
        InspectedClient,
        ProducerRow,
        client_row,
        group_clients,
        group_inspect,
        producer_list,
        subscription_mismatch,
    )
    from .partial import partly
    from .places import brokers_in, brokers_of_group, brokers_of_topic
    from .reset import Goal, Move, QueueMove, ResetPlan, apply_plan, reset_plan
    from .topics import (
        QueueStats,
        TopicDetail,
        TopicPlace,
        TopicRow,
        TopicSettings,
        perm_text,
        topic_details,
        topic_list,
        topic_route,
        topic_settings,
        topic_stats,
    )
    from .traffic import Traffic, stats_all

__all__ = [
    "Answers",
    "BrokerLag",
    "BrokerRow",
    "ClientRow",
    "Goal",
    "GroupLag",
    "GroupRow",
    "GroupWithClients",
    "InspectedClient",
    "Listing",
    "Missing",
    "Move",
    "ProducerRow",
    "QueueLag",
    "QueueMove",
    "QueueStats",
    "ResetPlan",
    "TopicDetail",
    "TopicKind",
    "TopicPlace",
    "TopicRow",
    "TopicSettings",
    "Traffic",
    "apply_plan",
    "broker_lag",
    "brokers_in",
    "brokers_of_group",
    "brokers_of_topic",
    "client_row",
    "cluster_table",
    "fan_out",
    "group_clients",
    "group_inspect",
    "group_lag",
    "group_list",
    "is_system_group",
    "more_time",
    "partly",
    "people_groups",
    "perm_text",
    "producer_list",
    "reset_plan",
    "stats_all",
    "subscription_mismatch",
    "topic_details",
    "topic_kind",
    "topic_list",
    "topic_route",
    "topic_settings",
    "topic_stats",
    "with_clients",
    "within",
]

_PLACES = {
    "Answers": ".asking",
    "BrokerLag": ".lag",
    "BrokerRow": ".clusters",
    "ClientRow": ".members",
    "Goal": ".reset",
    "GroupLag": ".lag",
    "GroupRow": ".lag",
    "GroupWithClients": ".lag",
    "InspectedClient": ".members",
    "Listing": ".listing",
    "Missing": ".listing",
    "Move": ".reset",
    "ProducerRow": ".members",
    "QueueLag": ".lag",
    "QueueMove": ".reset",
    "QueueStats": ".topics",
    "ResetPlan": ".reset",
    "TopicDetail": ".topics",
    "TopicKind": ".kinds",
    "TopicPlace": ".topics",
    "TopicRow": ".topics",
    "TopicSettings": ".topics",
    "Traffic": ".traffic",
    "apply_plan": ".reset",
    "broker_lag": ".lag",
    "brokers_in": ".places",
    "brokers_of_group": ".places",
    "brokers_of_topic": ".places",
    "client_row": ".members",
    "cluster_table": ".clusters",
    "fan_out": ".asking",
    "group_clients": ".members",
    "group_inspect": ".members",
    "group_lag": ".lag",
    "group_list": ".lag",
    "is_system_group": ".kinds",
    "more_time": ".asking",
    "partly": ".partial",
    "people_groups": ".lag",
    "perm_text": ".topics",
    "producer_list": ".members",
    "reset_plan": ".reset",
    "stats_all": ".traffic",
    "subscription_mismatch": ".members",
    "topic_details": ".topics",
    "topic_kind": ".kinds",
    "topic_list": ".topics",
    "topic_route": ".topics",
    "topic_settings": ".topics",
    "topic_stats": ".topics",
    "with_clients": ".lag",
    "within": ".asking",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_PLACES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
