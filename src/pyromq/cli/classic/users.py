"""Subcommands about users and policies of 5.x. RocketMQ shows passwords in its column; here it has stars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.client.admin import Acl, Policy, PolicyEntry, User
from pyromq.client.admin.addresses import masters_in
from pyromq.errors import BrokerError
from pyromq.protocol.codes import ResponseCode

from ..failures import CommandFailed, Exit
from ..new_secret import new_secret
from .commands import BROKER_ADDR, CLUSTER, Opt, classic, place_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from ..session import Session

USER_NAME = Opt("u", "username", "The user.", required=True)
PASSWORD = Opt("p", "password", "Its password. Better left out: then it is asked for, or read from PYROMQ_NEW_SECRET.")
USER_TYPE = Opt("t", "userType", "Super or Normal.")
SUBJECT = Opt("s", "subject", "The user, as User:name.", required=True)
FROM, TO = (
    Opt("f", "fromBroker", "Address of the broker to copy from.", required=True),
    Opt("t", "toBroker", "Address of the broker to copy to.", required=True),
)
ENTRY = (
    Opt("r", "resources", "Topic:a,Group:b*,Cluster:*, …", required=True),
    Opt("a", "actions", "All, Pub, Sub, Create, Update, Delete, Get, List; separated by commas.", required=True),
    Opt("d", "decision", "Allow or Deny.", required=True),
    Opt("i", "sourceIp", "Only from these addresses or networks, separated by commas."),
)

_USER = "{:<16}  {:<22}  {:<22}  {:<22}"
_USER_HEADINGS = ("#UserName", "#Password", "#UserType", "#UserStatus")
_ACL = "{:<16}  {:<10}  {:<22}  {:<20}  {:<24}  {:<10}"
_ACL_HEADINGS = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
_HIDDEN = "******"


# Users


@classic("createUser", BROKER_ADDR, CLUSTER, USER_NAME, PASSWORD, USER_TYPE)
async def create_user(session: Session, args: argparse.Namespace) -> None:
    place = place_of(args)
    user = User(username=args.u, password=args.p or new_secret(args.u), user_type=args.t)
    for address in await session.admin.acl.create_user(user, **place):
        print(f"create user to {address} success.")


@classic(
    "updateUser", BROKER_ADDR, CLUSTER, USER_NAME, PASSWORD, USER_TYPE, Opt("s", "userStatus", "enable or disable.")
)
async def update_user(session: Session, args: argparse.Namespace) -> None:
    place = place_of(args)
    password = args.p or (None if args.t or args.s else new_secret(args.u))
    user = User(username=args.u, password=password, user_type=args.t, user_status=args.s)
    for address in await session.admin.acl.update_user(user, **place):
        print(f"update user to {address} success.")


@classic("deleteUser", BROKER_ADDR, CLUSTER, USER_NAME)
async def delete_user(session: Session, args: argparse.Namespace) -> None:
    for address in await session.admin.acl.delete_user(args.u, **place_of(args)):
        print(f"delete user to {address} success.")


@classic("getUser", BROKER_ADDR, CLUSTER, USER_NAME)
async def get_user(session: Session, args: argparse.Namespace) -> None:
    for address in await _masters(session, args):
        if (user := await _user(session, address, args.u)) is not None:
            _print_users([user])
            return
    raise CommandFailed(f"there is no user {args.u}", Exit.NOT_FOUND)


@classic("listUser", BROKER_ADDR, CLUSTER, Opt("f", "filter", "Only names that contain this."))
async def list_user(session: Session, args: argparse.Namespace) -> None:
    for address in await _masters(session, args):
        if users := await session.admin.acl.users(address, args.f):
            _print_users(users)
            if not args.b:
                print(f"get user from {address} success.")
            return


@classic("copyUser", FROM, TO, Opt("u", "usernames", "Only these users, separated by commas."))
async def copy_user(session: Session, args: argparse.Namespace) -> None:
    admin = session.admin.acl
    if args.u:
        asked = [await _user(session, args.f, name) for name in _listed(args.u)]
        users = [user for user in asked if user is not None]
    else:
        users = await admin.users(args.f)
    for user in users:
        if user.password is None:
            raise CommandFailed(f"{args.f} shows passwords to super users only", Exit.NOT_AUTHORISED)
        known = await _user(session, args.t, user.username)
        await (admin.create_user if known is None else admin.update_user)(user, brokers=args.t)
        print(f"copy user of {user.username} from {args.f} to {args.t} success.")


def _print_users(users: Iterable[User]) -> None:
    print(_USER.format(*_USER_HEADINGS))
    for user in users:
        print(_USER.format(user.username, _HIDDEN, _java(user.user_type), _java(user.user_status)))


async def _user(session: Session, address: str, name: str) -> User | None:
    try:
        return await session.admin.acl.user(address, name)
    except BrokerError as exc:
        if exc.code != ResponseCode.USER_NOT_EXIST:
            raise
        return None


# Policies


@classic("createAcl", BROKER_ADDR, CLUSTER, SUBJECT, *ENTRY)
async def create_acl(session: Session, args: argparse.Namespace) -> None:
    for address in await session.admin.acl.create_acl(_acl(args), **place_of(args)):
        print(f"create acl to {address} success.")


@classic("updateAcl", BROKER_ADDR, CLUSTER, SUBJECT, *ENTRY)
async def update_acl(session: Session, args: argparse.Namespace) -> None:
    for address in await session.admin.acl.update_acl(_acl(args), **place_of(args)):
        print(f"update acl to {address} success.")


@classic("deleteAcl", BROKER_ADDR, CLUSTER, SUBJECT, Opt("r", "resources", "Only this resource."))
async def delete_acl(session: Session, args: argparse.Namespace) -> None:
    for address in await session.admin.acl.delete_acl(args.s, resource=args.r, **place_of(args)):
        print(f"delete acl to {address} success.")


@classic("getAcl", BROKER_ADDR, CLUSTER, SUBJECT)
async def get_acl(session: Session, args: argparse.Namespace) -> None:
    for address in await _masters(session, args):
        if (acl := await _found_acl(session, address, args.s)) is not None:
            _print_acls([acl])


@classic(
    "listAcl",
    BROKER_ADDR,
    CLUSTER,
    Opt("s", "subject", "Only subjects that contain this."),
    Opt("r", "resource", "Only resources that contain this."),
)
async def list_acl(session: Session, args: argparse.Namespace) -> None:
    for address in await _masters(session, args):
        if acls := await session.admin.acl.acls(address, subject=args.s, resource=args.r):
            _print_acls(acls)


@classic("copyAcl", FROM, TO, Opt("s", "subjects", "Only these subjects, separated by commas."))
async def copy_acl(session: Session, args: argparse.Namespace) -> None:
    admin = session.admin.acl
    if args.s:
        asked = [await _found_acl(session, args.f, subject) for subject in _listed(args.s)]
        acls = [acl for acl in asked if acl is not None]
    else:
        acls = await admin.acls(args.f)
    for acl in acls:
        await admin.update_acl(acl, brokers=args.t)
        print(f"copy acl of {acl.subject} from {args.f} to {args.t} success.")


def _acl(args: argparse.Namespace) -> Acl:
    sources = _listed(args.i) if args.i else []
    entries = [
        PolicyEntry(resource=resource, actions=_listed(args.a), source_ips=sources, decision=args.d)
        for resource in _listed(args.r)
    ]
    return Acl(subject=args.s, policies=[Policy(entries=entries)])


def _print_acls(acls: Iterable[Acl]) -> None:
    print(_ACL.format(*_ACL_HEADINGS))
    for acl in acls:
        if not acl.policies:
            print(_ACL.format(acl.subject, *[""] * 5))
        for policy in acl.policies:
            for entry in policy.entries:
                sources = _java_list(entry.source_ips) if entry.source_ips else "null"
                fields = (entry.resource, _java_list(entry.actions), sources, _java(entry.decision))
                print(_ACL.format(acl.subject, _java(policy.policy_type), *fields))


async def _found_acl(session: Session, address: str, subject: str) -> Acl | None:
    try:
        return await session.admin.acl.acl(address, subject)
    except BrokerError as exc:
        if exc.code != ResponseCode.POLICY_NOT_EXIST:
            raise
        return None


async def _masters(session: Session, args: argparse.Namespace) -> list[str]:
    place_of(args)
    if args.b:
        return [args.b]
    return list(masters_in(await session.admin.brokers.cluster_info(), args.c).values())


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _java(value: str | None) -> str:
    return "null" if value is None else value


def _java_list(values: Iterable[str]) -> str:
    return f"[{', '.join(values)}]"
