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

    from .apply import Action, GroupWish, Step, TopicWish, Wishes, carry_out_step, parse_wishes, plan_wishes
    from .asking import Answers, fan_out, more_time, within
    from .clusters import BrokerRow, cluster_table
    from .dead_letters import (
        DeadLetters,
        Redriven,
        dead_letter_list,
        dead_letter_topic,
        origin_id,
        origin_topic,
        redrive,
    )
    from .doctor import examine
    from .doctor_rules import Finding, Health
    from .kinds import TopicKind, topic_kind
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
    from .live import LiveRow, Look, Pulse, look
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
    from .metadata import cluster_metadata
    from .pace import Pace
    from .partial import partly
    from .places import brokers_in, brokers_of_group, brokers_of_topic
    from .reading import read_spans
    from .reset import Goal, Move, QueueMove, ResetPlan, apply_plan, reset_plan
    from .server_configs import ServerConfigs, cluster_configs
    from .sizing import BrokerSize, ClusterSize, Load, cluster_size
    from .spans import Span, Spans, last_messages, parse_place, place_of, topic_spans
    from .tail import Tail
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
    from .traces import TraceEvent, events, trace_of
    from .traffic import Traffic, stats_all
    from .watching import Backlog, Observation, Sign, StuckQueue, backlogs, observe, running_infos, stuck_queues

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
    "Action": ".apply",
    "Answers": ".asking",
    "Backlog": ".watching",
    "BrokerLag": ".lag",
    "BrokerRow": ".clusters",
    "BrokerSize": ".sizing",
    "ClientRow": ".members",
    "ClusterSize": ".sizing",
    "DeadLetters": ".dead_letters",
    "Finding": ".doctor_rules",
    "Goal": ".reset",
    "GroupLag": ".lag",
    "GroupRow": ".lag",
    "GroupWish": ".apply",
    "GroupWithClients": ".lag",
    "Health": ".doctor_rules",
    "InspectedClient": ".members",
    "Listing": ".listing",
    "LiveRow": ".live",
    "Load": ".sizing",
    "Look": ".live",
    "Missing": ".listing",
    "Move": ".reset",
    "Observation": ".watching",
    "Pace": ".pace",
    "ProducerRow": ".members",
    "Pulse": ".live",
    "QueueLag": ".lag",
    "QueueMove": ".reset",
    "QueueStats": ".topics",
    "Redriven": ".dead_letters",
    "ResetPlan": ".reset",
    "ServerConfigs": ".server_configs",
    "Sign": ".watching",
    "Span": ".spans",
    "Spans": ".spans",
    "Step": ".apply",
    "StuckQueue": ".watching",
    "Tail": ".tail",
    "TopicDetail": ".topics",
    "TopicKind": ".kinds",
    "TopicPlace": ".topics",
    "TopicRow": ".topics",
    "TopicSettings": ".topics",
    "TopicWish": ".apply",
    "TraceEvent": ".traces",
    "Traffic": ".traffic",
    "Wishes": ".apply",
    "apply_plan": ".reset",
    "backlogs": ".watching",
    "broker_lag": ".lag",
    "brokers_in": ".places",
    "brokers_of_group": ".places",
    "brokers_of_topic": ".places",
    "carry_out_step": ".apply",
    "client_row": ".members",
    "cluster_configs": ".server_configs",
    "cluster_metadata": ".metadata",
    "cluster_size": ".sizing",
    "cluster_table": ".clusters",
    "dead_letter_list": ".dead_letters",
    "dead_letter_topic": ".dead_letters",
    "events": ".traces",
    "examine": ".doctor",
    "fan_out": ".asking",
    "group_clients": ".members",
    "group_inspect": ".members",
    "group_lag": ".lag",
    "group_list": ".lag",
    "is_system_group": "pyromq.protocol.names",
    "last_messages": ".spans",
    "look": ".live",
    "more_time": ".asking",
    "observe": ".watching",
    "origin_id": ".dead_letters",
    "origin_topic": ".dead_letters",
    "parse_place": ".spans",
    "parse_wishes": ".apply",
    "partly": ".partial",
    "people_groups": ".lag",
    "perm_text": ".topics",
    "place_of": ".spans",
    "plan_wishes": ".apply",
    "producer_list": ".members",
    "read_spans": ".reading",
    "redrive": ".dead_letters",
    "reset_plan": ".reset",
    "running_infos": ".watching",
    "stats_all": ".traffic",
    "stuck_queues": ".watching",
    "subscription_mismatch": ".members",
    "topic_details": ".topics",
    "topic_kind": ".kinds",
    "topic_list": ".topics",
    "topic_route": ".topics",
    "topic_settings": ".topics",
    "topic_spans": ".spans",
    "topic_stats": ".topics",
    "trace_of": ".traces",
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
