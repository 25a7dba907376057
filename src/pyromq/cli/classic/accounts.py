"""Subcommands about accounts of RocketMQ 4.x."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.client.admin import Account

from .commands import BROKER_ADDR, CLUSTER, Opt, classic, place_of
from .java_text import bool_text, is_true, seconds_text

if TYPE_CHECKING:
    import argparse

    from ..session import Session

ACCESS_KEY = Opt("a", "accessKey", "The account.", required=True)


@classic(
    "updateAclConfig",
    BROKER_ADDR,
    CLUSTER,
    ACCESS_KEY,
    Opt("s", "secretKey", "Its secret.", required=True),
    Opt("w", "whiteRemoteAddress", "Addresses from which it needs no signature."),
    Opt("i", "defaultTopicPerm", "What it may do with other topics: DENY, PUB, SUB or PUB|SUB."),
    Opt("u", "defaultGroupPerm", "What it may do with other groups."),
    Opt("t", "topicPerms", "Its topics: topicA=DENY,topicD=SUB."),
    Opt("g", "groupPerms", "Its groups: groupA=DENY,groupD=SUB."),
    Opt("m", "admin", "Whether it may administer: true or false."),
)
async def update_acl_config(session: Session, args: argparse.Namespace) -> None:
    account = Account(
        access_key=args.a,
        secret_key=args.s,
        white_remote_address=args.w,
        admin=is_true(args.m),
        default_topic_perm=args.i,
        default_group_perm=args.u,
        topic_perms=_list(args.t),
        group_perms=_list(args.g),
    )
    for address in await session.admin.acl.set_account(account, **place_of(args)):
        print(f"create or update plain access config to {address} success.")
    print(
        f"PlainAccessConfig{{accessKey='{args.a}', whiteRemoteAddress='{_text(args.w)}', "
        f"admin={bool_text(is_true(args.m))}, defaultTopicPerm='{_text(args.i)}', "
        f"defaultGroupPerm='{_text(args.u)}', topicPerms={_list_text(args.t)}, groupPerms={_list_text(args.g)}}}"
    )


@classic("deleteAclConfig", BROKER_ADDR, CLUSTER, ACCESS_KEY)
async def delete_acl_config(session: Session, args: argparse.Namespace) -> None:
    for address in await session.admin.acl.delete_account(args.a, **place_of(args)):
        print(f"delete plain access config account from {address} success.")
    print(f"account's accesskey is:{args.a}")


@classic("clusterAclConfigVersion", BROKER_ADDR, CLUSTER)
async def cluster_acl_config_version(session: Session, args: argparse.Namespace) -> None:
    found = await session.admin.acl.versions(**place_of(args))
    line = "{:<16}  {:<22}  {:<22}  {:<20}  {:<22}  {:<22}"
    if not args.b:
        columns = ("Cluster Name", "Broker Name", "Broker Addr", "AclFilePath", "AclConfigVersionNum")
        print(line.format(*(f"#{column}" for column in (*columns, "AclLastUpdateTime"))))
    for each in found.values():
        for file, version in each.files.items():
            changed = seconds_text(version.timestamp)
            print(line.format(each.cluster, each.broker_name, each.address, file, version.counter, changed))
    print(f"get {'broker' if args.b else 'cluster'}'s plain access config version success.")


@classic("getAclConfig", BROKER_ADDR, CLUSTER)
async def get_acl_config(session: Session, args: argparse.Namespace) -> None:
    for config in (await session.admin.acl.accounts(**place_of(args))).values():
        print(f"\nglobalWhiteRemoteAddresses: [{', '.join(config.global_white_addrs)}]\n\naccounts:")
        for each in config.plain_access_configs:
            fields = {
                "accessKey": each.access_key,
                "secretKey": "",  # nobody needs to see it
                "whiteRemoteAddress": each.white_remote_address or "",
                "admin": bool_text(each.admin),
                "defaultTopicPerm": each.default_topic_perm or "",
                "defaultGroupPerm": each.default_group_perm or "",
                "topicPerms": f"[{', '.join(each.topic_perms)}]",
                "groupPerms": f"[{', '.join(each.group_perms)}]",
            }
            for key, value in fields.items():
                print(f"  {key:<18}: {value}")
            print()


@classic(
    "updateGlobalWhiteAddr",
    BROKER_ADDR,
    CLUSTER,
    Opt("g", "globalWhiteRemoteAddresses", "The addresses: 10.10.103.*,192.168.0.*.", required=True),
    Opt("p", "aclFileFullPath", "The file, by its path on the broker."),
)
async def update_global_white_addr(session: Session, args: argparse.Namespace) -> None:
    for address in await session.admin.acl.set_white_addresses([args.g], file=args.p, **place_of(args)):
        print(f"update global white remote addresses to {address} success.")


def _list(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(text.split(","))


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _list_text(text: str | None) -> str:
    return "null" if text is None else f"[{text.replace(',', ', ')}]"
