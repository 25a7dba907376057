"""Users and policies made of the accounts of RocketMQ 4.x (migrateAuthFromV1Enabled).

An administrator becomes a super user. Rights on single topics and groups become custom policies, the defaults become
default ones; a right to nothing denies everything. Addresses that need no signature have no counterpart.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.protocol.rights import Action, ResourceKind

from ..acl.files import DENY, PUB, SUB
from ..acl.folder import AccountFiles
from .changes import with_policies, with_user
from .model import Decision, Match, Policies, PolicyEntry, PolicyType, Resource, User, UserType

if TYPE_CHECKING:
    from pathlib import Path

    from ..acl.files import Account
    from .model import Accounts

logger = logging.getLogger(__name__)


def with_accounts_of(path: Path, known: Accounts) -> Accounts:
    """`known`, with a user for each account in the file at `path` and its folder. Users that are known stay.

    ConfigError if these files cannot be used.
    """
    files = AccountFiles(path)
    if not files.main.exists() and not any(files.folder.rglob("*.y*ml")):
        return known
    files.load()
    made = []
    for account in files.rules.accounts.values():
        if account.access_key in known.users:
            continue
        made.append(account.access_key)
        user_type = UserType.SUPER if account.admin else UserType.NORMAL
        known = with_user(known, User(account.access_key, account.secret_key, user_type))
        if policies := policies_of(account):
            known = with_policies(known, account.access_key, policies)
        if account.white:
            logger.warning("user %s has to sign from everywhere: whiteRemoteAddress is not migrated", made[-1])
    if made:
        logger.info("users made of the accounts in %s: %s", path, ", ".join(made))
    if made and files.rules.white:
        logger.warning("globalWhiteRemoteAddresses of %s are not migrated: everybody has to sign", path)
    return known


def policies_of(account: Account) -> Policies:
    """What the rights of an account are as policies."""
    custom = (
        *(_entry(Resource(ResourceKind.TOPIC, Match.LITERAL, name), given) for name, given in account.topics.items()),
        *(_entry(Resource(ResourceKind.GROUP, Match.LITERAL, name), given) for name, given in account.groups.items()),
    )
    default = (
        _entry(Resource(ResourceKind.TOPIC, Match.ANY), account.default_topic),
        _entry(Resource(ResourceKind.GROUP, Match.ANY), account.default_group),
    )
    return {PolicyType.CUSTOM: custom, PolicyType.DEFAULT: default} if custom else {PolicyType.DEFAULT: default}


def _entry(resource: Resource, permission: int) -> PolicyEntry:
    if permission == DENY:
        return PolicyEntry(resource, (Action.ALL,), Decision.DENY)
    actions = [action for action, bit in ((Action.PUB, PUB), (Action.SUB, SUB)) if permission & bit]
    return PolicyEntry(resource, tuple(actions), Decision.ALLOW)
