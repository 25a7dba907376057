"""What a client proves its identity with."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Credentials:
    """Every request is signed with them (RocketMQ's ACL). The secrets are not shown when it is printed."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)
