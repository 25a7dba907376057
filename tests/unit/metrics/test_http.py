"""What the pages' server takes for a request, and what it does with the rest."""

from __future__ import annotations

import asyncio

import pytest

from pyromq.errors import ConfigError
from pyromq.metrics import http
from pyromq.metrics.http import MAX_CONNECTIONS, BadRequest, HttpServer, Request, Response, parse


def head(first: str, *fields: str) -> bytes:
    return "\r\n".join([first, *fields, "", ""]).encode("latin-1")


def test_a_usual_request():
    request = parse(head("GET /metrics?name=x HTTP/1.1", "Host: localhost:5557", "Accept:  */* "))
    assert (request.method, request.path, request.keep_alive) == ("GET", "/metrics", True)
    assert request.fields == {"host": "localhost:5557", "accept": "*/*"}


@pytest.mark.parametrize(
    ("first", "fields", "keeps"),
    [
        ("GET / HTTP/1.1", ("Host: a", "Connection: close"), False),
        ("GET / HTTP/1.1", ("Host: a", "Connection: Keep-Alive"), True),
        ("GET / HTTP/1.0", (), False),
        ("HEAD / HTTP/1.0", ("Connection: keep-alive",), True),
    ],
)
def test_whether_a_connection_stays(first, fields, keeps):
    assert parse(head(first, *fields)).keep_alive is keeps


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head("GET /"), 400),
        (head("GET / HTTP/2.0", "Host: a"), 400),
        (head("GET / HTTP/1.1"), 400),  # no host
        (head("GET / HTTP/1.1", "Host: a", "Host: b"), 400),
        (head("GET / HTTP/1.1", "Host: a", " folded: x"), 400),
        (head("GET / HTTP/1.1", "Host: a", "name : x"), 400),
        (head("GET / HTTP/1.1", "Host: a", "x: \x00"), 400),
        (head("GET / HTTP/1.1", "Host: a\nX: b"), 400),
        (head("GET relative HTTP/1.1", "Host: a"), 400),
        (head("GET http://a/ HTTP/1.1", "Host: a"), 400),
        (head("GET / HTTP/1.1", "Host: a", "Content-Length: 5"), 413),
        (head("GET / HTTP/1.1", "Host: a", "Content-Length: 0", "Content-Length: 5"), 400),
        (head("GET / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"), 413),
        (head("POST / HTTP/1.1", "Host: a"), 405),
        (head("get / HTTP/1.1", "Host: a"), 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),  # TLS
        (b"\r\n\r\n", 400),
    ],
)
def test_what_is_not_served_is_refused(data, status):
    with pytest.raises(BadRequest) as refused:
        parse(data)
    assert refused.value.status == status


async def page(request: Request) -> Response:
    if request.path == "/fails":
        raise RuntimeError("boom")
    return Response.of(f"page {request.path}")


@pytest.fixture
async def server():
    async with HttpServer("127.0.0.1", 0, page) as running:
        yield running


async def asked(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_requests_on_one_connection_are_answered_in_order(server):
    two = head("GET /a HTTP/1.1", "Host: x") + head("HEAD /bb HTTP/1.1", "Host: x", "Connection: close")
    answer = await asked(server.port, two)
    first, rest = answer.split(b"page /a\n")
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 8\r\n" in first
    assert b"Connection: keep-alive" in first
    # The answer to HEAD has the length of the page, and not the page.
    assert rest.endswith(b"\r\n\r\n")
    assert b"Content-Length: 9\r\n" in rest
    assert b"Connection: close" in rest


async def test_after_a_bad_request_nothing_more_is_read(server):
    hidden = head("GET /hidden HTTP/1.1", "Host: x")
    answer = await asked(server.port, head("POST /a HTTP/1.1", "Host: x", f"Content-Length: {len(hidden)}") + hidden)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"hidden" not in answer


async def test_a_head_that_does_not_end_is_cut_off(server):
    answer = await asked(server.port, b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


async def test_a_peer_that_says_nothing_is_sent_away(monkeypatch, server):
    monkeypatch.setattr(http, "_PATIENCE", 0.01)
    assert await asked(server.port, b"GET /metr") == b""


async def test_a_page_that_fails_is_an_answer_too(server, caplog):
    answer = await asked(server.port, head("GET /fails HTTP/1.1", "Host: x", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"boom" not in answer
    assert "boom" in caplog.text


async def test_connections_are_bounded(server):
    opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_CONNECTIONS // 2)]
    try:
        assert await asked(server.port, head("GET / HTTP/1.1", "Host: x", "Connection: close")) == b""
    except ConnectionError:
        pass
    finally:
        for _, writer in opened:
            writer.close()
            await writer.wait_closed()


async def test_probes_that_only_connect_leave_no_trace(server, caplog):
    caplog.set_level("INFO")
    for _ in range(50):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.close()
        await writer.wait_closed()
    async with asyncio.timeout(10):
        await asyncio.gather(*server._tasks)
    assert caplog.text == ""


async def test_a_taken_port_is_a_clear_error(server):
    with pytest.raises(ConfigError, match=f"port {server.port} is taken"):
        async with HttpServer("127.0.0.1", server.port, page):
            pass
