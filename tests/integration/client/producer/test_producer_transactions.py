"""Transactions, against a mock broker; with a real one: test_transactions_with_broker.py."""

from __future__ import annotations

import asyncio
import copy
import threading

import pytest
from tests.integration.client.producer.mock_kit import HOST, MockBroker, MockCluster, until

from pyromq.client.client import Client
from pyromq.client.hooks import Hook
from pyromq.client.producer.send_result import SendStatus, TxState
from pyromq.client.producer.transactions import TransactionProducer
from pyromq.errors import SendFailed, StateError
from pyromq.protocol import properties as props
from pyromq.protocol.bodies import HeartbeatData
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import CheckTransactionState, EndTransaction
from pyromq.protocol.ids import decode_offset_message_id
from pyromq.protocol.message import Message, MessageRecord, encode_record


class HalfBroker(MockBroker):
    """Keeps half messages until they are decided; `check` asks a producer of the group about one of them."""

    def __init__(self, name="a"):
        self.ends = []
        self.members = {}
        super().__init__(name, {RequestCode.END_TRANSACTION: self._end, RequestCode.HEART_BEAT: self._heartbeat})

    def visible(self):
        """The ids of the messages that were committed."""
        return {header.msg_id for header, _ in self.ends if header.commit_or_rollback == 8}

    async def check(self, client_id, number=0):
        """Ask about the half message with that number, as broker.md 5.4 has it."""
        header, request = self.headers[number], self.sends[number]
        record = MessageRecord(
            header.topic,
            request.body_bytes,
            props.encode(header.properties),
            header.queue_id,
            queue_offset=number,
            physical_offset=5000,
            sys_flag=header.sys_flag,
            born_host=HOST,
            store_host=HOST,
        )
        asked = CheckTransactionState(
            tran_state_table_offset=77, commit_log_offset=5000, transaction_id="TX", msg_id="TX"
        )
        command = Command.request(RequestCode.CHECK_TRANSACTION_STATE, asked, encode_record(record))
        await self.members[client_id].oneway(command)

    def _end(self, _, request):
        self.ends.append((request.header(EndTransaction), request))

    def _heartbeat(self, connection, request):
        self.members[HeartbeatData.decode(request.body_bytes).client_id] = connection
        return request.reply()


@pytest.fixture
async def halves():
    async with MockCluster(HalfBroker(), queues=2) as cluster:
        yield cluster


@pytest.fixture
def broker(halves):
    return halves.brokers["a"]


def producer_of(cluster, check=lambda message: TxState.UNKNOWN, **settings):
    return TransactionProducer("payers", namesrv=cluster.namesrv, check=check, **settings)


MESSAGE = Message("paid", b"100", tags="T", keys=["k"], delay_level=3)


@pytest.mark.scenario("client 22")
@pytest.mark.parametrize(("state", "code"), [(TxState.COMMIT, 8), (TxState.ROLLBACK, 12), (TxState.UNKNOWN, 0)])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_what_the_local_transaction_says_is_told_to_the_broker(halves, broker, state, code, plain):
    ran = []

    def execute(message):
        ran.append((message, threading.current_thread() is threading.main_thread()))
        return state

    async def execute_async(message):
        return execute(message)

    before = copy.deepcopy(MESSAGE)
    async with producer_of(halves) as producer:
        result = await producer.send_in_transaction(MESSAGE, execute if plain else execute_async)
        await until(lambda: broker.ends)
    assert before == MESSAGE
    assert (result.state, result.status) == (state, SendStatus.SEND_OK)
    ((message, on_loop),) = ran
    assert on_loop is not plain
    assert (message.body, message.id, message.transaction_id) == (b"100", result.id, result.id)
    sent = broker.properties()
    assert (sent[props.TRAN_MSG], sent[props.PGROUP], sent[props.TAGS]) == ("true", "payers", "T")
    assert props.DELAY not in sent
    assert broker.headers[0].sys_flag == 4
    ((header, request),) = broker.ends
    assert request.is_oneway
    assert (header.producer_group, header.topic, header.commit_or_rollback) == ("payers", "paid", code)
    assert header.commit_log_offset == decode_offset_message_id(result.offset_id).physical_offset
    assert (header.tran_state_table_offset, header.msg_id) == (result.offset, result.id)
    assert not header.from_transaction_check


