"""Operations for people, as functions on an AdminClient that give typed values: what the CLI and the dashboard show.

Many servers are asked at once, and `within` gives all of it one deadline. What some of them did not answer is in
`Listing.missing`, and None where a figure would stand.

Each name is imported when it is first asked for, as a command needs few of them and starts often.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyromq.protocol.names import is_system_group

    from .asking import Answers, fan_out, more_time, within
    from .cluster.brokers import BrokerRow, cluster_table
    from .cluster.doctor import examine
    from .cluster.doctor_rules import Finding, Health
    from .cluster.settings import ServerConfigs, cluster_configs
    from .cluster.size import BrokerSize, ClusterSize, Load, cluster_size
    from .groups.lag import (
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
    from .groups.members import (
        ClientRow,
        InspectedClient,
        ProducerRow,
        client_row,
        group_clients,
        group_inspect,
        producer_list,
        subscription_mismatch,
    )
    from .groups.reset import Goal, Move, QueueMove, ResetPlan, apply_plan, reset_plan
    from .groups.trouble import Backlog, Observation, Sign, StuckQueue, backlogs, observe, running_infos, stuck_queues
    from .listing import Listing, Missing
    from .live import LiveRow, Look, Pulse, look
    from .manifest.apply import Action, GroupWish, Step, TopicWish, Wishes, carry_out_step, parse_wishes, plan_wishes
    from .manifest.export import cluster_metadata
    from .messages.dead_letters import (
        DeadLetters,
        Redriven,
        dead_letter_list,
        dead_letter_topic,
        origin_id,
        origin_topic,
        redrive,
    )
    from .messages.pace import Pace
    from .messages.ranges import Span, Spans, last_messages, parse_place, place_of, topic_spans
    from .messages.reading import read_spans
    from .messages.tail import Tail
    from .messages.traces import TraceEvent, events, trace_of
    from .names import TopicKind, topic_kind
    from .partial import partly
    from .places import brokers_in, brokers_of_group, brokers_of_topic
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
    "Action",
    "Answers",
    "Backlog",
    "BrokerLag",
    "BrokerRow",
    "BrokerSize",
    "ClientRow",
    "ClusterSize",
    "DeadLetters",
    "Finding",
    "Goal",
    "GroupLag",
    "GroupRow",
    "GroupWish",
    "GroupWithClients",
    "Health",
    "InspectedClient",
    "Listing",
    "LiveRow",
    "Load",
    "Look",
    "Missing",
    "Move",
    "Observation",
    "Pace",
    "ProducerRow",
    "Pulse",
    "QueueLag",
    "QueueMove",
    "QueueStats",
    "Redriven",
    "ResetPlan",
    "ServerConfigs",
    "Sign",
    "Span",
    "Spans",
    "Step",
    "StuckQueue",
    "Tail",
    "TopicDetail",
    "TopicKind",
    "TopicPlace",
    "TopicRow",
    "TopicSettings",
    "TopicWish",
    "TraceEvent",
    "Traffic",
    "Wishes",
    "apply_plan",
    "backlogs",
    "broker_lag",
    "brokers_in",
    "brokers_of_group",
    "brokers_of_topic",
    "carry_out_step",
    "client_row",
    "cluster_configs",
    "cluster_metadata",
    "cluster_size",
    "cluster_table",
    "dead_letter_list",
    "dead_letter_topic",
    "events",
    "examine",
    "fan_out",
    "group_clients",
    "group_inspect",
    "group_lag",
    "group_list",
    "is_system_group",
    "last_messages",
    "look",
    "more_time",
    "observe",
    "origin_id",
    "origin_topic",
    "parse_place",
    "parse_wishes",
    "partly",
    "people_groups",
    "perm_text",
    "place_of",
    "plan_wishes",
    "producer_list",
    "read_spans",
    "redrive",
    "reset_plan",
    "running_infos",
    "stats_all",
    "stuck_queues",
    "subscription_mismatch",
    "topic_details",
    "topic_kind",
    "topic_list",
    "topic_route",
    "topic_settings",
    "topic_spans",
    "topic_stats",
    "trace_of",
    "with_clients",
    "within",
]

_PLACES = {
    "Action": ".manifest.apply",
    "Answers": ".asking",
    "Backlog": ".groups.trouble",
    "BrokerLag": ".groups.lag",
    "BrokerRow": ".cluster.brokers",
    "BrokerSize": ".cluster.size",
    "ClientRow": ".groups.members",
    "ClusterSize": ".cluster.size",
    "DeadLetters": ".messages.dead_letters",
    "Finding": ".cluster.doctor_rules",
    "Goal": ".groups.reset",
    "GroupLag": ".groups.lag",
    "GroupRow": ".groups.lag",
    "GroupWish": ".manifest.apply",
    "GroupWithClients": ".groups.lag",
    "Health": ".cluster.doctor_rules",
    "InspectedClient": ".groups.members",
    "Listing": ".listing",
    "LiveRow": ".live",
    "Load": ".cluster.size",
    "Look": ".live",
    "Missing": ".listing",
    "Move": ".groups.reset",
    "Observation": ".groups.trouble",
    "Pace": ".messages.pace",
    "ProducerRow": ".groups.members",
    "Pulse": ".live",
    "QueueLag": ".groups.lag",
    "QueueMove": ".groups.reset",
    "QueueStats": ".topics",
    "Redriven": ".messages.dead_letters",
    "ResetPlan": ".groups.reset",
    "ServerConfigs": ".cluster.settings",
    "Sign": ".groups.trouble",
    "Span": ".messages.ranges",
    "Spans": ".messages.ranges",
    "Step": ".manifest.apply",
    "StuckQueue": ".groups.trouble",
    "Tail": ".messages.tail",
    "TopicDetail": ".topics",
    "TopicKind": ".names",
    "TopicPlace": ".topics",
    "TopicRow": ".topics",
    "TopicSettings": ".topics",
    "TopicWish": ".manifest.apply",
    "TraceEvent": ".messages.traces",
    "Traffic": ".traffic",
    "Wishes": ".manifest.apply",
    "apply_plan": ".groups.reset",
    "backlogs": ".groups.trouble",
    "broker_lag": ".groups.lag",
    "brokers_in": ".places",
    "brokers_of_group": ".places",
    "brokers_of_topic": ".places",
    "carry_out_step": ".manifest.apply",
    "client_row": ".groups.members",
    "cluster_configs": ".cluster.settings",
    "cluster_metadata": ".manifest.export",
    "cluster_size": ".cluster.size",
    "cluster_table": ".cluster.brokers",
    "dead_letter_list": ".messages.dead_letters",
    "dead_letter_topic": ".messages.dead_letters",
    "events": ".messages.traces",
    "examine": ".cluster.doctor",
    "fan_out": ".asking",
    "group_clients": ".groups.members",
    "group_inspect": ".groups.members",
    "group_lag": ".groups.lag",
    "group_list": ".groups.lag",
    "is_system_group": "pyromq.protocol.names",
    "last_messages": ".messages.ranges",
    "look": ".live",
    "more_time": ".asking",
    "observe": ".groups.trouble",
    "origin_id": ".messages.dead_letters",
    "origin_topic": ".messages.dead_letters",
    "parse_place": ".messages.ranges",
    "parse_wishes": ".manifest.apply",
    "partly": ".partial",
    "people_groups": ".groups.lag",
    "perm_text": ".topics",
    "place_of": ".messages.ranges",
    "plan_wishes": ".manifest.apply",
    "producer_list": ".groups.members",
    "read_spans": ".messages.reading",
    "redrive": ".messages.dead_letters",
    "reset_plan": ".groups.reset",
    "running_infos": ".groups.trouble",
    "stats_all": ".traffic",
    "stuck_queues": ".groups.trouble",
    "subscription_mismatch": ".groups.members",
    "topic_details": ".topics",
    "topic_kind": ".names",
    "topic_list": ".topics",
    "topic_route": ".topics",
    "topic_settings": ".topics",
    "topic_spans": ".messages.ranges",
    "topic_stats": ".topics",
    "trace_of": ".messages.traces",
    "with_clients": ".groups.lag",
    "within": ".asking",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_PLACES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
