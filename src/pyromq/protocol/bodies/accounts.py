"""Accounts of RocketMQ 4.x, as brokers list them (54). Secrets stay where they are."""

from __future__ import annotations

from .base import Body, written


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
