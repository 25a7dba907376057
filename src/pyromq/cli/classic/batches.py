"""Subcommands that make many topics or groups, out of a file with a JSON array of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import Body, SubscriptionGroupConfig, TopicConfig
from pyromq.protocol.bodies.conversion import convert

from ..failures import CommandFailed, Exit
from .commands import BROKER_ADDR, CLUSTER, Opt, classic

if TYPE_CHECKING:
    import argparse

    from ..session import Session

T = TypeVar("T", bound=Body)

FILE = Opt("f", "filename", "A file with a JSON array of their settings.", required=True)


@classic("updateTopicList", BROKER_ADDR, CLUSTER, FILE, timeout=60.0)
async def update_topic_list(session: Session, args: argparse.Namespace) -> None:
    """One request for each topic, so that brokers of 4.9 are told, too, who do not know the one for all of them."""
    configs = _read(args.f, TopicConfig)
    addresses: list[str] = []
    for config in configs:
        addresses = await session.admin.topics.create(
            config.topic_name,
            cluster=_cluster(args),
            brokers=args.b,
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            perm=config.perm,
            sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=config.attributes,
        )
    for address in addresses:
        print(f"submit batch of topic config to {address} success, please check the result later.")


@classic("updateSubGroupList", BROKER_ADDR, CLUSTER, FILE, timeout=60.0)
async def update_sub_group_list(session: Session, args: argparse.Namespace) -> None:
    configs = _read(args.f, SubscriptionGroupConfig)
    addresses: list[str] = []
    for config in configs:
        addresses = await session.admin.groups.create(config, cluster=_cluster(args), brokers=args.b)
    kind = "group" if args.b else "subscription group"
    for address in addresses:
        print(f"submit batch of {kind} config to {address} success, please check the result later.")


def _cluster(args: argparse.Namespace) -> str | None:
    if not args.b and not args.c:
        raise CommandFailed("say a broker with -b or a cluster with -c", Exit.USAGE)
    return None if args.b else args.c


def _read(name: str, kind: type[T]) -> list[T]:
    try:
        data = Path(name).read_bytes()
    except OSError as exc:
        raise CommandFailed(f"{name} cannot be read: {exc.strerror}", Exit.USAGE) from exc
    try:
        found = fastjson.loads(data)
        if not isinstance(found, list):
            raise CommandFailed(f"{name} is no JSON array", Exit.USAGE)
        return [convert(kind, each) for each in found]
    except RemoteProtocolError as exc:
        raise CommandFailed(f"{name}: {exc}", Exit.USAGE) from exc
