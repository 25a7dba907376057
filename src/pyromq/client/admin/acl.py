"""`admin.acl`: who may do what. 4.9 brokers have accounts (50 to 54), 5.x brokers users and policies (3001-3010).

A broker without access control, or of the other line, refuses these requests: RequestCodeNotSupported. Each broker
keeps its own list. A change goes to `brokers`, to a cluster, or to all; slaves are told, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pyromq.errors import BrokerError, RemoteProtocolError
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import AclConfig, AclInfo, DataVersion, UserInfo
from pyromq.protocol.bodies.base import Body
from pyromq.protocol.bodies.conversion import convert
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import (
    AclSubject,
    DeleteAcl,
    DeleteAclConfig,
    GetAclInfoReply,
    ListAcls,
    ListUsers,
    UpdateAclConfig,
    UpdateGlobalWhiteAddresses,
    UserName,
)

from .fan_out import fan_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.command import Command
    from pyromq.protocol.header import Header

    from .addresses import Addresses
    from .requests import Requests

B = TypeVar("B", bound=Body)

_SEPARATOR = ","


# 4.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A 4.9 account. Permissions are DENY, PUB, SUB or PUB|SUB; for topics and groups, `name=PUB`.

    What is None stays as it is at brokers of ours. RocketMQ needs the secret, and takes `admin` for False.
    """

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = ""
    admin: bool | None = False
    default_topic_perm: str | None = "DENY"
    default_group_perm: str | None = "DENY"
    topic_perms: tuple[str, ...] | None = ()
    group_perms: tuple[str, ...] | None = ()

    def __repr__(self) -> str:
        # The secret stays out of logs and tracebacks.
        return f"Account({self.access_key!r}, admin={self.admin})"


@dataclass(frozen=True, slots=True)
class AclVersion:
    """The versions of a broker's accounts: one per file, and `version`, which 4.9.7 updates only at its start.

    `errors` say why a file is not in effect as it is, by its path; brokers of ours tell.
    """

    broker_name: str
    address: str
    cluster: str
    version: DataVersion
    files: dict[str, DataVersion]
    errors: dict[str, str] = field(default_factory=dict)


