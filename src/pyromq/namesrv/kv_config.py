"""KV config: values that admins store on the name server by namespace and key, and their file.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"rack1:8"},"ns2":{"k":"v"}}}

The only namespace with a meaning is ORDER_TOPIC_CONFIG: brokers get all of it when they register, and a route carries
its topic's value (docs/spec/namesrv.md 5).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class KVConfig:
    """The table in memory. Namespaces outlive their last key, as in RocketMQ."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}

    def put(self, namespace: str, key: str, value: str | None) -> None:
        """Set a key; without a value, only create the namespace."""
        keys = self._namespaces.setdefault(namespace, {})
        if value is not None:
            keys[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        self._namespaces.get(namespace, {}).pop(key, None)

    def copy(self) -> KVConfig:
        """A copy of the table."""
        copy = KVConfig()
        copy._namespaces = {namespace: dict(keys) for namespace, keys in self._namespaces.items()}
        return copy

    def take(self, other: KVConfig) -> None:
        """Replace the content by that of `other`."""
        self._namespaces = other._namespaces

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All keys of a namespace, or None if it was never used."""
        return self._namespaces.get(namespace)

    def lines(self) -> list[str]:
        """One line per key, for the log."""
        return [
            f"KV config namespace={namespace} key={key} value={value}"
            for namespace, keys in self._namespaces.items()
            for key, value in keys.items()
        ]

    def encode(self) -> bytes:
        """The content of the file."""
        content = {"configTable": self._namespaces}
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    @classmethod
    def decode(cls, data: bytes, source: str) -> KVConfig:
        """Parse a file; an empty one gives an empty table. ConfigError for any other content."""
        config = cls()
        if not data.strip():
            return config
        try:
            content = json.loads(data.decode("utf-8-sig"), strict=False)
        except json.JSONDecodeError as exc:
            raise ConfigError(f"not JSON: {exc.msg}", f"{source}:{exc.lineno}") from exc
        except (UnicodeDecodeError, RecursionError) as exc:
            raise ConfigError("not JSON in UTF-8", source) from exc
        table = dict(_members(content, "the content", source)).get("configTable")
        for namespace, keys in _members({} if table is None else table, "configTable", source):
            config._namespaces[namespace] = {key: _text(value) for key, value in _members(keys, namespace, source)}
        return config


def load_kv_config(path: Path) -> KVConfig:
    """Load the table from a file; empty if there is no file. ConfigError if it cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return KVConfig()
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", str(path)) from exc
    return KVConfig.decode(data, str(path))


def _members(value: object, name: str, source: str) -> list[tuple[str, object]]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name} must be a JSON object", source)
    return list(value.items())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
