"""Requests 3001 to 3010: users and policies are looked at and changed. Answers and refusals are those of RocketMQ 5.

Whether the sender may do so at all was decided before. Here it is only looked at who may touch super users, and who
is shown secrets: super users alone. RocketMQ shows them to all who may ask.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyromq.errors import InvalidParameter, RemoteProtocolError, ServerError
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import AclInfo, UserInfo
from pyromq.protocol.bodies.conversion import convert
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import AclSubject, DeleteAcl, ListAcls, ListUsers, UserName
from pyromq.remoting.acl import ACCESS_KEY

from ..authority import Refused
from .changes import with_changed_user, with_new_user, with_policies, without_policies, without_user
from .conversion import acl_info, policies_of, resource_of, subject_of, user_info, user_of
from .model import Accounts, PolicyType, User, UserStatus, UserType, by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyromq.protocol.bodies import Body
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor

    from .model import Policies
    from .user_authority import UserAuthority

logger = logging.getLogger(__name__)

B = TypeVar("B", bound="Body")


class UserProcessors:
    """Serves them for `authority`; None where there are no users, because authenticationEnabled is false.

    A slave has what its master has (`follows`). A tool that tells both of a new user must not be refused because the
    slave has heard of it already.
    """

    def __init__(self, authority: UserAuthority | None, *, follows: bool = False) -> None:
        self._authority = authority
        self._follows = follows

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.set_acl,
            RequestCode.AUTH_UPDATE_ACL: self.set_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    # Users

    async def create_user(self, connection: Connection, request: Command) -> Command:
        info = _user_info(request)
        wants_super = by_name(UserType, info.user_type) is UserType.SUPER
        if wants_super and not self._by_super(connection, request):
            raise ServerError("The super user can only be create by super user")
        if self._follows and info.username in self._accounts.users:
            return await self.update_user(connection, request)
        await self._change(connection, request, f"user {info.username} created", partial(with_new_user, info=info))
        return request.reply()

    async def update_user(self, connection: Connection, request: Command) -> Command:
        info = _user_info(request)
        by_super = self._by_super(connection, request)
        if by_name(UserType, info.user_type) is UserType.SUPER and not by_super:
            raise ServerError("The super user can only be update by super user")

        def make(accounts: Accounts) -> Accounts:
            _check_super(accounts.users.get(info.username), by_super)
            return with_changed_user(accounts, info)

        await self._change(connection, request, f"user {info.username} updated", make)
        return request.reply()

    async def delete_user(self, connection: Connection, request: Command) -> Command:
        name = request.header(UserName).username
        by_super = self._by_super(connection, request)

        def make(accounts: Accounts) -> Accounts:
            _check_super(accounts.users.get(name), by_super)
            return without_user(accounts, name)

        await self._change(connection, request, f"user {name} deleted", make)
        return request.reply()

    def get_user(self, connection: Connection, request: Command) -> Command:
        name = _blank_refused(request.header(UserName).username)
        user = self._accounts.users.get(name)
        reveal = self._by_super(connection, request)
        return request.reply(body=None if user is None else user_info(user, reveal=reveal).encode())

    def list_users(self, connection: Connection, request: Command) -> Command:
        part = (request.header(ListUsers).filter or "").strip()
        reveal = self._by_super(connection, request)
        found = [user_info(user, reveal=reveal) for name, user in self._accounts.users.items() if part in name]
        return request.reply(body=fastjson.dumps(found) if found else None)

    # Policies

    async def set_acl(self, connection: Connection, request: Command) -> Command:
        """3006 and 3007 do the same: what is there already is replaced, resource by resource."""
        info = AclInfo.decode(request.body_bytes)
        if not info.policies:
            raise Refused("The body of acl is null")
        name = user_of(info.subject or request.header(AclSubject).subject)
        given = policies_of(info.policies)
        what = f"policies of user {name} set: {_described(given)}"
        await self._change(connection, request, what, lambda accounts: with_policies(accounts, name, given))
        return request.reply()

    async def delete_acl(self, connection: Connection, request: Command) -> Command:
        header = request.header(DeleteAcl)
        name = user_of(header.subject)
        # RocketMQ takes a resource that it cannot read for none, and deletes everything.
        resource = resource_of(header.resource) if header.resource else None
        kind = by_name(PolicyType, header.policy_type)
        what = f"policies of user {name} deleted: {resource or 'all'}"
        await self._change(connection, request, what, lambda accounts: without_policies(accounts, name, kind, resource))
        return request.reply()

    def get_acl(self, connection: Connection, request: Command) -> Command:
        name = user_of(request.header(AclSubject).subject)
        accounts = self._accounts
        if name not in accounts.users:
            raise Refused("The subject is not exist.")
        policies = accounts.policies.get(name)
        return request.reply(body=None if policies is None else acl_info(name, policies).encode())

    def list_acls(self, connection: Connection, request: Command) -> Command:
        header = request.header(ListAcls)
        who, what = (header.subject_filter or "").strip(), (header.resource_filter or "").strip()
        found = []
        for name, policies in self._accounts.policies.items():
            shown: Policies = {
                kind: tuple(entry for entry in entries if what in str(entry.resource))
                for kind, entries in policies.items()
            }
            if who in subject_of(name) and any(shown.values()):
                found.append(acl_info(name, {kind: entries for kind, entries in shown.items() if entries}))
        return request.reply(body=fastjson.dumps(found) if found else None)

    @property
    def _known(self) -> UserAuthority:
        if self._authority is None:
            raise ServerError("This broker has no users: authenticationEnabled is false.")
        return self._authority

    @property
    def _accounts(self) -> Accounts:
        return self._known.directory.accounts

    def _by_super(self, connection: Connection, request: Command) -> bool:
        return self._known.is_super(request, connection.peer)

    async def _change(
        self, connection: Connection, request: Command, what: str, make: Callable[[Accounts], Accounts]
    ) -> None:
        await self._known.directory.change(make)
        logger.info("%s by %s from %s", what, (request.ext or {}).get(ACCESS_KEY), connection.peer)


def accounts_of(users: Iterable[UserInfo], acls: Iterable[AclInfo]) -> Accounts:
    """What a master told of its users, to one who may see secrets. RemoteProtocolError for what is not usable."""
    found = {}
    for info in users:
        kind, status = by_name(UserType, info.user_type), by_name(UserStatus, info.user_status)
        if not info.password:
            raise RemoteProtocolError(
                "it does not show the secrets of its users: innerClientAuthenticationCredentials must be a super user's"
            )
        found[info.username] = User(info.username, info.password, kind or UserType.NORMAL, status or UserStatus.ENABLE)
    try:
        return Accounts(found, {user_of(info.subject): policies_of(info.policies) for info in acls})
    except Refused as exc:
        raise RemoteProtocolError(f"it has policies that are not usable here: {exc.remark}") from exc


def list_of(kind: type[B], data: bytes) -> list[B]:
    """A body that is an array; no body counts as an empty one."""
    if not data:
        return []
    entries = fastjson.loads(data)
    if not isinstance(entries, list):
        raise RemoteProtocolError(f"expected a list of {kind.__name__}")
    return [convert(kind, entry) for entry in entries]


def _user_info(request: Command) -> UserInfo:
    name = _blank_refused(request.header(UserName).username)
    info = UserInfo.decode(request.body_bytes)
    return UserInfo(username=name, password=info.password, user_type=info.user_type, user_status=info.user_status)


def _blank_refused(name: str) -> str:
    if not name.strip():
        raise InvalidParameter("The username is blank")
    return name


def _check_super(user: User | None, by_super: bool) -> None:
    if user is not None and user.is_super and not by_super:
        raise Refused("The super user can only be update by super user")


def _described(policies: Policies) -> str:
    return ", ".join(
        f"{entry.decision} {'|'.join(entry.actions)} on {entry.resource}"
        for entries in policies.values()
        for entry in entries
    )
