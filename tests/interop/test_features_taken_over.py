"""What waits in a store of Apache's has the same fate with our broker as with Apache's.

Apache's broker is stopped or killed while all kinds of messages wait: for a delay level, a timer, a retry, the end of
a transaction, an operator who looks at dead letters. Then both makes get a copy of its store, side by side, and clients
that do the same. What they see must be the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire
from tests.interop.apache import STOP_SECONDS, Broker, environment
from tests.interop.peers import OURS, NameServer
from tests.interop.process import Process, free_port, stop_all, wait_until

from pyromq.protocol import properties as props
from pyromq.protocol.bodies import HeartbeatData
from pyromq.protocol.bodies.heartbeat import ProducerData
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import CheckTransactionState, EndTransaction, PullMessage
from pyromq.protocol.ids import decode_offset_message_id
from pyromq.protocol.record import MessageRecord, decode_record, decode_records
from pyromq.remoting import RemotingClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyromq.remoting import Connection

pytestmark = pytest.mark.interop

TOPIC, PAYERS, READERS = "orders", "payers", "readers"
RETRIES, DEAD = f"%RETRY%{READERS}", f"%DLQ%{READERS}"
HALVES, OPS, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK = 8, 12
SUBSCRIPTION = 4
FLAG = 7  # of the sender's, for consumers
CHECKS = 3
PATIENCE = 10.0
BOOT_SECONDS = 15.0
OPS_SECONDS = 10.0  # 5.5.0 writes them down together, every 3 s

# 5.5.0 takes 17 s to stop and 10 to boot: the first delay is over before the next broker comes, the second after.
OVER_THE_STOP, OVER_THE_BOOT = 16, 60
LEVEL_OVER_THE_STOP, LEVEL_OVER_THE_BOOT, LEVEL_FAR = 1, 2, 3
FATES = OVER_THE_BOOT + 15  # seconds until everything has happened
SETTINGS: dict[str, Any] = {
    "messageDelayLevel": f"{OVER_THE_STOP}s {OVER_THE_BOOT}s 2h",
    "recallMessageEnable": "true",
    "transactionCheckMax": CHECKS,
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 20,
}
# Nothing is asked before the end, and all op records are left to be read. 5.5.0 has a last round when it stops.
NO_CHECKS: dict[str, Any] = {"transactionCheckInterval": 600_000, "transactionTimeOut": 600_000}
# The first questions are asked when both brokers have booted and know whom to ask. 5.5.0 writes down what was answered
# before it asks again.
CHECKED: dict[str, Any] = {
    "transactionCheckInterval": 3000,
    "transactionTimeOut": 50_000,
    "transactionOpBatchInterval": 100,
}
# What depends on when a broker came to it, and on where its log ended then. Only ours connects all copies of a half
# message with the first (docs/decisions/0006), and only Apache's tells the producer how it stored the copy.
OF_THE_MOMENT = {"TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "TRAN_PREPARED_QUEUE_OFFSET", "WAIT"}
# What ours leaves in a committed message, as 4.9 does, and 5.5.0 does not (docs/spec/broker.md 5.2).
LEFT_BY_49 = {"REAL_TOPIC", "REAL_QID"}


# What is in each topic in the end.
CAME = {
    TOPIC: [
        "dead at once",
        "half, committed",
        "half, to be committed",
        "level over the boot",
        "level over the stop",
        "timer over the boot",
        "timer over the stop",
        "tried again over the boot",
        "tried again over the stop",
    ],
    RETRIES: ["tried again over the boot", "tried again over the stop"],
    DEAD: ["dead at once"],
    GIVEN_UP: ["half, asked about once more", "half, asked about too often", "half, never decided"],
}

# Of this one 5.5.0 counts each time that it was passed over, and gives it up before anybody was asked: a known
# difference (docs/spec/broker.md 5.3).
IMMUNE = "half, immune"


class Past:
    """Requests to the broker that is stopped later, and what they leave behind."""

    def __init__(self, connection: wire.Connection) -> None:
        self._connection = connection
        self._sent = 0

    def send(self, body: str, **properties: object) -> wire.Answer:
        self._sent += 1
        all_properties = {"UNIQ_KEY": f"{int(time.time() * 1000):X}{self._sent:08X}", "TAGS": "A", "KEYS": body}
        all_properties |= {name: str(value) for name, value in properties.items()}
        answer = self._connection.ask(
            RequestCode.SEND_MESSAGE,
            body.encode(),
            producerGroup=PAYERS,
            topic=TOPIC,
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            queueId=0,
            sysFlag=4 if "TRAN_MSG" in properties else 0,
            bornTimestamp=int(1000 * time.time()),
            flag=FLAG,
            properties="\x02".join(f"{name}\x01{value}" for name, value in all_properties.items()),
        )
        assert answer.code == 0, answer
        return answer

    def timer(self, body: str, seconds: float) -> wire.Answer:
        return self.send(body, TIMER_DELIVER_MS=int(1000 * (time.time() + seconds)))

    def half(self, body: str, **properties: object) -> wire.Answer:
        return self.send(body, TRAN_MSG="true", PGROUP=PAYERS, **properties)

    def end(self, half: wire.Answer, fate: int) -> None:
        answer = self._connection.ask(
            RequestCode.END_TRANSACTION,
            producerGroup=PAYERS,
            tranStateTableOffset=half.ext["queueOffset"],
            commitLogOffset=decode_offset_message_id(half.ext["msgId"])[1],
            commitOrRollback=fate,
            fromTransactionCheck="false",
            msgId=half.ext["msgId"],
            topic=TOPIC,
        )
        assert answer.code == 0, answer

    def send_back(self, sent: wire.Answer, level: int) -> None:
        answer = self._connection.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            offset=decode_offset_message_id(sent.ext["msgId"])[1],
            group=READERS,
            delayLevel=level,
            originMsgId=sent.ext["msgId"],
            originTopic=TOPIC,
            unitMode="false",
            maxReconsumeTimes=16,
        )
        assert answer.code == 0, answer

    def recall(self, sent: wire.Answer) -> None:
        answer = self._connection.ask(
            RequestCode.RECALL_MESSAGE, producerGroup=PAYERS, topic=TOPIC, recallHandle=sent.ext["recallHandle"]
        )
        assert answer.code == 0, answer

    def ended(self) -> int:
        """How many transactions have op records."""
        answer = self._connection.ask(
            RequestCode.PULL_MESSAGE,
            consumerGroup=READERS,
            topic=OPS,
            queueId=0,
            queueOffset=0,
            maxMsgNums=32,
            sysFlag=SUBSCRIPTION,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subVersion=0,
            subscription="*",
            expressionType="TAG",
        )
        records = decode_records(answer.body) if answer.code == 0 else []
        return sum(len(record.body.decode().strip(",").split(",")) for record in records)


def leave_all_kinds(connection: wire.Connection) -> None:
    """All that can wait. A body says what is to become of it."""
    past = Past(connection)
    past.send("level over the stop", DELAY=LEVEL_OVER_THE_STOP)
    past.send("level over the boot", DELAY=LEVEL_OVER_THE_BOOT)
    past.send("level, not yet", DELAY=LEVEL_FAR)
    past.timer("timer over the stop", OVER_THE_STOP)
    past.timer("timer over the boot", OVER_THE_BOOT)
    past.timer("timer, not yet", 2 * 24 * 3600)
    past.recall(past.timer("timer, recalled", OVER_THE_BOOT))
    past.send_back(past.send("dead at once"), -1)
    past.send_back(past.send("tried again over the stop"), LEVEL_OVER_THE_STOP)
    past.send_back(past.send("tried again over the boot"), LEVEL_OVER_THE_BOOT)
    past.half("half, to be committed")
    past.end(past.half("half, committed"), COMMIT)
    past.half("half, to be rolled back")
    past.end(past.half("half, rolled back"), ROLLBACK)
    past.half("half, never decided")
    past.half("half, asked about once more", TRANSACTION_CHECK_TIMES=CHECKS - 1)
    past.half("half, asked about too often", TRANSACTION_CHECK_TIMES=CHECKS)
    past.half(IMMUNE, CHECK_IMMUNITY_TIME_IN_SECONDS=3600)
    wait_until(lambda: past.ended() == 2, OPS_SECONDS, "both ends are written down")


class Witness(RemotingClient):
    """A producer and a consumer of one broker. They remember what they were asked and tell what they see."""

    def __init__(self, address: str) -> None:
        super().__init__(processors={RequestCode.CHECK_TRANSACTION_STATE: self._asked})
        self._address = address
        self._answers: set[asyncio.Task[None]] = set()
        self.asked: list[MessageRecord] = []

    async def join(self) -> None:
        data = HeartbeatData(client_id="witness", producer_data_set=[ProducerData(group_name=PAYERS)])
        reply = await self.invoke(self._address, Command.request(RequestCode.HEART_BEAT, None, data.encode()), PATIENCE)
        assert reply.code == ResponseCode.SUCCESS, reply

    def _asked(self, connection: Connection, request: Command) -> None:
        header = request.header(CheckTransactionState)
        half = decode_record(request.body_bytes)
        self.asked.append(half)
        fate = {b"half, to be committed": COMMIT, b"half, to be rolled back": ROLLBACK}.get(half.body)
        if fate is not None:
            task = asyncio.create_task(self._answer(header, fate))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, asked: CheckTransactionState, fate: int) -> None:
        header = EndTransaction(
            PAYERS, asked.tran_state_table_offset, asked.commit_log_offset, fate, asked.msg_id or "", True
        )
        await self.oneway(self._address, Command.request(RequestCode.END_TRANSACTION, header), PATIENCE)

    async def messages(self, topic: str) -> list[MessageRecord]:
        """All that consumers of a topic's first queue get."""
        found: list[MessageRecord] = []
        while True:
            header = PullMessage(READERS, topic, 0, len(found), 32, SUBSCRIPTION, 0, 0, 0, subscription="*")
            reply = await self.invoke(self._address, Command.request(RequestCode.PULL_MESSAGE, header), PATIENCE)
            records = decode_records(reply.body_bytes) if reply.code == ResponseCode.SUCCESS else []
            if not records:
                return found
            found += records

    async def seen(self) -> dict[str, dict[str, Any]]:
        """By topic: of every message what both makes must agree on, by its body."""
        topics = {topic: await self.messages(topic) for topic in (TOPIC, RETRIES, DEAD, GIVEN_UP)}
        return {
            topic: {body: facts(record) for record in records if (body := record.body.decode()) != IMMUNE}
            for topic, records in topics.items()
        }

    async def bodies(self, topic: str) -> list[str]:
        return sorted(record.body.decode() for record in await self.messages(topic))


