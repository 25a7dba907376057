"""`admin.namesrv`: the keys and the settings of the name servers.

Name servers do not talk to each other, so a change goes to all of them; a query goes to any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.protocol.bodies import KVTable
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import GetKVConfig, GetKVConfigReply, GetKVListByNamespace, PutKVConfig

from .config_text import config_from, config_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .requests import Requests


class NameServerAdmin:
    """Operations on name servers. A change raises PartialFailure if it did not reach all of them."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        header = PutKVConfig(namespace, key, value)
        answers = await self._requests.ask_name_servers(f"put {namespace}/{key}", RequestCode.PUT_KV_CONFIG, header)
        answers.check()

    async def get_kv(self, namespace: str, key: str) -> str:
        """Raises QueryNotFound."""
        reply = await self._requests.ask_name_server(RequestCode.GET_KV_CONFIG, GetKVConfig(namespace, key))
        return reply.header(GetKVConfigReply).value or ""

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a key; it need not exist."""
        what, header = f"delete {namespace}/{key}", GetKVConfig(namespace, key)
        answers = await self._requests.ask_name_servers(what, RequestCode.DELETE_KV_CONFIG, header)
        answers.check()

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """All keys of a namespace. Raises QueryNotFound for one that never had any."""
        header = GetKVListByNamespace(namespace)
        reply = await self._requests.ask_name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        return KVTable.decode(reply.body_bytes).table

    async def config(self) -> dict[str, dict[str, str]]:
        """The settings of every name server, by its address."""
        answers = await self._requests.ask_name_servers("name server config", RequestCode.GET_NAMESRV_CONFIG)
        configs = {address: config_from(reply, address) for address, reply in answers.results.items()}
        answers.check(configs)
        return configs

    async def set_config(self, changes: Mapping[str, str]) -> None:
        """Change settings on every name server, at once and in its file. Keys are RocketMQ's."""
        answers = await self._requests.ask_name_servers(
            f"set {', '.join(changes)}", RequestCode.UPDATE_NAMESRV_CONFIG, body=config_text(changes)
        )
        answers.check()
