"""What requests make of users and policies: the accounts before, and what was asked for, give the accounts after.

Nothing is kept here. `Refused` has RocketMQ's texts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyromq.errors import InvalidParameter

from ..authority import Refused
from .conversion import subject_of
from .model import SHOWN, Accounts, Policies, PolicyType, User, UserStatus, UserType, by_name

if TYPE_CHECKING:
    from pyromq.protocol.bodies import UserInfo

    from .model import Resource

# RocketMQ has no bounds. A name stands in every refusal and in logs, a secret is hashed with every request.
MAX_NAME = 255
MAX_SECRET = 4096


def with_new_user(accounts: Accounts, info: UserInfo) -> Accounts:
    if not info.username.strip():
        raise Refused("username can not be blank")
    if not (info.password or "").strip():
        raise Refused("password can not be blank")
    if info.username in accounts.users:
        raise Refused("The user is existed")
    return with_user(accounts, _told(User(info.username, ""), info))


def with_changed_user(accounts: Accounts, info: UserInfo) -> Accounts:
    """What `info` leaves out stays."""
    known = accounts.users.get(info.username)
    if known is None:
        raise Refused("The user is not exist")
    return with_user(accounts, _told(known, info))


def _told(user: User, info: UserInfo) -> User:
    kind, status = by_name(UserType, info.user_type), by_name(UserStatus, info.user_status)
    # RocketMQ overlooks these. Then somebody who was to be disabled would not be.
    if info.user_type and kind is None:
        raise InvalidParameter(f"The user type {info.user_type[:SHOWN]!r} is neither Super nor Normal")
    if info.user_status and status is None:
        raise InvalidParameter(f"The user status {info.user_status[:SHOWN]!r} is neither enable nor disable")
    secret = info.password if (info.password or "").strip() else None
    if len(info.username) > MAX_NAME or not info.username.isprintable():
        raise InvalidParameter(f"The username is longer than {MAX_NAME} or contains illegal characters")
    if len(secret or "") > MAX_SECRET:
        raise InvalidParameter(f"The password is longer than {MAX_SECRET}")
    return User(user.name, secret or user.secret, kind or user.type, status or user.status)


def with_user(accounts: Accounts, user: User) -> Accounts:
    return replace(accounts, users={**accounts.users, user.name: user})


def without_user(accounts: Accounts, name: str) -> Accounts:
    """Also without their policies. There need not be such a user."""
    if not name.strip():
        raise Refused("username can not be blank")
    return Accounts(
        {each: user for each, user in accounts.users.items() if each != name},
        {each: policies for each, policies in accounts.policies.items() if each != name},
    )


def with_policies(accounts: Accounts, name: str, given: Policies) -> Accounts:
    """Entries for new resources are added, those for known ones replaced."""
    if name not in accounts.users:
        raise Refused(f"The subject of {subject_of(name)} is not exist.")
    merged = dict(accounts.policies.get(name, {}))
    for kind, entries in given.items():
        by_resource = {entry.resource: entry for entry in (*merged.get(kind, ()), *entries)}
        merged[kind] = tuple(by_resource.values())
    return _with_all_policies(accounts, name, merged)


def without_policies(accounts: Accounts, name: str, kind: PolicyType | None, resource: Resource | None) -> Accounts:
    """Without all policies of a user, or without the entry for one resource."""
    if name not in accounts.users:
        raise Refused("The subject is not exist.")
    if name not in accounts.policies:
        raise Refused("The acl is not exist.")
    if resource is None:
        return _with_all_policies(accounts, name, {})
    kind = kind or PolicyType.CUSTOM
    rest = dict(accounts.policies[name])
    rest[kind] = tuple(entry for entry in rest.get(kind, ()) if entry.resource != resource)
    return _with_all_policies(accounts, name, rest)


def _with_all_policies(accounts: Accounts, name: str, policies: Policies) -> Accounts:
    kept = {kind: entries for kind, entries in policies.items() if entries}
    others = {each: found for each, found in accounts.policies.items() if each != name}
    return replace(accounts, policies={**others, name: kept} if kept else others)
