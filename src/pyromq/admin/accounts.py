"""Accounts of RocketMQ 4.x, as the brokers of a cluster have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.client.admin.fan_out import partly
from pyromq.client.admin.times import from_millis

from .listing import Listing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from pyromq.client.admin import AdminClient


@dataclass(frozen=True, slots=True)
class AccountRow:
    """An account on one broker. Its secret is not told."""

    access_key: str
    admin: bool
    topics: str
    groups: str
    default_topic: str | None
    default_group: str | None
    white_address: str
    broker: str


@dataclass(frozen=True, slots=True)
class AclFileRow:
    """A file of accounts on one broker, and why it is not in effect as it is."""

    broker: str
    address: str
    file: str
    version: int | None
    changed: datetime | None
    problem: str | None


async def account_list(
    admin: AdminClient, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
) -> Listing[AccountRow]:
    found, missing = await partly(admin.acl.accounts(cluster=cluster, brokers=brokers))
    rows = [
        AccountRow(
            each.access_key,
            each.admin,
            " ".join(each.topic_perms),
            " ".join(each.group_perms),
            each.default_topic_perm,
            each.default_group_perm,
            each.white_remote_address or "",
            address,
        )
        for address, config in found.items()
        for each in config.plain_access_configs
    ]
    summary = "\n".join(
        f"{address}: whoever comes from {', '.join(config.global_white_addrs)} may do everything"
        for address, config in found.items()
        if config.global_white_addrs
    )
    return Listing.make(AccountRow, sorted(rows, key=lambda row: (row.access_key, row.broker)), missing, summary)


async def acl_files(
    admin: AdminClient, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
) -> Listing[AclFileRow]:
    found, missing = await partly(admin.acl.versions(cluster=cluster, brokers=brokers))
    rows = []
    for address, each in found.items():
        for file in dict.fromkeys((*each.files, *each.errors)):
            version = each.files.get(file)
            rows.append(
                AclFileRow(
                    each.broker_name,
                    address,
                    file,
                    None if version is None else version.counter,
                    from_millis(version.timestamp) if version is not None and version.timestamp else None,
                    each.errors.get(file),
                )
            )
    return Listing.make(AclFileRow, rows, missing)
