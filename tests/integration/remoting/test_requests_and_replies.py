"""Requests and replies over real connections: matching, directions, one-way calls, header serialisations."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.remoting.bare import Listener, Peer, eventually, request

from pyromq.errors import BrokerError, RequestTimeout
from pyromq.protocol.command import ONEWAY, RESPONSE, Command, Language, SerializeType
from pyromq.remoting import TlsConfig, TlsMode, calls

if TYPE_CHECKING:
    from tests.integration.remoting.conftest import Start

    from pyromq.remoting import Connection

ECHO, FAIL, SILENT, LATER, HELD = 1, 2, 3, 4, 5
BOTH = list(SerializeType)


def echo(connection: Connection, command: Command) -> Command:
    return command.reply(0, command.remark, body=command.body)


def fail(connection: Connection, command: Command) -> Command:
    raise BrokerError("no", code=17)


async def later(connection: Connection, command: Command) -> Command:
    await asyncio.sleep(0)
    return command.reply(0, "later")


def silent(connection: Connection, command: Command) -> None:
    return None


PROCESSORS: dict[int, Any] = {ECHO: echo, FAIL: fail, LATER: later, SILENT: silent}


async def test_replies_that_come_in_another_order_reach_whoever_asked(start: Start):
    client = await start.client()
    async with Listener() as listener, asyncio.TaskGroup() as tasks:
        answers = [
            tasks.create_task(client.invoke(listener.address, Command.request(ECHO, body=b"%d" % n))) for n in range(3)
        ]
        async with await listener.accept() as peer:
            asked = await peer.read_all(3)
            for command in reversed(asked):
                await peer.send(command.reply(body=b"answer to " + command.body_bytes))
            assert [(await answer).body for answer in answers] == [b"answer to 0", b"answer to 1", b"answer to 2"]


async def test_both_sides_ask_at_once_under_the_same_number(start: Start):
    server = await start.server(PROCESSORS)
    async with await Peer.connect(server.address) as peer:
        assert (await peer.ask(request(ECHO))).code == 0
        (connection,) = server.connections
        asked = asyncio.create_task(connection.invoke(Command.request(77)))
        theirs = await peer.read()
        mine = request(ECHO, body=b"mine")
        mine.opaque = theirs.opaque
        answer = await peer.ask(mine)
        assert (answer.opaque, answer.body, answer.flag) == (theirs.opaque, b"mine", RESPONSE)
        assert not asked.done()
        await peer.send(theirs.reply(body=b"theirs"))
        assert (await asked).body == b"theirs"


async def test_a_client_serves_what_the_server_asks_over_the_same_connection(start: Start):
    def ask_back(connection: Connection, command: Command):
        async def asked() -> Command:
            answer = await connection.invoke(Command.request(ECHO, body=b"who are you?"))
            return command.reply(body=answer.body)

        return asked()

    server = await start.server({9: ask_back})
    client = await start.client({ECHO: lambda _, asked: asked.reply(body=b"a client, asked " + asked.body_bytes)})
    assert (await client.invoke(server.address, Command.request(9))).body == b"a client, asked who are you?"


async def test_a_reply_that_nobody_waits_for_is_dropped(start: Start):
    client = await start.client()
    async with Listener() as listener:
        asked = asyncio.create_task(client.invoke(listener.address, Command.request(ECHO)))
        async with await listener.accept() as peer:
            command = await peer.read()
            stray = command.reply(99)
            stray.opaque = command.opaque + 1000
            await peer.send(stray, command.reply(0, "first"), command.reply(0, "again"))
            assert (await asked).remark == "first"
            asked = asyncio.create_task(client.invoke(listener.address, Command.request(ECHO)))
            await peer.send((await peer.read()).reply(0, "the next"))
            assert (await asked).remark == "the next"


async def test_numbers_wrap_around_to_negative_ones(start: Start, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calls, "_numbers", itertools.count(2**31 - 2))
    server = await start.server({ECHO: lambda _, asked: asked.reply(0, str(asked.opaque))})
    client = await start.client()
    for serialize in BOTH:
        answers = [await client.invoke(server.address, Command.request(ECHO, serialize=serialize)) for _ in range(2)]
        numbers = [int(answer.remark or "") for answer in answers]
        assert numbers == [answer.opaque for answer in answers]
        if serialize is SerializeType.JSON:
            assert numbers == [2**31 - 2, 2**31 - 1]
        else:
            assert numbers == [-(2**31), -(2**31) + 1]


async def test_a_command_may_be_sent_to_several_peers_at_once(start: Start):
    """Each sending has its own number; one that is given up does not take the others along."""
    client = await start.client()
    command = Command.request(ECHO)
    async with Listener() as listener:
        sendings = [asyncio.create_task(client.invoke(listener.address, command)) for _ in range(3)]
        async with await listener.accept() as peer:
            asked = await peer.read_all(3)
            assert len({each.opaque for each in asked}) == 3
            sendings[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await sendings[0]
            (connection,) = client.endpoint.connections
            assert connection.calls_under_way == 2
            for n, each in enumerate(asked):
                await peer.send(each.reply(body=b"%d" % n))
            assert [(await sending).body for sending in sendings[1:]] == [b"1", b"2"]


async def test_a_server_handles_the_requests_of_one_connection_at_the_same_time(start: Start):
    go = asyncio.Event()

    async def held(connection: Connection, command: Command) -> Command:
        await go.wait()
        return command.reply(0, "held")

    server = await start.server({**PROCESSORS, HELD: held})
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(HELD), request(ECHO))
        assert (await peer.read()).remark is None
        go.set()
        assert (await peer.read()).remark == "held"


async def test_replies_made_at_once_keep_the_order_of_their_requests(start: Start):
    server = await start.server(PROCESSORS)
    async with await Peer.connect(server.address) as peer:
        asked = [request(ECHO, body=b"%d" % n) for n in range(100)]
        await peer.send(*asked)
        assert [each.opaque for each in await peer.read_all(100)] == [each.opaque for each in asked]


@pytest.mark.parametrize("serialize", BOTH)
@pytest.mark.parametrize("code", [ECHO, FAIL, SILENT, LATER, 999])
async def test_a_oneway_request_is_never_answered(start: Start, code: int, serialize: SerializeType):
    server = await start.server(PROCESSORS)
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(code, oneway=True, serialize=serialize))
        after = request(LATER)
        assert (await peer.ask(after)).opaque == after.opaque


async def test_a_oneway_request_that_a_hook_refuses_is_not_answered_either(start: Start):
    class Refusing:
        def before_request(self, peer: str, request: Command) -> None:
            if request.flag & ONEWAY:
                raise BrokerError("not you", code=16)

        def after_response(self, peer: str, request: Command, response: Command | None) -> None: ...

    server = await start.server(PROCESSORS, {"hooks": [Refusing()]})
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(ECHO, oneway=True))
        after = request(ECHO)
        assert (await peer.ask(after)).opaque == after.opaque


async def test_a_oneway_request_above_the_limit_is_not_answered_either(start: Start):
    never = asyncio.Event()

    async def held(connection: Connection, command: Command) -> Command:
        await never.wait()
        return command.reply()

    server = await start.server({**PROCESSORS, HELD: held}, max_running_requests=1)
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(HELD), request(HELD, oneway=True))
        after = request(ECHO)
        assert (await peer.ask(after)).opaque == after.opaque


async def test_oneway_requests_carry_the_flag_and_a_number_of_their_own(start: Start):
    """A peer may answer one all the same; that answer must not look like the one to another request."""
    client = await start.client()
    async with Listener() as listener:
        for _ in range(2):
            await client.oneway(listener.address, Command.request(40))
        async with await listener.accept() as peer:
            other, told = await peer.read_all(2)
            assert other.flag == told.flag == ONEWAY
            assert other.opaque != told.opaque
            asked = asyncio.create_task(client.invoke(listener.address, Command.request(ECHO)))
            question = await peer.read()
            assert question.opaque != told.opaque
            await peer.send(told.reply(2, "busy"), question.reply(0, "fine"))
            assert (await asked).remark == "fine"


@pytest.mark.parametrize("serialize", BOTH)
async def test_every_kind_of_reply_is_written_as_its_request_was(start: Start, serialize: SerializeType):
    deferred: list[tuple[Connection, Command]] = []
    never = asyncio.Event()

    async def held(connection: Connection, command: Command) -> Command:
        await never.wait()
        return command.reply()

    async def fail_later(connection: Connection, command: Command) -> Command:
        raise ValueError("later")

    def crash(connection: Connection, command: Command) -> Command:
        raise ValueError("now")

    def defer(connection: Connection, command: Command) -> None:
        deferred.append((connection, command))

    def relay(connection: Connection, command: Command) -> Command:
        # As it came from elsewhere: another number, the other serialisation.
        return Command(0, Language.GO, 317, -5, 0, "relayed", None, None, SerializeType(1 - serialize))

    def too_large(connection: Connection, command: Command) -> Command:
        return command.reply(body=bytes(2000))

    processors = {
        **PROCESSORS,
        10: fail_later,
        11: crash,
        12: defer,
        13: relay,
        14: too_large,
        HELD: held,
    }
    server = await start.server(processors, max_running_requests=1, max_frame=1024)
    async with await Peer.connect(server.address) as peer:
        expected = {ECHO: 0, FAIL: 17, LATER: 0, 999: 3, 10: 1, 11: 1, 12: 0, 13: 0, 14: 1}
        for code, answer in expected.items():
            asked = request(code, serialize=serialize)
            await peer.send(asked)
            if code == 12:
                await eventually(lambda: deferred)
                deferred[0][0].reply(deferred[0][1], deferred[0][1].reply(0, "deferred"))
            reply = await peer.read()
            assert (reply.code, reply.serialize, reply.opaque) == (answer, serialize, asked.opaque), code
            assert reply.flag == RESPONSE
        await peer.send(request(HELD, serialize=serialize))
        overloaded = await peer.ask(request(LATER, serialize=serialize))
        assert (overloaded.code, overloaded.serialize) == (2, serialize)


async def test_the_server_asks_in_json_before_the_peer_has_said_anything(start: Start):
    server = await start.server(PROCESSORS, {"tls": TlsConfig(mode=TlsMode.DISABLED)})
    async with await Peer.connect(server.address) as peer:
        await eventually(lambda: server.connections)
        (connection,) = server.connections
        await connection.oneway(Command.request(40, serialize=SerializeType.ROCKETMQ))
        assert (await peer.read()).serialize is SerializeType.JSON


async def test_the_server_follows_each_change_of_the_peers_serialisation(start: Start):
    server = await start.server(PROCESSORS)
    async with await Peer.connect(server.address) as peer:
        for serialize in (SerializeType.ROCKETMQ, SerializeType.JSON, SerializeType.ROCKETMQ):
            await peer.ask(request(ECHO, serialize=serialize))
            (connection,) = server.connections
            await connection.oneway(Command.request(40))
            assert (await peer.read()).serialize is serialize
            asked = asyncio.create_task(connection.invoke(Command.request(77)))
            question = await peer.read()
            assert question.serialize is serialize
            await peer.send(question.reply())
            await asked


async def test_a_client_asks_in_the_serialisation_that_the_caller_chose(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client()
    for serialize in BOTH:
        answer = await client.invoke(server.address, Command.request(ECHO, serialize=serialize))
        assert answer.serialize is serialize


async def test_ten_thousand_tiny_requests_in_one_segment_are_all_answered(start: Start):
    server = await start.server(PROCESSORS)
    async with await Peer.connect(server.address) as peer:
        reader = asyncio.create_task(peer.read_all(10_000))
        await peer.send(*[request(ECHO, serialize=SerializeType.ROCKETMQ)] * 10_000)
        assert {each.code for each in await reader} == {0}


async def test_a_request_for_nothing_that_is_served_gets_code_3_with_the_reference_remark(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client()
    answer = await client.invoke(server.address, Command.request(4711))
    assert (answer.code, answer.remark) == (3, " request type 4711 not supported")


async def test_a_default_processor_takes_every_other_code(start: Start):
    server = await start.server({}, {"default": lambda _, asked: asked.reply(0, f"default {asked.code}")})
    client = await start.client()
    assert (await client.invoke(server.address, Command.request(4711))).remark == "default 4711"


async def test_a_processor_that_answers_nothing_leaves_the_caller_waiting(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client()
    with pytest.raises(RequestTimeout, match=r"no answer to request 3 within 0\.05 s"):
        await client.invoke(server.address, Command.request(SILENT), 0.05)


async def test_requests_are_sent_in_the_order_in_which_they_were_made_also_while_the_connection_opens(start: Start):
    seen: list[int] = []

    def note(_: object, asked: Command) -> Command:
        seen.append(int(asked.body_bytes))
        return asked.reply()

    server = await start.server({ECHO: note})
    client = await start.client()
    asking = []
    for number in range(100):
        # One in each turn of the loop: some while it opens, some when it is open and others still wait for it.
        asking.append(asyncio.create_task(client.invoke(server.address, Command(ECHO, body=b"%d" % number))))
        await asyncio.sleep(0)
    await asyncio.gather(*asking)
    assert seen == list(range(100))
