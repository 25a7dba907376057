"""A user's Python function in a pipeline: found by name, shipped to executors, called with each message.

    def to_vip(message):
        order = json.loads(message["body"])
        return {"body": json.dumps(order), "keys": message["keys"]} if order["total"] > 100 else None

It gets a message as a dict with the columns of a read, and returns a dict with those of a write, bytes or text for a
body alone, a list of either, or None for nothing. What a dict leaves out of tags, keys and properties stays empty. If
it raises, the message is a bad row, and the others go on.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyromq.errors import ConfigError

from ..schema import PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# What a function may return: the columns of a write, and why a message is bad.
ERROR = "_error"
OUT = {
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": pa.string(),
    "properties": PROPERTIES,
    "flag": pa.int32(),
    "shardingKey": pa.string(),
    "dedupKey": pa.string(),
    ERROR: pa.string(),
}
OUT_SCHEMA = pa.schema(list(OUT.items()))
OUT_DDL = (
    "body binary, tags string, keys string, properties map<string,string>, flag int, shardingKey string, "
    f"dedupKey string, `{ERROR}` string"
)
_SHOWN = 200


def load(place: str, name: str, folder: Path) -> Callable[..., Any]:
    """The function `name` of FILE.py, as seen from `folder`, or of a module. Raises ConfigError."""
    if place.endswith(".py"):
        module = _from_file(folder / place)
    else:
        try:
            module = importlib.import_module(place)
        except ImportError as exc:
            raise ConfigError(f"function {place}:{name}: {exc}") from exc
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"{place} has no function {name}")
    made: Callable[..., Any] = found
    return made


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"pyromq_pipeline_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as exc:
        raise ConfigError(f"{path} cannot be run: {type(exc).__name__}: {exc}") from exc
    # Executors do not have the file, so the function goes to them by value.
    from pyspark import cloudpickle

    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # it has no types
    return module


def mapped(function: Callable[..., Any]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`function` for all messages of Arrow batches, with a bad row for each that it does not take."""

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [out for message in batch.to_pylist(maps_as_pydicts="lossy") for out in _called(function, message)]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, OUT_SCHEMA)

    return apply


def _called(function: Callable[..., Any], message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        # All of it before any is sent: a message is good or bad as a whole.
        yield from list(_outs(function(dict(message))))
    except Exception as exc:
        reason = f"{type(exc).__name__}: {exc}"[:_SHOWN]
        kept = {name: message.get(name) for name in ("body", "tags", "keys")}
        yield {**kept, ERROR: reason}


def _outs(given: Any) -> Iterator[dict[str, Any]]:
    if given is None:
        return
    if isinstance(given, bytes | str):
        yield {"body": _bytes(given)}
    elif isinstance(given, Mapping):
        yield _out(given)
    elif isinstance(given, Iterable):
        for each in given:
            yield from _outs(each)
    else:
        raise TypeError(f"a function returns dict, bytes, str, a list of them or None, not {type(given).__name__}")


def _out(given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in OUT or name == ERROR:
            raise KeyError(f"{name} is not a column of a message to send; {', '.join(set(OUT) - {ERROR})} are")
    made = dict(given)
    made["body"] = _bytes(made.get("body"))
    if isinstance(made.get("keys"), list | tuple):
        made["keys"] = " ".join(map(str, made["keys"]))
    for name in ("tags", "keys", "shardingKey", "dedupKey"):
        if made.get(name) is not None and not isinstance(made[name], str):
            raise TypeError(f"{name} must be text, not {type(made[name]).__name__}")
    if made.get("properties"):
        made["properties"] = {str(name): str(value) for name, value in made["properties"].items()}
    return made


def _bytes(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise TypeError(f"body must be bytes or text, not {type(body).__name__}")
