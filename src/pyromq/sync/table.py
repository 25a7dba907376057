"""The table of blocking classes: every public name of the async ones, and how to call it.

The classes are generated from it (facade.py), and so are their type stubs (scripts/sync_stubs.py). A test compares it
with the async classes: a new method there needs a line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyromq import client
from pyromq.client import admin

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(Enum):
    """How the async class uses a name, and what it becomes in the blocking one."""

    AWAITS = "a coroutine function: a method that waits for it"
    STARTS = "start: like AWAITS; closed at exit, if it was not closed before"
    CLOSES = "close: like AWAITS; but in a handler of the same consumer it does not wait, or it would wait for itself"
    SUBMITS = "a coroutine function that returns a future: a method that returns a concurrent.futures.Future"
    CALLS = "a plain method: called on the loop once there is something on it"
    LISTENS = "like CALLS, and plain functions among its arguments get messages whose methods block"
    DECORATES = "like LISTENS, for a method that returns a decorator"
    LOOKS = "a property that changes on the loop: read there"
    IS = "an attribute that never changes: read here"
    ITERATES = "__aiter__: __iter__"
    ENTERS = "__aenter__ and __aexit__: __enter__ and __exit__"


@dataclass(frozen=True, slots=True)
class Row:
    """One class. `left_out` are public names only for the client and its members."""

    names: Mapping[str, Kind]
    left_out: frozenset[str] = frozenset()


_LIFE = {"start": Kind.STARTS, "close": Kind.CLOSES, "__aenter__": Kind.ENTERS}

_PRODUCER = Row(
    {
        **_LIFE,
        "group": Kind.IS,
        "client": Kind.IS,
        "send": Kind.AWAITS,
        "send_oneway": Kind.AWAITS,
        "send_batch": Kind.AWAITS,
        "submit": Kind.SUBMITS,
        "flush": Kind.AWAITS,
        "request": Kind.AWAITS,
        "recall": Kind.AWAITS,
        "queues": Kind.AWAITS,
    },
    left_out=frozenset(("topics", "route_changed", "heartbeat_data", "check_transaction")),
)

_TRANSACTION_PRODUCER = Row(
    {
        **_PRODUCER.names,
        "check": Kind.CALLS,
        "send_in_transaction": Kind.AWAITS,
        "transaction": Kind.CALLS,
    },
    _PRODUCER.left_out,
)

_CONSUMER = Row(
    {
        **_LIFE,
        "__aiter__": Kind.ITERATES,
        "group": Kind.IS,
        "client": Kind.IS,
        "subscribe": Kind.LISTENS,
        "on": Kind.DECORATES,
        "unsubscribe": Kind.AWAITS,
        "run": Kind.AWAITS,
        "assignment": Kind.LOOKS,
        "pause": Kind.CALLS,
        "resume": Kind.AWAITS,
    }
)

_PULL_CONSUMER = Row(
    {
        **_LIFE,
        "__aiter__": Kind.ITERATES,
        "group": Kind.IS,
        "subscribe": Kind.CALLS,
        "unsubscribe": Kind.CALLS,
        "assign": Kind.CALLS,
        "assignment": Kind.LOOKS,
        "queues": Kind.AWAITS,
        "watch": Kind.CALLS,
        "poll": Kind.AWAITS,
        "pull": Kind.AWAITS,
        "send_back": Kind.AWAITS,
        "seek": Kind.AWAITS,
        "position": Kind.CALLS,
        "bounds": Kind.AWAITS,
        "pause": Kind.CALLS,
        "resume": Kind.CALLS,
        "commit": Kind.AWAITS,
        "committed": Kind.AWAITS,
    }
)

_GROUPS = ("topics", "groups", "offsets", "messages", "brokers", "namesrv", "acl", "clients", "controllers")


def _all_await(cls: type) -> Row:
    """A group of admin operations, all coroutine functions."""
    return Row({name: Kind.AWAITS for name in vars(cls) if not name.startswith("_")})


TABLE: Mapping[type, Row] = {
    client.Client: Row(
        {**_LIFE, "client_id": Kind.IS, "is_encrypted": Kind.IS, "versions": Kind.LOOKS},
        left_out=frozenset(
            ("check_open", "join", "leave", "heartbeat", "wake_heartbeat", "connected", "closed"),
        ),
    ),
    client.Producer: _PRODUCER,
    client.TransactionProducer: _TRANSACTION_PRODUCER,
    client.Transaction: Row(
        {
            "__aenter__": Kind.ENTERS,
            "id": Kind.LOOKS,
            "message": Kind.LOOKS,
            "result": Kind.LOOKS,
            "rollback": Kind.CALLS,
        }
    ),
    client.Consumer: _CONSUMER,
    client.PullConsumer: _PULL_CONSUMER,
    client.AdminClient: Row({**_LIFE, "client": Kind.IS, **dict.fromkeys(_GROUPS, Kind.IS)}),
    **{
        group: _all_await(group)
        for group in (
            admin.TopicAdmin,
            admin.GroupAdmin,
            admin.OffsetAdmin,
            admin.MessageAdmin,
            admin.BrokerAdmin,
            admin.NameServerAdmin,
            admin.AclAdmin,
            admin.ClientAdmin,
            admin.ControllerAdmin,
        )
    },
}
