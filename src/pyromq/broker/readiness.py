"""Whether a broker is ready for clients, check by check: what `/readyz` shows (docs/spec/admin.md 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.metrics.health import Check
from pyromq.protocol.permissions import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from pyromq.metrics.health import Startup
    from pyromq.store import MessageStore

    from .config import BrokerConfig
    from .registration import Registration


def readiness(
    config: BrokerConfig,
    startup: Startup,
    registration: Registration | None,
    store: MessageStore | None,
    role: str | None,
    *,
    is_leaving: bool,
) -> list[Check]:
    """All checks, in the order in which a start passes them. `role` says why it has none, if it needs one."""
    checks = [
        Check("recovery", startup.done, "" if startup.done else f"{startup.detail}, {startup.percent} %"),
        _draining(config, is_leaving=is_leaving),
    ]
    if store is not None and startup.done:
        checks.append(_disk(store))
        checks.append(Check("store", store.failure is None or "disk" in store.refusals, store.failure or ""))
    if role is not None:
        checks.append(Check("role", False, role))
    elif registration is not None and registration.name_servers:
        known, listed = registration.registered_count, len(registration.name_servers)
        checks.append(Check("registration", known > 0, f"{known} of {listed} name servers know it"))
    elif startup.done:
        checks.append(Check("registration", True, "no name server is set"))
    return checks


def _draining(config: BrokerConfig, *, is_leaving: bool) -> Check:
    if is_leaving:
        return Check("draining", False, "it is stopping")
    permission = config.broker_permission & (PERM_READ | PERM_WRITE)
    if not permission & PERM_WRITE:
        return Check("draining", False, f"brokerPermission {config.broker_permission} refuses messages")
    return Check("draining", True)


def _disk(store: MessageStore) -> Check:
    used = max(map(store.disk.used_ratio, (*store.config.commit_log_folders, store.root)))
    return Check("disk", "disk" not in store.refusals, f"{100 * used:.0f} % full")
