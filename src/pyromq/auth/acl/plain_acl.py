"""Decides on requests as RocketMQ 4.x does, in this order, with the texts that people search for:

    1. an address in globalWhiteRemoteAddresses     may do everything
    2. no access key                                No accessKey is configured
    3. an unknown one                               No acl config for X
    4. an address in its whiteRemoteAddress         may do everything
    5. a wrong signature                            Check signature failed for accessKey=X
    6. a request for administrators                 Need admin permission for request code=N, but accessKey=X is not
    7. a topic or group without the right           No default permission for topic:T

Everybody with an account may publish to the topic of traces. RocketMQ asks for rights in few requests only and lets
every account do most of an administrator's work; with `strict`, we do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from pyromq.protocol.codes import RequestCode
from pyromq.protocol.names import TRACE_TOPIC
from pyromq.protocol.rights import Action, ResourceKind
from pyromq.remoting import Admin, is_signed_by
from pyromq.remoting.acl import ACCESS_KEY

from ..authority import Refused
from .addresses import host_of
from .files import PUB, SUB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.command import Command
    from pyromq.protocol.rights import Need
    from pyromq.remoting import Rule

    from .files import Account
    from .folder import AccountFiles

logger = logging.getLogger("pyromq.security")

# The requests in which RocketMQ 4.x asks for rights on topics and groups.
_ASKED_BY_ROCKETMQ = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    )
)
# Seconds between two looks at the files. What changed is read at the second look that finds it unchanged.
_LOOK = 0.5
# Characters of an unknown access key that are told again.
_SHOWN = 100


class PlainAcl:
    """The authority of a server by its account files.

    Without `strict` it asks for no more than RocketMQ 4.x. A name server, which has `only_changes`, is open to
    everybody but for requests that need an administrator, since clients of RocketMQ do not sign what they ask it.
    """

    def __init__(self, files: AccountFiles, *, strict: bool = True, only_changes: bool = False) -> None:
        self.files = files
        self._strict = strict
        self._only_changes = only_changes
        self._look_now = asyncio.Event()
        self._permissions: dict[frozenset[Action], int] = {}

    def load(self) -> None:
        self.files.load()

    async def run(self) -> None:
        """Follow changes of the files until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._look_now.wait()
                    self._look_now.clear()
            try:
                await asyncio.to_thread(self.files.look)
            except OSError as exc:
                logger.error("the account files cannot be looked at: %s", exc)

    def look_now(self) -> None:
        """Somebody says that the files have changed."""
        self._look_now.set()

    def identify(self, request: Command, address: str, rule: Rule) -> str | None:
        if not rule.needs.signed or (self._only_changes and not self._for_administrators(rule)):
            return None
        rules = self.files.rules
        if rules.white.texts and rules.white.take(host_of(address)):
            return None
        access_key = (request.ext or {}).get(ACCESS_KEY)
        if access_key is None:
            raise Refused("No accessKey is configured")
        account = rules.accounts.get(access_key)
        if account is None:
            # Anybody may write anything there.
            raise Refused(f"No acl config for {access_key[:_SHOWN]}", account=access_key[:_SHOWN])
        is_white = account.white.texts and account.white.take(host_of(address))
        if not is_white and not is_signed_by(request, account.secret_key):
            raise Refused(f"Check signature failed for accessKey={access_key}", account=access_key)
        return access_key

    def allow(self, account: str | None, needs: Iterable[Need], address: str, rule: Rule, code: int) -> None:
        if account is None:
            return
        owner = self.files.rules.accounts.get(account)
        if owner is None:
            raise Refused(f"No acl config for {account}", account=account)
        if owner.white.texts and owner.white.take(host_of(address)):
            return
        if not owner.admin and self._for_administrators(rule):
            raise Refused(
                f"Need admin permission for request code={int(code)}, but accessKey={account} is not", account=account
            )
        if owner.may_all or (not self._strict and code not in _ASKED_BY_ROCKETMQ):
            return
        for need in needs:
            lacking = self._lacking(owner, need)
            if lacking is not None:
                raise Refused(f"No default permission for {lacking}", account=account)

    def secret_of(self, account: str) -> str | None:
        owner = self.files.rules.accounts.get(account)
        return None if owner is None else owner.secret_key

    @property
    def state(self) -> object:
        return self.files.rules

    def _lacking(self, owner: Account, need: Need) -> str | None:
        """On which resource `owner` lacks a right; None if it has what is needed."""
        kind, name, actions = need
        wanted = self._permissions.get(actions)
        if wanted is None:
            wanted = (PUB if Action.PUB in actions else 0) | (SUB if Action.SUB in actions else 0)
            self._permissions[actions] = wanted
        if kind is ResourceKind.TOPIC:
            if not wanted or owner.topics.get(name, owner.default_topic) & wanted:
                return None
            return None if name == TRACE_TOPIC and wanted == PUB else f"topic:{name}"
        if kind is ResourceKind.GROUP:
            return None if not wanted or owner.groups.get(name, owner.default_group) & wanted else f"group:{name}"
        return None

    def _for_administrators(self, rule: Rule) -> bool:
        # A name server of RocketMQ has no access control at all, so there is nothing to go back to.
        strict = self._strict or self._only_changes
        return rule.admin is Admin.ALWAYS or (strict and rule.admin is Admin.STRICT)
