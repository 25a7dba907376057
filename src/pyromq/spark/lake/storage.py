"""Where a lake is: a folder, or a bucket with its endpoint and keys, in the words of each library that goes there.

Tasks write through pyarrow's file systems, Delta tables go through delta-rs, Iceberg tables through pyiceberg; all
three get their settings from one `Storage`, which travels to tasks. Keys that are kept in variables or a file
(`credentials`) are looked up where they are needed and travel nowhere. No text of this module has a secret in it, and
`masked` takes them out of the texts of others.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow import fs

_S3 = ("s3", "s3a", "s3n")
_AZURE = ("abfs", "abfss", "az", "azure")
_GOOGLE = ("gs", "gcs")
_KNOWN = {
    "endpoint": "endpoint",
    "region": "region",
    "credentials": "credentials",
    "accesskey": "access_key",
    "secretkey": "secret_key",
    "sessiontoken": "session_token",
    "securitytoken": "session_token",
}
_SECRET_WORDS = ("secret", "token", "key", "password", "sas", "credential")
_STARS = "*****"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Storage:
    """The root of a lake, and how to reach it. Pickles; its repr has no secrets."""

    root: str  # an absolute path, or a URI
    endpoint: str = ""  # of an S3-compatible store, such as http://minio:9000
    region: str = ""
    credentials: str = ""  # env:PREFIX or file:PATH
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    # Handed on as they are: AWS_… and the like to delta-rs, s3.… and catalog.… to pyiceberg.
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, root: str, options: Mapping[str, str] | None = None) -> Storage:
        """The lake at `root`: a path, file://, s3://, abfss://, gs:// or hdfs://. Raises ConfigError."""
        if not root.strip():
            raise ConfigError("the lake's root is missing: a folder, or a URI such as s3://bucket/folder")
        known: dict[str, str] = {}
        others: dict[str, str] = {}
        for key, value in (options or {}).items():
            name = _KNOWN.get(key.lower().removeprefix("lake."))
            if name is None:
                others[key.removeprefix("storage.")] = str(value)
            else:
                known[name] = str(value)
        storage = cls(_absolute(root.strip()), **known, options=others)
        storage._check()
        return storage

    def _check(self) -> None:
        if self.credentials:
            if self.access_key or self.secret_key:
                raise ConfigError("give the lake either credentials or accessKey and secretKey")
            if self.credentials.partition(":")[0] not in ("env", "file"):
                raise ConfigError("the lake's credentials must be env:PREFIX or file:PATH")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("the lake's accessKey and secretKey belong together")
        if self.endpoint and urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise ConfigError(f"the lake's endpoint must be a URL such as http://minio:9000, not {self.endpoint!r}")

    @property
    def scheme(self) -> str:
        return urlsplit(self.root).scheme.lower() if "://" in self.root else "file"

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    def uri(self, name: str = "") -> str:
        """The root or a table below it, as a URI without secrets."""
        place = f"{self.root.rstrip('/')}/{name}" if name else self.root
        return place if "://" in place else f"file://{quote(place)}"

    def path(self, name: str = "") -> str:
        """The root or what is below it, as its file system names it."""
        if self.is_local:
            return posixpath.join(self.root, name) if name else self.root
        split = urlsplit(self.root)
        inside = f"{split.netloc}{split.path}" if self.scheme in (*_S3, *_GOOGLE) else split.path
        if self.scheme in _AZURE:  # abfss://container@account.dfs.core.windows.net/folder
            inside = f"{split.netloc.partition('@')[0]}{split.path}"
        return posixpath.join(inside.rstrip("/"), name) if name else inside.rstrip("/")

    def filesystem(self) -> fs.FileSystem:
        """pyarrow's way to it, for tasks and for reading a table's log."""
        from pyarrow import fs

        if self.is_local:
            return fs.LocalFileSystem()
        access, secret, token = self._keys()
        if self.scheme in _S3:
            settings: dict[str, Any] = {"region": self._region()} if self._region() else {}
            if access:
                settings |= {"access_key": access, "secret_key": secret}
                settings |= {"session_token": token} if token else {}
            if self.endpoint:
                split = urlsplit(self.endpoint)
                settings |= {"scheme": split.scheme, "endpoint_override": f"{split.netloc}{split.path}".rstrip("/")}
            return fs.S3FileSystem(**settings)
        if self.scheme in _AZURE:
            account = access or urlsplit(self.root).netloc.partition("@")[2].partition(".")[0]
            return fs.AzureFileSystem(account_name=account, **({"account_key": secret} if secret else {}))
        if self.scheme in _GOOGLE:
            return fs.GcsFileSystem()
        return fs.FileSystem.from_uri(self.root)[0]

    def delta_options(self) -> dict[str, str]:
        """What delta-rs calls these settings."""
        access, secret, token = self._keys()
        found: dict[str, str] = {}
        if self.scheme in _S3:
            found = {
                "AWS_ACCESS_KEY_ID": access,
                "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_SESSION_TOKEN": token,
                "AWS_REGION": self._region(),
                "AWS_ENDPOINT_URL": self.endpoint,
                "AWS_ALLOW_HTTP": "true" if self.endpoint.startswith("http:") else "",
                # Two archives of one topic need it: the second must not overwrite the first one's commit.
                "aws_conditional_put": "etag",
            }
        elif self.scheme in _AZURE:
            found = {"azure_storage_account_name": access, "azure_storage_account_key": secret}
        own = {key: value for key, value in self.options.items() if not key.lower().startswith(("catalog.", "s3."))}
        return {key: value for key, value in found.items() if value} | own

    def iceberg_properties(self) -> dict[str, str]:
        """What pyiceberg calls these settings, and the properties of the catalog."""
        access, secret, token = self._keys()
        found: dict[str, str] = {}
        if self.scheme in _S3:
            found = {
                "s3.access-key-id": access,
                "s3.secret-access-key": secret,
                "s3.session-token": token,
                "s3.region": self._region(),
                "s3.endpoint": self.endpoint,
            }
        elif self.scheme in _AZURE:
            found = {"adls.account-name": access, "adls.account-key": secret}
        own = {key.removeprefix("catalog."): value for key, value in self.options.items()}
        return {key: value for key, value in found.items() if value} | own

    def masked(self, text: object) -> str:
        """`text` of somebody else's, in one line, without colours and without our secrets."""
        line = " ".join(_COLOUR.sub("", str(text)).split())
        for secret in self._secrets():
            line = line.replace(secret, _STARS)
        return line

    def _secrets(self) -> list[str]:
        try:
            keys = self._keys()[1:]
        except ConfigError:
            keys = ("", "")
        own = [value for key, value in self.options.items() if any(word in key.lower() for word in _SECRET_WORDS)]
        own += [found.password or "" for found in map(_url, self.options.values()) if found is not None]
        return sorted({secret for secret in (*keys, *own) if len(secret) > 3}, key=len, reverse=True)

    def _keys(self) -> tuple[str, str, str]:
        if not self.credentials:
            return self.access_key, self.secret_key, self.session_token
        from pyromq.client.identity import Credentials

        keys = Credentials.look_up(self.credentials)
        return keys.access_key, keys.secret_key, keys.security_token or ""

    def _region(self) -> str:
        # A store with an endpoint of its own mostly does not care, but the signature needs one.
        return self.region or os.environ.get("AWS_REGION", "") or ("us-east-1" if self.endpoint else "")


def _absolute(root: str) -> str:
    if "://" not in root and not root.lower().startswith("file:/"):
        return str(Path(root).expanduser().absolute())
    split = urlsplit(root)
    if split.password or (split.username and split.scheme.lower() not in _AZURE):
        raise ConfigError("the lake's root has keys in it; give them as options instead")
    if split.scheme.lower() == "file":
        return unquote(split.path)
    if not split.netloc and split.scheme.lower() != "hdfs":
        raise ConfigError(f"the lake's root {root} names no bucket")
    return root.rstrip("/")


def _url(value: str) -> Any:
    try:
        return urlsplit(value) if "://" in value else None
    except ValueError:
        return None
