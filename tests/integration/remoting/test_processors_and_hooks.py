"""What processors and hooks may do, and what the peer hears of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.remoting.bare import Peer, eventually, request

from pyromq.errors import BrokerError, LocalProtocolError, MissingField, PyroMQError, TopicNotFound
from pyromq.protocol.command import Command, SerializeType

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.integration.remoting.conftest import Start

    from pyromq.remoting import Connection

ECHO, WORK = 1, 2
BOTH = list(SerializeType)


def echo(connection: Connection, command: Command) -> Command:
    return command.reply(body=command.body)


@pytest.mark.parametrize("serialize", BOTH)
@pytest.mark.parametrize("when", ["at once", "later"])
@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (TopicNotFound("No topic orders"), 17, "No topic orders"),
        (BrokerError("strange", code=4242), 4242, "strange"),
        (MissingField("PullMessage", "queueId"), 1, "PullMessage needs the field queueId"),
        (PyroMQError("something of ours"), 1, "something of ours"),
        (ValueError("something else"), 1, "ValueError: something else"),
        (KeyError("k"), 1, "KeyError: 'k'"),
        (asyncio.CancelledError(), 1, "CancelledError: "),
        (RecursionError("deep"), 1, "RecursionError: deep"),
        (OSError(2, "No such file", "caf\udce9"), 1, None),  # text that UTF-8 cannot carry
        (ValueError("x" * 20_000), 1, None),  # more than a frame holds
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_an_error_becomes_the_answer(
    start: Start, error: BaseException, code: int, remark: str | None, when: str, serialize: SerializeType
):
    def fail(connection: Connection, command: Command) -> Awaitable[Command]:
        if when == "at once":
            raise error
        return fail_later()

    async def fail_later() -> Command:
        raise error

    server = await start.server({WORK: fail, ECHO: echo}, max_frame=16384)
    async with await Peer.connect(server.address) as peer:
        asked = request(WORK, serialize=serialize)
        answer = await peer.ask(asked)
        assert (answer.code, answer.opaque) == (code, asked.opaque)
        assert answer.remark == remark if remark is not None else answer.remark
        assert (await peer.ask(request(ECHO))).code == 0


async def test_an_error_that_nobody_foresaw_is_logged_with_its_traceback_and_others_are_not(start: Start, caplog):
    errors: list[Exception] = [ValueError("a bug"), TopicNotFound("an answer")]

    def fail(connection: Connection, command: Command) -> Command:
        raise errors.pop(0)

    server = await start.server({WORK: fail})
    async with await Peer.connect(server.address) as peer:
        await peer.ask(request(WORK))
        await peer.ask(request(WORK))
        (logged,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert logged.getMessage() == f"{peer.address}: request 2 failed"
        assert logged.exc_info


async def test_a_processor_may_return_anything_that_can_be_awaited(start: Start):
    future: asyncio.Future[Command | None] = asyncio.get_running_loop().create_future()

    class Awaitable:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return Command(0, remark="awaited")

    results: list[Any] = [future, Awaitable(), asyncio.gather(asyncio.sleep(0, Command(0, remark="gathered")))]

    server = await start.server({WORK: lambda *_: results.pop(0), ECHO: echo})
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(WORK))
        await eventually(lambda: server.endpoint.tasks)
        future.set_result(Command(0, remark="from a future"))
        assert (await peer.read()).remark == "from a future"
        assert (await peer.ask(request(WORK))).remark == "awaited"
        # A list is no reply: the peer hears of it, and the connection lives on.
        assert (await peer.ask(request(WORK))).code == 1
        assert (await peer.ask(request(ECHO))).code == 0


@pytest.mark.parametrize("nonsense", [5, "text", b"bytes", object()])
async def test_a_processor_that_returns_nonsense_is_answered_for(start: Start, nonsense: Any):
    server = await start.server({WORK: lambda *_: nonsense, ECHO: echo})
    async with await Peer.connect(server.address) as peer:
        assert (await peer.ask(request(WORK))).code == 1
        assert (await peer.ask(request(ECHO))).code == 0


async def test_an_awaitable_that_ends_with_none_is_not_answered(start: Start):
    async def nothing(connection: Connection, command: Command) -> None:
        return None

    server = await start.server({WORK: nothing, ECHO: echo})
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(WORK))
        await eventually(lambda: not server.endpoint.tasks)
        after = request(ECHO)
        assert (await peer.ask(after)).opaque == after.opaque


async def test_something_cancelled_that_a_processor_waited_for_is_an_error_not_silence(start: Start):
    future: asyncio.Future[Command | None] = asyncio.get_running_loop().create_future()
    server = await start.server({WORK: lambda *_: future})
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(WORK))
        await eventually(lambda: server.endpoint.tasks)
        future.cancel()
        answer = await peer.read()
        assert (answer.code, answer.remark) == (1, "CancelledError: ")


async def test_a_reply_may_come_long_after_its_processor_returned(start: Start):
    held: list[tuple[Connection, Command]] = []
    server = await start.server({WORK: lambda connection, command: held.append((connection, command)), ECHO: echo})
    async with await Peer.connect(server.address) as peer:
        asked = request(WORK)
        await peer.send(asked)
        assert (await peer.ask(request(ECHO))).code == 0
        ((connection, command),) = held
        connection.reply(command, command.reply(0, "at last"))
        answer = await peer.read()
        assert (answer.remark, answer.opaque) == ("at last", asked.opaque)


async def test_a_late_reply_to_a_peer_that_left_goes_nowhere(start: Start):
    held: list[tuple[Connection, Command]] = []
    server = await start.server({WORK: lambda connection, command: held.append((connection, command))})
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(WORK))
        await eventually(lambda: held)
    await eventually(lambda: not server.connections)
    ((connection, command),) = held
    connection.reply(command, command.reply(0, "too late"))
    connection.send(command.reply(0, "too late"))
    connection.close()


@pytest.mark.limit("maxRunningRequests")
async def test_too_many_running_requests_are_answered_with_system_busy(start: Start):
    go = asyncio.Event()
    begun = 0

    async def work(connection: Connection, command: Command) -> Command:
        nonlocal begun
        begun += 1
        await go.wait()
        return command.reply()

    server = await start.server({WORK: work, ECHO: echo}, max_running_requests=2)
    async with await Peer.connect(server.address) as peer, await Peer.connect(server.address) as other:
        await peer.send(request(WORK), request(WORK))
        await eventually(lambda: begun == 2)
        answer = await other.ask(request(WORK))
        assert (answer.code, answer.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")
        # What needs no waiting is served all the same.
        assert (await other.ask(request(ECHO))).code == 0
        go.set()
        assert [each.code for each in await peer.read_all(2)] == [0, 0]
        assert (await other.ask(request(WORK))).code == 0
        assert begun == 3


async def test_a_future_that_is_one_too_many_is_cancelled(start: Start):
    futures: list[asyncio.Future[Command | None]] = []

    def work(connection: Connection, command: Command) -> asyncio.Future[Command | None]:
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    server = await start.server({WORK: work}, max_running_requests=1)
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(WORK), request(WORK))
        assert (await peer.read()).code == 2
        assert [future.cancelled() for future in futures] == [False, True]
        futures[0].set_result(None)


@pytest.mark.parametrize("serialize", BOTH)
@pytest.mark.parametrize(
    "spoil",
    [
        {"body": bytes(20_000)},
        {"remark": "x" * 20_000},
        {"ext": {"k": "v" * 20_000}},
        {"remark": "\ud800"},
        {"ext": {"k": "\ud800"}},
        {"body": 5},
    ],
    ids=["body", "remark", "ext", "remark not unicode", "ext not unicode", "body is no bytes"],
)
async def test_a_reply_that_cannot_be_written_becomes_code_1(
    start: Start, spoil: dict[str, Any], serialize: SerializeType
):
    def work(connection: Connection, command: Command) -> Command:
        reply = command.reply()
        for name, value in spoil.items():
            setattr(reply, name, value)
        return reply

    server = await start.server({WORK: work, ECHO: echo}, max_frame=16384)
    async with await Peer.connect(server.address) as peer:
        asked = request(WORK, serialize=serialize)
        answer = await peer.ask(asked)
        assert (answer.code, answer.opaque, answer.serialize) == (1, asked.opaque, serialize)
        assert (answer.remark or "").startswith("reply cannot be sent: ")
        assert (await peer.ask(request(ECHO))).code == 0


class Recording:
    """A hook that writes down what it sees, and fails where it is told to."""

    def __init__(self, name: str, seen: list[str], before: Exception | None = None, after: Exception | None = None):
        self._name, self._seen, self._before, self._after = name, seen, before, after

    def before_request(self, peer: str, request: Command) -> None:
        self._seen.append(f"{self._name} before {request.code}")
        if self._before is not None:
            raise self._before

    def after_response(self, peer: str, request: Command, response: Command | None) -> None:
        assert response is not None
        self._seen.append(f"{self._name} after {request.code}: {response.code}")
        if self._after is not None:
            raise self._after


async def test_hooks_run_one_after_the_other_around_the_processor(start: Start):
    seen: list[str] = []

    async def work(connection: Connection, command: Command) -> Command:
        seen.append("work")
        return command.reply(7)

    server = await start.server({WORK: work}, {"hooks": [Recording("a", seen), Recording("b", seen)]})
    async with await Peer.connect(server.address) as peer:
        await peer.ask(request(WORK))
    assert seen == ["a before 2", "b before 2", "work", "a after 2: 7", "b after 2: 7"]


async def test_hooks_of_a_client_see_the_request_before_it_is_written_and_the_reply(start: Start):
    seen: list[str] = []

    class Adding(Recording):
        def before_request(self, peer: str, request: Command) -> None:
            super().before_request(peer, request)
            request.ext = {"added": "by a hook"}

    server = await start.server({WORK: lambda _, asked: asked.reply(0, (asked.ext or {})["added"])})
    client = await start.client(None, {"hooks": [Adding("c", seen)]})
    assert (await client.invoke(server.address, Command.request(WORK))).remark == "by a hook"
    await client.oneway(server.address, Command.request(WORK))
    assert seen == ["c before 2", "c after 2: 0", "c before 2"]


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (BrokerError("No accessKey is configured", code=16), 16, "No accessKey is configured"),
        (ValueError("a bug"), 1, "ValueError: a bug"),
    ],
    ids=["refused", "failed"],
)
async def test_what_a_hook_raises_before_a_request_is_the_answer(
    start: Start, error: Exception, code: int, remark: str
):
    seen: list[str] = []
    worked: list[Command] = []
    hooks = [Recording("a", seen), Recording("b", seen, before=error), Recording("c", seen)]
    server = await start.server({WORK: lambda _, asked: worked.append(asked)}, {"hooks": hooks})
    async with await Peer.connect(server.address) as peer:
        answer = await peer.ask(request(WORK))
        assert (answer.code, answer.remark) == (code, remark)
    assert not worked
    assert seen == ["a before 2", "b before 2"] + [f"{name} after 2: {code}" for name in "abc"]


async def test_an_error_after_a_response_is_logged_and_changes_nothing(start: Start, caplog):
    seen: list[str] = []
    hooks = [Recording("a", seen, after=ValueError("a hook's bug")), Recording("b", seen)]
    deferred: list[tuple[Connection, Command]] = []

    async def later(connection: Connection, command: Command) -> Command:
        return command.reply()

    server = await start.server({ECHO: echo, WORK: later, 3: lambda *held: deferred.append(held)}, {"hooks": hooks})
    client = await start.client(None, {"hooks": [Recording("c", seen, after=ValueError("a client's bug"))]})
    connection = await client.connection(server.address)
    for code in (ECHO, WORK):
        assert (await client.invoke(server.address, Command.request(code))).code == 0
    asking = asyncio.create_task(client.invoke(server.address, Command.request(3)))
    await eventually(lambda: deferred)
    deferred[0][0].reply(deferred[0][1], deferred[0][1].reply(0))
    assert (await asking).code == 0
    assert await client.connection(server.address) is connection
    assert seen.count("b after 1: 0") == seen.count("b after 2: 0") == seen.count("b after 3: 0") == 1
    assert caplog.text.count("ValueError: a hook's bug") == caplog.text.count("ValueError: a client's bug") == 3


async def test_a_code_that_nobody_serves_is_refused_without_asking_the_hooks(start: Start):
    seen: list[str] = []
    server = await start.server({}, {"hooks": [Recording("a", seen, before=BrokerError("no", code=16))]})
    async with await Peer.connect(server.address) as peer:
        assert (await peer.ask(request(99))).code == 3
    assert seen == []


async def test_an_error_of_a_clients_hook_before_a_request_reaches_the_caller(start: Start):
    server = await start.server({ECHO: echo})
    hook = Recording("c", [], before=LocalProtocolError("not signed"))
    client = await start.client(None, {"hooks": [hook]})
    with pytest.raises(LocalProtocolError, match="not signed"):
        await client.invoke(server.address, Command.request(ECHO))
