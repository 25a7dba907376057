"""Subcommands that delete what nobody needs any more, now instead of at night."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands import BROKER_ADDR, Opt, classic

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from ..session import Session

CLUSTER = Opt("c", "cluster", "A cluster; without it and without -b all of them.")


@classic("cleanExpiredCQ", BROKER_ADDR, CLUSTER, timeout=60.0)
async def clean_expired_cq(session: Session, args: argparse.Namespace) -> None:
    await _clean(session.admin.brokers.clean_queues, args)


@classic("cleanUnusedTopic", BROKER_ADDR, CLUSTER, timeout=60.0)
async def clean_unused_topic(session: Session, args: argparse.Namespace) -> None:
    await _clean(session.admin.brokers.clean_topics, args)


@classic("deleteExpiredCommitLog", BROKER_ADDR, CLUSTER, timeout=60.0)
async def delete_expired_commit_log(session: Session, args: argparse.Namespace) -> None:
    await _clean(session.admin.brokers.clean_log, args)


async def _clean(operation: Callable[..., Awaitable[list[str]]], args: argparse.Namespace) -> None:
    await operation(cluster=None if args.b else args.c, brokers=args.b)
    print("success")
