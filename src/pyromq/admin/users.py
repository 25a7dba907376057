"""Users and policies of 5.x, on all brokers: each has a list of its own, and they should be the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyromq.client.admin.addresses import masters_in
from pyromq.client.admin.fan_out import fan_out

from .listing import Listing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from pyromq.client.admin import Acl, AdminClient, User
    from pyromq.client.admin.fan_out import Answers

T = TypeVar("T")
Key = TypeVar("Key", bound=tuple[object, ...])


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user, and the brokers that know it so. Secrets are not shown."""

    user: str
    type: str | None
    status: str | None
    brokers: str


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """What a user is allowed or denied, and the brokers that say so."""

    user: str
    resource: str
    actions: str
    decision: str | None
    sources: str
    type: str | None
    brokers: str


async def user_list(
    admin: AdminClient, part: str | None = None, *, cluster: str | None = None, brokers: Iterable[str] | None = None
) -> Listing[UserRow]:
    """All users, or those whose names contain `part`."""

    async def ask(broker: str) -> list[User]:
        return await admin.acl.users(broker, part)

    answers = await _asked(admin, ask, cluster, brokers)
    found = _known_by(
        {
            broker: [(user.username, user.user_type, user.user_status) for user in users]
            for broker, users in answers.some().items()
        }
    )
    return Listing.make(UserRow, [UserRow(*key, ", ".join(known)) for key, known in found.items()], answers.missing)


async def policy_list(
    admin: AdminClient,
    user: str | None = None,
    resource: str | None = None,
    *,
    cluster: str | None = None,
    brokers: Iterable[str] | None = None,
) -> Listing[PolicyRow]:
    """All policies, or those of one user, or on resources that contain a text."""

    async def ask(broker: str) -> list[Acl]:
        return await admin.acl.acls(broker, subject=None if user is None else f"User:{user}", resource=resource)

    answers = await _asked(admin, ask, cluster, brokers)
    found = _known_by(
        {broker: [key for acl in acls for key in _entries(acl, user)] for broker, acls in answers.some().items()}
    )
    return Listing.make(PolicyRow, [PolicyRow(*key, ", ".join(known)) for key, known in found.items()], answers.missing)


def _entries(acl: Acl, user: str | None) -> list[tuple[str, str, str, str | None, str, str | None]]:
    name = acl.subject.partition(":")[2]
    if user is not None and name != user:  # the broker looks for a part of the name
        return []
    return [
        (name, entry.resource, ",".join(entry.actions), entry.decision, ",".join(entry.source_ips), policy.policy_type)
        for policy in acl.policies
        for entry in policy.entries
    ]


async def _asked(
    admin: AdminClient, ask: Callable[[str], Awaitable[T]], cluster: str | None, brokers: Iterable[str] | None
) -> Answers[T]:
    if brokers:
        return await fan_out(brokers, ask)
    return await fan_out(masters_in(await admin.brokers.cluster_info(), cluster), ask)


def _known_by(found: Mapping[str, Iterable[Key]]) -> dict[Key, list[str]]:
    """The brokers that have each row, in the order of the rows."""
    known: dict[Key, list[str]] = {}
    for broker, keys in found.items():
        for key in keys:
            known.setdefault(key, []).append(broker)
    return dict(sorted(known.items(), key=lambda item: [str(each) for each in item[0]]))
