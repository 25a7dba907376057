"""Batches: messages of one topic sent together in one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import InvalidMessage
from pyromq.protocol.batch import ITEM_OVERHEAD, BatchItem, encode_batch
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.names import is_retry_topic

from ..hooks import MessageType
from .outgoing import WAIT_FALSE, WAIT_TRUE, Outgoing, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyromq.protocol.message import Message


def batches(messages: Sequence[Message], limit: int, extra: Callable[[Message], str]) -> Iterator[Outgoing]:
    """The requests that carry `messages`, each as large as `limit` allows. `extra` gives further properties of each."""
    if not messages:
        raise InvalidMessage("a batch needs at least one message")
    topic, wait_store = messages[0].topic, messages[0].wait_store
    if is_retry_topic(topic):
        raise InvalidMessage(f"{topic}: a batch cannot go to a retry topic")
    parts: list[Outgoing] = []
    items: list[BatchItem] = []
    size = 0
    for message in messages:
        if message.topic != topic or message.wait_store != wait_store:
            raise InvalidMessage(f"all messages of a batch must have the same topic, {topic}, and the same wait_store")
        part = prepare(message, limit, shard_key=message.shard_key, extra=extra(message))
        if part.kind is not MessageType.NORMAL:
            raise InvalidMessage(f"a batch to {topic} cannot hold delayed messages")
        item = batch_item(part)
        if item.size > limit:
            raise InvalidMessage(
                f"a message to {topic} takes {item.size} bytes in a batch; at most {limit} are allowed"
            )
        if size + item.size > limit:
            yield batch(parts, items, wait_store=wait_store)
            parts, items, size = [], [], 0
        parts.append(part)
        items.append(item)
        size += item.size
    yield batch(parts, items, wait_store=wait_store)


def batch(parts: Sequence[Outgoing], items: Sequence[BatchItem], *, wait_store: bool) -> Outgoing:
    """The request that carries `parts`, which are these `items` in a batch."""
    return Outgoing(
        encode_batch(items),
        (WAIT_TRUE if wait_store else WAIT_FALSE)[1:],
        ",".join([part.message_id for part in parts]),
        code=RequestCode.SEND_BATCH_MESSAGE,
        messages=[part.messages[0] for part in parts],
    )


def batch_item_size(outgoing: Outgoing) -> int:
    """Its size in a batch in bytes, or a little less if its properties are not ASCII."""
    return ITEM_OVERHEAD + len(outgoing.body) + len(outgoing.properties)


def batch_item(outgoing: Outgoing) -> BatchItem:
    return BatchItem(outgoing.body, outgoing.flag, outgoing.properties.encode())
