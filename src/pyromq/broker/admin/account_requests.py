"""Requests about the accounts of RocketMQ 4.x (50 to 54). Without aclEnable there are none, and they are refused.

A change is on disk and in effect when it is acknowledged; each broker has accounts of its own.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.auth.acl.addresses import split_patterns
from pyromq.auth.acl.files import permission_text
from pyromq.auth.acl.folder import AccountChange
from pyromq.errors import BrokerError, ConfigError, NotSaved, RequestCodeNotSupported
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import AclConfig, DataVersion, PlainAccessConfig
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import DeleteAclConfig, GetAclInfoReply, UpdateAclConfig, UpdateGlobalWhiteAddresses

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.auth.acl.files import Account
    from pyromq.auth.acl.folder import AccountFiles
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor

    from ..context import Context

logger = logging.getLogger("pyromq.security")

# Response codes of 4.x for changes that failed. 5.x has other meanings for them.
UPDATE_FAILED, DELETE_FAILED, WHITE_ADDRESSES_FAILED = 209, 210, 211


class AccountProcessors:
    """The account files of this broker."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update,
            RequestCode.DELETE_ACL_CONFIG: self.delete,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.accounts,
        }

    async def update(self, connection: Connection, request: Command) -> Command:
        header = request.header(UpdateAclConfig)
        wanted = AccountChange(
            access_key=header.access_key,
            secret_key=header.secret_key,
            white_remote_address=header.white_remote_address,
            admin=header.admin,
            default_topic_perm=header.default_topic_perm,
            default_group_perm=header.default_group_perm,
            topic_perms=_list(header.topic_perms),
            group_perms=_list(header.group_perms),
        )
        files = self._files(request)
        await _changed(lambda: files.set_account(wanted), UPDATE_FAILED)
        logger.info("account %s set by %s", wanted.access_key, connection.peer)
        return request.reply()

    async def delete(self, connection: Connection, request: Command) -> Command:
        access_key = request.header(DeleteAclConfig).access_key
        files = self._files(request)

        def delete() -> None:
            if not files.delete_account(access_key):
                raise ConfigError(f"there is no account {access_key}")

        await _changed(delete, DELETE_FAILED)
        logger.info("account %s deleted by %s", access_key, connection.peer)
        return request.reply()

    async def update_white_addresses(self, connection: Connection, request: Command) -> Command:
        header = request.header(UpdateGlobalWhiteAddresses)
        patterns = split_patterns(header.global_white_addrs)
        path = Path(header.acl_file_full_path) if header.acl_file_full_path else None
        files = self._files(request)
        await _changed(lambda: files.set_white_addresses(patterns, path), WHITE_ADDRESSES_FAILED)
        logger.info("globalWhiteRemoteAddresses set to %s by %s", ", ".join(patterns) or "none", connection.peer)
        return request.reply()

    def versions(self, connection: Connection, request: Command) -> Command:
        files = self._files(request)
        config = self._context.live.config
        versions = files.rules.versions
        errors = {str(path): error for path, error in files.errors.items()}
        header = GetAclInfoReply(
            broker_name=config.broker_name,
            broker_addr=self._context.address,
            cluster_name=config.cluster_name,
            version=versions.get(files.main, DataVersion()).encode().decode(),
            all_acl_file_version=fastjson.dumps({str(path): each for path, each in versions.items()}).decode(),
            file_errors=fastjson.dumps(errors).decode() if errors else None,
        )
        return request.reply(header=header)

    def accounts(self, connection: Connection, request: Command) -> Command:
        rules = self._files(request).rules
        accounts = [_listed(account) for account in rules.accounts.values()]
        found = AclConfig(global_white_addrs=rules.white.texts, plain_access_configs=accounts)
        return request.reply(body=found.encode())

    def _files(self, request: Command) -> AccountFiles:
        acl = self._context.access.plain_acl
        if acl is None:
            raise RequestCodeNotSupported(f"request type {request.code} not supported: this broker has no aclEnable")
        return acl.files


def _listed(account: Account) -> PlainAccessConfig:
    return PlainAccessConfig(
        access_key=account.access_key,
        admin=account.admin,
        white_remote_address=",".join(account.white.texts),
        default_topic_perm=permission_text(account.default_topic),
        default_group_perm=permission_text(account.default_group),
        topic_perms=[f"{name}={permission_text(held)}" for name, held in account.topics.items()],
        group_perms=[f"{name}={permission_text(held)}" for name, held in account.groups.items()],
    )


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


async def _changed(change: Callable[[], object], failed: int) -> None:
    try:
        await asyncio.to_thread(change)
    except (ConfigError, NotSaved) as exc:
        raise BrokerError(str(exc), code=failed) from exc
