"""What a store's folder says besides its messages: whose it is, which topics it has, where there are stores below.

    config/topics.json    all topics; one is named after the broker: it has one queue, and may be inherited
    brokerIdentity        cluster#broker#id, of a broker that a controller knows

A copy of the log alone has neither; then nothing is known, and nothing is refused for it.
"""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.errors import StoreError
from pyromq.protocol.names import is_system_topic
from pyromq.store.format import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE, queue_folders

from ..decode.selection import is_internal_topic

if TYPE_CHECKING:
    from ..options import LogOptions

_TOPICS = Path("config", "topics.json")
_IDENTITY = "brokerIdentity"
_INHERIT = 1  # a bit of the permission
_DEEP, _MOST_SHOWN = 3, 5


def broker_name(root: Path) -> str | None:
    """The name of the broker whose store this is; None if that cannot be told."""
    identity = _text(root / _IDENTITY).strip().split("#")
    if len(identity) >= 3 and identity[1]:
        return identity[1]
    own = [
        name
        for name, topic in _topics(root).items()
        if topic.get("readQueueNums") == topic.get("writeQueueNums") == 1
        and isinstance(perm := topic.get("perm"), int)
        and perm & _INHERIT
        and not is_system_topic(name)
    ]
    return own[0] if len(own) == 1 else None


def check_topics(root: Path, options: LogOptions) -> None:
    """Raise StoreError for a topic that the store does not have: a typo would silently read nothing."""
    known = {*_topics(root)}
    if not known or options.via == "log":
        return
    known |= {topic for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE) for topic, _, _ in queue_folders(root, kind)}
    for topic in options.topics:
        if topic in known or is_internal_topic(topic) or topic.startswith("%"):
            continue
        users = sorted(name for name in known if not is_system_topic(name) and not is_internal_topic(name))
        near = difflib.get_close_matches(topic, users, 1)
        hint = f"did you mean {near[0]}?" if near else f"it has {_listed(users) or 'none'}"
        raise StoreError(f"{root} has no topic {topic}; {hint} (via=log reads what is left of a deleted one)")


def not_a_store(root: Path) -> StoreError:
    """Why a folder cannot be read, with the stores below it."""
    if not root.is_dir():
        return StoreError(f"{root} is not a store: there is no such folder here")
    found = _stores_below(root)
    if not found:
        return StoreError(f"{root} is not a store: it has no {COMMIT_LOG} folder")
    return StoreError(f"{root} is not a store, but there are some below it: {_listed(map(str, found))}")


def _stores_below(root: Path) -> list[Path]:
    found = []
    for folder, folders, _ in os.walk(root):
        if COMMIT_LOG in folders:
            found.append(Path(folder))
            folders.clear()
        elif len(Path(folder).relative_to(root).parts) >= _DEEP:
            folders.clear()
    return sorted(found)


def _topics(root: Path) -> dict[str, dict[str, Any]]:
    try:
        table = json.loads(_text(root / _TOPICS) or "{}").get("topicConfigTable")
    except (ValueError, AttributeError):
        return {}
    return {name: topic for name, topic in table.items() if isinstance(topic, dict)} if isinstance(table, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _listed(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:_MOST_SHOWN]) + (", …" if len(names) > _MOST_SHOWN else "")
