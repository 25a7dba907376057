"""A client that signs by itself, and files of accounts."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass

from tests.integration.broker.scene_kit import Client

SECRET = "not-for-logs"

ADMINISTRATOR = f"""
- accessKey: administrator
  secretKey: {SECRET}
  admin: true
"""


def account(name, *, topics=(), groups=(), more=""):
    return (
        f"- {{accessKey: {name}, secretKey: {SECRET}, topicPerms: {list(topics)}, groupPerms: {list(groups)}{more}}}\n"
    )


def write_accounts(folder, *accounts, white=()):
    path = folder / "conf" / "plain_acl.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"globalWhiteRemoteAddresses: {list(white)}\naccounts:\n{ADMINISTRATOR}{''.join(accounts)}")
    path.chmod(0o600)
    return path


def signed_ext(ext, body, account, secret):
    """By docs/spec/remoting.md 7.1."""
    ext = {key: str(value) for key, value in (ext or {}).items()} | {"AccessKey": account}
    content = "".join(ext[key] for key in sorted(ext)).encode() + body
    mac = hmac.new(secret.encode(), content, hashlib.sha1).digest()
    return ext | {"Signature": base64.b64encode(mac).decode()}


@dataclass
class SignedClient(Client):
    """Signs what it asks for `account`; without one it does not."""

    account: str | None = None
    secret: str = SECRET

    def ask(self, code, ext=None, body=b"", **more):
        if self.account is not None:
            ext = signed_ext(ext, body, self.account, self.secret)
        return super().ask(code, ext, body, **more)


async def connect(scene, account=None, secret=SECRET):
    client = await SignedClient.connect(scene.port)
    assert isinstance(client, SignedClient)
    scene._clients.push_async_callback(client.close)
    client.account, client.secret = account, secret
    return client
