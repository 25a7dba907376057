"""What a broker of the cluster has stored, read with plain pulls."""

from __future__ import annotations

from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import PullMessage
from pyromq.protocol.message import MessageExt, decode_records

_SUBSCRIPTION = 4


async def stored(cluster, topic, queues=4):
    """All messages of `topic`, queue by queue."""
    messages = []
    for queue_id in range(queues):
        offset = 0
        while True:
            header = PullMessage("readers", topic, queue_id, offset, 32, _SUBSCRIPTION, 0, 0, 0, subscription="*")
            reply = await cluster.peer.invoke(cluster.address(), Command.request(RequestCode.PULL_MESSAGE, header))
            if reply.code:
                break
            found = [MessageExt(record, "broker-a") for record in decode_records(reply.body_bytes)]
            messages += found
            offset = found[-1].queue_offset + 1
    return messages
