"""Who may do what: accounts of RocketMQ 4.x as brokers list them (54), users and policies of 5.x (3001 to 3010)."""

from __future__ import annotations

import msgspec

from .base import Body, written

# 4.x


class PlainAccessConfig(Body, frozen=True, kw_only=True):
    """One account."""

    access_key: str
    admin: bool = written(False)
    default_group_perm: str | None = None
    default_topic_perm: str | None = None
    group_perms: list[str] = written([])
    secret_key: str | None = None
    topic_perms: list[str] = written([])
    white_remote_address: str | None = None

    def __repr__(self) -> str:
        # A secret, which brokers of RocketMQ do tell, stays out of logs and tracebacks.
        return f"PlainAccessConfig({self.access_key!r}, admin={self.admin})"


class AclConfig(Body, frozen=True, kw_only=True):
    """54"""

    global_white_addrs: list[str] = written([])
    plain_access_configs: list[PlainAccessConfig] = written([])


# 5.x: types, actions and decisions by the names that people write, in any case


class UserInfo(Body, frozen=True, kw_only=True):
    """A user. `user_type` is Super or Normal, `user_status` enable or disable; None leaves them unchanged."""

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str = ""

    def __repr__(self) -> str:
        # The secret stays out of logs and tracebacks.
        return f"UserInfo({self.username!r}, {self.user_type}, {self.user_status})"


class PolicyEntryInfo(Body, frozen=True, kw_only=True):
    """What is allowed or denied: `Topic:orders`, `Group:*`, … to `actions` (Pub, Sub, …) from some addresses."""

    actions: list[str] = written([])
    decision: str | None = None
    resource: str = written("")
    source_ips: list[str] = msgspec.field(default_factory=list)


class PolicyInfo(Body, frozen=True, kw_only=True):
    """`policy_type` is Custom, also if it is None, or Default."""

    entries: list[PolicyEntryInfo] = written([])
    policy_type: str | None = None


class AclInfo(Body, frozen=True, kw_only=True):
    """What a subject, `User:name`, may do."""

    policies: list[PolicyInfo] = written([])
    subject: str = ""