class AclAdmin:
    """Operations on accounts, users and policies."""

    def __init__(self, requests: Requests, addresses: Addresses) -> None:
        self._requests = requests
        self._addresses = addresses

    # Accounts of 4.9

    async def set_account(
        self, account: Account, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Create or replace an account; returns the addresses."""
        header = UpdateAclConfig(
            access_key=account.access_key,
            secret_key=account.secret_key,
            white_remote_address=account.white_remote_address,
            admin=account.admin,
            default_topic_perm=account.default_topic_perm,
            default_group_perm=account.default_group_perm,
            topic_perms=None if account.topic_perms is None else _joined(account.topic_perms),
            group_perms=None if account.group_perms is None else _joined(account.group_perms),
        )
        what = f"set account {account.access_key}"
        return await self._tell_all(what, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header, None, cluster, brokers)

    async def delete_account(
        self, access_key: str, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        header = DeleteAclConfig(access_key)
        what = f"delete account {access_key}"
        return await self._tell_all(what, RequestCode.DELETE_ACL_CONFIG, header, None, cluster, brokers)

    async def versions(
        self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> dict[str, AclVersion]:
        """The version of each broker's accounts, by address."""

        async def ask(address: str) -> AclVersion:
            return _version(await self._requests.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO))

        answers = await fan_out(await self._addresses.everyone(cluster, brokers), ask, "versions of accounts")
        return answers.check(answers.results)

    async def accounts(
        self, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> dict[str, AclConfig]:
        """The accounts and white addresses of each broker, by address. 4.9.8 and 5.2 do not tell (54)."""

        async def ask(address: str) -> AclConfig:
            reply = await self._requests.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
            return AclConfig.decode(reply.body_bytes)

        answers = await fan_out(await self._addresses.everyone(cluster, brokers), ask, "accounts")
        return answers.check(answers.results)

    async def set_white_addresses(
        self,
        addresses: Iterable[str],
        *,
        file: str | None = None,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Allow everything from these addresses. `file` names one of several that a broker reads."""
        header = UpdateGlobalWhiteAddresses(_joined(addresses), file)
        code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
        return await self._tell_all("set white addresses", code, header, None, cluster, brokers)

    # Users of 5.x

    async def create_user(
        self, user: UserInfo, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        header, body = UserName(user.username), user.encode()
        what = f"create user {user.username}"
        return await self._tell_all(what, RequestCode.AUTH_CREATE_USER, header, body, cluster, brokers)

    async def update_user(
        self, user: UserInfo, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        """Fields that are None stay unchanged."""
        header, body = UserName(user.username), user.encode()
        what = f"update user {user.username}"
        return await self._tell_all(what, RequestCode.AUTH_UPDATE_USER, header, body, cluster, brokers)

    async def delete_user(
        self, username: str, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        header = UserName(username)
        what = f"delete user {username}"
        return await self._tell_all(what, RequestCode.AUTH_DELETE_USER, header, None, cluster, brokers)

    async def user(self, broker: str, username: str) -> UserInfo:
        """Raises BrokerError with code 3001 if there is none."""
        address = await self._addresses.address(broker)
        reply = await self._requests.ask(address, RequestCode.AUTH_GET_USER, UserName(username))
        if not reply.body_bytes:
            raise BrokerError(f"there is no user {username}", address, ResponseCode.USER_NOT_EXIST)
        return UserInfo.decode(reply.body_bytes)

    async def users(self, broker: str, filter: str | None = None) -> list[UserInfo]:  # noqa: A002 - RocketMQ's word
        """All users of a broker, or those whose name contains `filter`."""
        address = await self._addresses.address(broker)
        return _list(UserInfo, await self._requests.ask(address, RequestCode.AUTH_LIST_USER, ListUsers(filter)))

    # Policies of 5.x

    async def create_acl(
        self, acl: AclInfo, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        header, body = AclSubject(acl.subject), acl.encode()
        what = f"create acl of {acl.subject}"
        return await self._tell_all(what, RequestCode.AUTH_CREATE_ACL, header, body, cluster, brokers)

    async def update_acl(
        self, acl: AclInfo, *, cluster: str | None = None, brokers: str | Iterable[str] | None = None
    ) -> list[str]:
        header, body = AclSubject(acl.subject), acl.encode()
        what = f"update acl of {acl.subject}"
        return await self._tell_all(what, RequestCode.AUTH_UPDATE_ACL, header, body, cluster, brokers)

    async def delete_acl(
        self,
        subject: str,
        *,
        resource: str | None = None,
        policy_type: str | None = None,
        cluster: str | None = None,
        brokers: str | Iterable[str] | None = None,
    ) -> list[str]:
        """Delete all policies of a subject, or those on one resource."""
        header = DeleteAcl(subject, policy_type, resource)
        what = f"delete acl of {subject}"
        return await self._tell_all(what, RequestCode.AUTH_DELETE_ACL, header, None, cluster, brokers)

    async def acl(self, broker: str, subject: str) -> AclInfo:
        """Raises BrokerError with code 3002 if there is none."""
        address = await self._addresses.address(broker)
        reply = await self._requests.ask(address, RequestCode.AUTH_GET_ACL, AclSubject(subject))
        if not reply.body_bytes:
            raise BrokerError(f"there is no acl of {subject}", address, ResponseCode.POLICY_NOT_EXIST)
        return AclInfo.decode(reply.body_bytes)

    async def acls(self, broker: str, *, subject: str | None = None, resource: str | None = None) -> list[AclInfo]:
        """All policies of a broker, or those whose subject and resource contain these texts."""
        address = await self._addresses.address(broker)
        header = ListAcls(subject, resource)
        return _list(AclInfo, await self._requests.ask(address, RequestCode.AUTH_LIST_ACL, header))

    async def _tell_all(
        self,
        what: str,
        code: int,
        header: Header,
        body: bytes | None,
        cluster: str | None,
        brokers: str | Iterable[str] | None,
    ) -> list[str]:
        """Tell slaves, too: those of RocketMQ do not ask their masters for users."""
        return await self._requests.tell(what, await self._addresses.everyone(cluster, brokers), code, header, body)


def _joined(texts: Iterable[str]) -> str:
    # RocketMQ splits an empty text into one empty name, and a comma into none.
    return _SEPARATOR.join(texts) or _SEPARATOR


def _version(reply: Command) -> AclVersion:
    header = reply.header(GetAclInfoReply)
    files = fastjson.loads(header.all_acl_file_version) if header.all_acl_file_version else {}
    errors = fastjson.loads(header.file_errors) if header.file_errors else {}
    if not isinstance(files, dict) or not isinstance(errors, dict):
        raise RemoteProtocolError("the versions of the account files are not a JSON object")
    return AclVersion(
        broker_name=header.broker_name,
        address=header.broker_addr,
        cluster=header.cluster_name,
        version=DataVersion.decode(header.version.encode()) if header.version else DataVersion(),
        files={str(path): convert(DataVersion, version) for path, version in files.items()},
        errors={str(path): str(error) for path, error in errors.items()},
    )


def _list(kind: type[B], reply: Command) -> list[B]:
    """A body that is an array; no body counts as an empty one."""
    if not reply.body_bytes:
        return []
    entries = fastjson.loads(reply.body_bytes)
    if not isinstance(entries, list):
        raise RemoteProtocolError(f"expected a list of {kind.__name__}")
    return [convert(kind, entry) for entry in entries]