@pytest.mark.scenario("client 22")
async def test_a_local_transaction_that_raises_is_decided_by_the_check(halves, broker):
    asked = []

    async def check(message):
        asked.append((message.id, message.body, message.topic))
        return TxState.COMMIT

    def execute(message):
        raise ValueError("card refused")

    async with producer_of(halves, check) as producer:
        result = await producer.send_in_transaction(MESSAGE, execute)
        assert result.state is TxState.UNKNOWN
        await until(lambda: broker.ends)
        first, request = broker.ends[0]
        assert first.commit_or_rollback == 0
        assert "card refused" in request.remark
        await broker.check(producer.client.client_id)
        await until(lambda: len(broker.ends) == 2)
    assert asked == [(result.id, b"100", "paid")]
    answer, request = broker.ends[1]
    assert request.is_oneway
    assert answer.from_transaction_check
    assert (answer.commit_or_rollback, answer.commit_log_offset, answer.tran_state_table_offset) == (8, 5000, 77)
    assert (answer.transaction_id, answer.msg_id) == ("TX", result.id)
    assert broker.visible() == {result.id}


@pytest.mark.parametrize("answer", [None, "COMMIT", 8])
async def test_anything_but_a_state_leaves_it_open(halves, broker, answer):
    async with producer_of(halves) as producer:
        assert (await producer.send_in_transaction(MESSAGE, lambda message: answer)).state is TxState.UNKNOWN


@pytest.mark.scenario("client 23")
@pytest.mark.parametrize("code", [10, 11, 12])
async def test_an_unconfirmed_half_message_is_rolled_back_and_the_work_not_done(halves, broker, code):
    broker.always = code
    ran: list[Message] = []

    def execute(message):
        ran.append(message)
        return TxState.COMMIT

    async with producer_of(halves) as producer:
        result = await producer.send_in_transaction(MESSAGE, execute)
        assert (result.state, ran) == (TxState.ROLLBACK, [])
        with pytest.raises(SendFailed, match="rolled back") as caught:
            async with producer.transaction(MESSAGE):
                pytest.fail("the block must not run")
        assert caught.value.code == code
        await until(lambda: len(broker.ends) == 2)
    assert [header.commit_or_rollback for header, _ in broker.ends] == [12, 12]


@pytest.mark.scenario("client 24")
async def test_another_member_of_the_group_answers_for_one_that_died(halves, broker):
    async with producer_of(halves) as first:
        await first.send_in_transaction(MESSAGE, lambda message: TxState.UNKNOWN)
    async with producer_of(halves, lambda message: TxState.COMMIT) as second:
        await second.send("other", b"x")  # so that the broker knows it
        await until(lambda: second.client.client_id in broker.members)
        await broker.check(second.client.client_id)
        await until(broker.visible)
    assert broker.ends[-1][0].from_transaction_check


async def test_a_check_that_raises_leaves_it_open_and_the_next_one_is_answered(halves, broker):
    answers = [ValueError("database is away"), TxState.ROLLBACK]

    async def check(message):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with producer_of(halves, check) as producer:
        await producer.send_in_transaction(MESSAGE, lambda message: TxState.UNKNOWN)
        for _ in range(2):
            await broker.check(producer.client.client_id)
        await until(lambda: len(broker.ends) == 3)
    assert [header.commit_or_rollback for header, _ in broker.ends] == [0, 0, 12]
    assert "database is away" in broker.ends[1][1].remark


async def test_a_check_set_by_the_decorator_is_asked(halves, broker):
    producer = TransactionProducer("payers", namesrv=halves.namesrv)

    @producer.check
    def was_paid(message):
        return TxState.COMMIT

    async with producer:
        await producer.send_in_transaction(MESSAGE, lambda message: TxState.UNKNOWN)
        await broker.check(producer.client.client_id)
        await until(broker.visible)
    assert was_paid.__name__ == "was_paid"


async def test_more_checks_than_may_wait_are_dropped(halves, broker, caplog):
    gate = asyncio.Event()
    asked = []

    async def check(message):
        asked.append(message)
        await gate.wait()
        return TxState.COMMIT

    async with producer_of(halves, check, max_checks=2) as producer:
        await producer.send_in_transaction(MESSAGE, lambda message: TxState.UNKNOWN)
        await broker.check(producer.client.client_id)
        await until(lambda: asked)
        for _ in range(4):
            await broker.check(producer.client.client_id)
        await until(lambda: caplog.text.count("too many transaction checks") == 2)
        gate.set()
        await until(lambda: len(broker.ends) == 4)
        assert len(asked) == 3


