"""Users and policies from what requests carry, and back. Refusals have RocketMQ's texts: people search for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from pyromq.protocol.rights import Action

from ..authority import Refused
from .model import SHOWN, Decision, Policies, PolicyEntry, PolicyType, Resource, User, by_name

if TYPE_CHECKING:
    from collections.abc import Iterable

# The only kind of subject.
_USER = "User"


def user_info(user: User, *, reveal: bool) -> UserInfo:
    """How a user is told. Only those who could change the secret anyway are shown it (`reveal`)."""
    return UserInfo(
        username=user.name,
        password=user.secret if reveal else None,
        user_type=user.type.value,
        user_status=user.status.value,
    )


def user_of(subject: str | None) -> str:
    """The name in `User:name`."""
    kind, _, name = (subject or "").partition(":")
    if kind.lower() != _USER.lower():
        raise Refused("The subject type is null.")
    return name


def subject_of(name: str) -> str:
    return f"{_USER}:{name}"


def acl_info(name: str, policies: Policies) -> AclInfo:
    return AclInfo(
        subject=subject_of(name),
        policies=[
            PolicyInfo(policy_type=kind.value, entries=[_entry_info(entry) for entry in entries])
            for kind, entries in policies.items()
        ],
    )


def _entry_info(entry: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=str(entry.resource),
        actions=[action.value for action in entry.actions],
        source_ips=list(entry.sources),
        decision=entry.decision.value,
    )


def policies_of(infos: Iterable[PolicyInfo]) -> Policies:
    """The policies that `infos` describe. Refused says what is missing; of two for one resource the last counts."""
    found: dict[PolicyType, dict[Resource, PolicyEntry]] = {}
    for info in infos:
        kind = by_name(PolicyType, info.policy_type)
        if kind is None:
            if info.policy_type:
                raise Refused(f"The policy type {info.policy_type[:SHOWN]!r} is neither Custom nor Default.")
            kind = PolicyType.CUSTOM
        if not info.entries:
            raise Refused("The policy entries is empty.")
        for each in info.entries:
            entry = _entry(each)
            found.setdefault(kind, {})[entry.resource] = entry
    if not found:
        raise Refused("The policies is empty.")
    return {kind: tuple(entries.values()) for kind, entries in found.items()}


def resource_of(text: str | None) -> Resource:
    try:
        return Resource.parse(text or "")
    except ValueError as exc:
        raise Refused(f"The resource is null. {exc}") from None


def _entry(info: PolicyEntryInfo) -> PolicyEntry:
    resource = resource_of(info.resource)
    actions = tuple(dict.fromkeys(_action(each) for each in info.actions))
    if not actions:
        raise Refused("The actions is empty.")
    sources = tuple(dict.fromkeys(source.strip() for source in info.source_ips))
    if not all(sources):
        raise Refused("The source ip is empty.")
    decision = by_name(Decision, info.decision)
    if decision is None:
        raise Refused("The decision is null or illegal.")
    try:
        return PolicyEntry(resource, actions, decision, sources)
    except ValueError as exc:
        raise Refused(f"The source ip is invalid. {str(exc)[:SHOWN]}") from None


def _action(text: str) -> Action:
    action = by_name(Action, text)
    if action is None:
        # RocketMQ overlooks actions that it does not know. A right that was misspelt is better not given.
        raise Refused(
            "The actions can not be Any." if text.lower() == "any" else f"The action {text[:SHOWN]!r} is unknown."
        )
    return action
