"""The transactions of a broker, put together from real parts on a store that can be restarted and can crash."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tests.unit.broker.message_kit import Parts, Peer, request, send_request

from pyromq.errors import ConnectionLost
from pyromq.protocol.bodies import HeartbeatData
from pyromq.protocol.bodies.heartbeat import ProducerData
from pyromq.protocol.headers import CheckTransactionState, EndTransaction
from pyromq.protocol.ids import decode_offset_message_id
from pyromq.protocol.names import TRANSACTION_GROUP
from pyromq.protocol.record import MessageRecord, decode_record

if TYPE_CHECKING:
    from pathlib import Path

    from pyromq.protocol.bodies import ConsumerOffsetTable
    from pyromq.protocol.command import Command

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0

SECOND = 1000
TIMEOUT, INTERVAL = 6 * SECOND, 60 * SECOND

_keys = itertools.count()


class Producer(Peer):
    """A producer that remembers what it was asked."""

    def __init__(self, peer: str = "192.168.1.10:54321") -> None:
        super().__init__(peer)
        self.asked: list[tuple[CheckTransactionState, MessageRecord]] = []

    async def oneway(self, command: Command, timeout: float) -> None:
        if self.closed:
            raise ConnectionLost(self.peer)
        assert command.code == 39
        assert command.is_oneway
        self.asked.append((command.header(CheckTransactionState), decode_record(command.body_bytes)))


class Half:
    """A half message that was sent, by the words of its answer."""

    def __init__(self, reply: Command) -> None:
        assert reply.ext is not None, reply
        assert reply.code == 0, reply
        self.offset = int(reply.ext["queueOffset"])
        self.physical = decode_offset_message_id(reply.ext["msgId"]).physical_offset


class Transactions(Parts):
    """A broker's transactions. `saved` is what it finds as the offsets of groups."""

    def __init__(self, folder: Path, saved: ConsumerOffsetTable | None = None, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self._folder = folder
        self._settings = settings
        if saved is not None:
            self.offsets.load(saved)
        self.halves, self.check_back = self.broker.halves, self.broker.check_back
        self.halves.load()

    def again(self, *, saved: ConsumerOffsetTable | None = None, crash: bool = False) -> Transactions:
        """The same store after a restart, or a crash; with the offsets as they are, or as they were saved before."""
        saved = saved or self.offsets.snapshot()
        if crash:
            self.store.abandon()
        else:
            self.store.close()
        after = Transactions(self._folder, saved, **self._settings)
        after.now = self.now
        return after

    def without_last_op(self, saved: ConsumerOffsetTable | None = None) -> Transactions:
        """The same store after a crash, before which all but the last op record was written."""
        queue = self.store.queue(OP, 0)
        entry = queue.entry(queue.max_offset - 1)
        assert entry is not None
        physical, size, _ = entry
        assert physical + size == self.store.log.end
        segment = self.store.log.segments[-1]
        with segment.path.open("r+b") as file:
            file.seek(physical - segment.start)
            file.write(bytes(size))
        return self.again(saved=saved, crash=True)

    def join(self, *producers: Producer, group: str = "shop") -> None:
        for number, producer in enumerate(producers):
            data = HeartbeatData(client_id=f"client-{number}", producer_data_set=[ProducerData(group_name=group)])
            self.clients.heartbeat(producer, data, self.now)  # type: ignore[arg-type]

    async def prepare(self, body: bytes = b"paid", *, group: str = "shop", queue_id: int = 1, **more: object) -> Half:
        """Send a half message, born now."""
        properties = {"UNIQ_KEY": f"ID{next(_keys)}", "TRAN_MSG": "true", "PGROUP": group} | more
        text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
        asked = send_request(body, text, queue_id=queue_id, sys_flag=4, born_timestamp=self.now)
        reply = await self.ask(Peer(), asked)
        assert reply is not None
        return Half(reply)

    async def end(self, half: Half, how: int = COMMIT, **fields: Any) -> Command | None:
        return await self.ask(Peer(), end_request(half.offset, half.physical, how, **fields))

    async def answer(self, question: tuple[CheckTransactionState, MessageRecord], how: int = COMMIT) -> Command | None:
        """As a producer does that was asked."""
        header = question[0]
        places = (header.tran_state_table_offset, header.commit_log_offset)
        return await self.ask(Peer(), end_request(*places, how, from_transaction_check=True))

    async def round(self, after: int = INTERVAL) -> None:
        """The next round of questions, so many milliseconds later."""
        self.now += after
        await self.check_back.round()

    @property
    def seen(self) -> list[bytes]:
        """What consumers see."""
        return [record.body for queue_id in range(4) for record in self.messages("orders", queue_id)]

    @property
    def decided(self) -> list[str]:
        """What the op records say."""
        return [record.body.decode() for record in self.messages(OP, 0)]

    @property
    def position(self) -> tuple[int | None, int | None]:
        return self.offsets.get(TRANSACTION_GROUP, HALF, 0), self.offsets.get(TRANSACTION_GROUP, OP, 0)


def end_request(offset: int, physical: int, how: int, group: str = "shop", **fields: Any) -> Command:
    return request(37, EndTransaction(group, offset, physical, how, "ID", **fields))