def facts(record: MessageRecord) -> dict[str, Any]:
    """All that both makes must agree on."""
    properties = props.parse(props.decode(record.properties))
    ignored = OF_THE_MOMENT | (LEFT_BY_49 if record.sys_flag == COMMIT else set())
    return {
        "queue": record.queue_id,
        # Copies of half messages lose it with Apache.
        "flag": None if "TRANSACTION_CHECK_TIMES" in properties else record.flag,
        "sys_flag": record.sys_flag,
        "times": record.reconsume_times,
        "born": record.born_timestamp,
        "properties": {name: value for name, value in properties.items() if name not in ignored},
    }


class Heir:
    """A broker of one make with a copy of the store."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.address = f"127.0.0.1:{port}"


def left_behind(home: Path, namesrv: str, *, kill: bool) -> float:
    """Let Apache's broker begin everything and end; when the delays began."""
    broker = Broker("5.5.0", home, namesrv, name="shared", **SETTINGS, **NO_CHECKS)
    try:
        broker.wait_until_booted()
        with wire.Connection(broker.address) as connection:
            wire.create_topic(connection, TOPIC, 1)
            began = time.monotonic()
            leave_all_kinds(connection)
        if not kill:
            broker.process.terminate()
            broker.process.wait(STOP_SECONDS)
    finally:
        broker.process.kill()
    assert (home / "store" / "abort").exists() == kill
    return began