async def test_without_a_check_there_is_no_transaction(halves):
    async with TransactionProducer("payers", namesrv=halves.namesrv) as producer:
        with pytest.raises(StateError, match="no check"):
            await producer.send_in_transaction(MESSAGE, lambda message: TxState.COMMIT)


async def test_a_half_message_that_cannot_be_stored_raises_and_runs_nothing(halves, broker):
    broker.always = 2
    async with producer_of(halves) as producer:
        with pytest.raises(SendFailed):
            await producer.send_in_transaction(MESSAGE, lambda message: pytest.fail("must not run"))
    assert broker.ends == []


async def test_a_decision_that_does_not_reach_the_broker_is_only_logged(halves, broker, caplog):
    broker.answers = [{"msgId": "not an id"}]
    async with producer_of(halves) as producer:
        result = await producer.send_in_transaction(MESSAGE, lambda message: TxState.COMMIT)
    assert result.state is TxState.COMMIT
    assert "the broker will ask" in caplog.text


# The context manager


@pytest.mark.scenario("client 22")
async def test_leaving_the_block_commits(halves, broker):
    async with producer_of(halves) as producer:
        async with producer.transaction(MESSAGE) as tx:
            assert tx.message.id == tx.id
            assert broker.ends == []
        assert tx.result.state is TxState.COMMIT
        await until(broker.visible)
        assert broker.visible() == {tx.id}


async def test_a_rolled_back_block_is_never_seen(halves, broker):
    async with producer_of(halves) as producer:
        async with producer.transaction("paid", b"100") as tx:
            tx.rollback()
        await until(lambda: broker.ends)
    assert [header.commit_or_rollback for header, _ in broker.ends] == [12]
    assert tx.result.state is TxState.ROLLBACK


@pytest.mark.parametrize(("on_error", "code"), [("unknown", 0), ("rollback", 12)])
async def test_an_error_in_the_block_is_raised_and_leaves_it_open_or_rolls_back(halves, broker, on_error, code):
    async with producer_of(halves) as producer:
        with pytest.raises(ValueError, match="mine"):
            async with producer.transaction(MESSAGE, on_error=on_error):
                raise ValueError("mine")
        await until(lambda: broker.ends)
    assert [header.commit_or_rollback for header, _ in broker.ends] == [code]


async def test_a_block_that_is_cancelled_tells_the_broker_and_stays_cancelled(halves, broker):
    async with producer_of(halves) as producer:
        entered = asyncio.Event()

        async def work():
            async with producer.transaction(MESSAGE):
                entered.set()
                await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await entered.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await until(lambda: broker.ends)
    assert broker.ends[0][0].commit_or_rollback == 0


async def test_a_transaction_has_no_id_before_it_began(halves):
    async with producer_of(halves) as producer:
        tx = producer.transaction(MESSAGE)
        with pytest.raises(StateError):
            _ = tx.id
        async with tx:
            pass
        with pytest.raises(StateError):
            await tx.__aenter__()


async def test_decisions_are_shown_to_hooks_and_traced(halves, broker):
    class Noting(Hook):
        def __init__(self):
            self.seen = []

        def end_transaction(self, context):
            self.seen.append((context.message_id, context.state, context.from_check, context.keys))

    hook = Noting()
    client = Client(halves.namesrv, hooks=[hook], trace=True)
    async with TransactionProducer("payers", client=client, check=lambda message: TxState.ROLLBACK) as producer:
        result = await producer.send_in_transaction(MESSAGE, lambda message: TxState.COMMIT)
        await broker.check(client.client_id)
        await until(lambda: len(hook.seen) == 2)
    assert hook.seen == [(result.id, TxState.COMMIT, False, "k"), (result.id, TxState.ROLLBACK, True, "k")]
    text = b"".join(request.body_bytes for request in broker.sends[1:]).decode()
    records = [record.split("\x01") for record in text.split("\x02") if record]
    assert [(record[0], record[-1]) for record in records] == [
        ("Pub", "true"),
        ("EndTransaction", "false"),
        ("EndTransaction", "true"),
    ]
    assert records[0][11] == "1"
    assert [record[-2] for record in records[1:]] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE"]