@contextlib.contextmanager
def heirs(home: Path, *, kill: bool) -> Iterator[tuple[Heir, Heir, float]]:
    """Ours and Apache's, each with a copy, and when the delays began."""
    (home / "before").mkdir()
    with NameServer(OURS, home / "namesrv") as namesrv:
        began = left_behind(home / "before", namesrv.address, kill=kill)
        for make in ("ours", "apache"):
            (home / make).mkdir()
            shutil.copytree(home / "before" / "store", home / make / "store")
        apache = Broker("5.5.0", home / "apache", namesrv.address, name="theirs", **SETTINGS, **CHECKED)
        port = free_port()
        # With the settings of Apache's, but for what is its own.
        store = home / "ours" / "store"
        own = {"brokerName": "ours", "listenPort": port, "drainSeconds": 1}
        own |= {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
        ours = Process(
            "pyromq",
            [
                *(sys.executable, "-m", "pyromq.cli.main", "broker", "-c", str(home / "apache" / "broker.conf")),
                *(f"{key}={value}" for key, value in own.items()),
            ],
            log=home / "ours" / "pyromq.out",
            env=environment(home / "ours"),
        )
        try:
            ours.wait_for("boot success", BOOT_SECONDS)
            apache.wait_until_booted()
            yield Heir(ours, port), Heir(apache.process, apache.port), began
        finally:
            stop_all((ours, apache.process))


@pytest.mark.usefixtures("java_packages")
async def test_all_that_waited_has_the_fate_that_apache_gives_it(tmp_path: Path) -> None:
    with heirs(tmp_path, kill=False) as (ours, theirs, began):
        await assert_same_fates(ours, theirs, began)


@pytest.mark.usefixtures("java_packages")
async def test_so_has_all_that_a_killed_broker_left(tmp_path: Path) -> None:
    with heirs(tmp_path, kill=True) as (ours, theirs, began):
        await assert_same_fates(ours, theirs, began)


async def assert_same_fates(ours: Heir, theirs: Heir, began: float) -> None:
    async with Witness(ours.address) as of_ours, Witness(theirs.address) as of_theirs:
        await of_ours.join()
        await of_theirs.join()
        # Nothing tells that no more will come, so this waits until everything would have.
        await asyncio.sleep(began + FATES - time.monotonic())
        for topic, bodies in CAME.items():
            assert await of_ours.bodies(topic) == bodies
            assert {record.flag for record in await of_ours.messages(topic)} == {FLAG}
            known = [IMMUNE] if topic == GIVEN_UP else []
            assert await of_theirs.bodies(topic) == sorted(bodies + known)
        assert await of_ours.seen() == await of_theirs.seen()
        asked = Counter(half.body.decode() for half in of_ours.asked)
        assert asked == {
            "half, to be committed": 1,
            "half, to be rolled back": 1,
            "half, never decided": CHECKS,
            "half, asked about once more": 1,
        }
        assert asked == Counter(half.body.decode() for half in of_theirs.asked)
        assert {half.body: facts(half) for half in of_ours.asked} == {
            half.body: facts(half) for half in of_theirs.asked
        }
