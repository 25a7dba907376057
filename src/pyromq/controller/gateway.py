"""etcd v3 as JSON over HTTP: what etcd calls its gateway, and serves at the same address as gRPC.

    POST /v3/kv/txn   {"compare":[…],"success":[…],"failure":[…]}   bytes in base64, 64-bit numbers in quotes
    POST /v3/watch    {"create_request":{…}}                        answers one line of JSON after another

One member is used at a time. If it does not answer, everybody goes on to the next (docs/decisions/0008).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import aiohttp
import msgspec

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Sequence

logger = logging.getLogger(__name__)

T = TypeVar("T")


class EtcdError(Exception):
    """etcd understood and refused; nothing was changed. `code` is gRPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class EtcdUnreachable(Exception):
    """No answer, or none that says how it ended."""


# gRPC's codes that say for sure that nothing was done: a bad argument, something missing, no permission, no space, …
_REFUSALS = frozenset({3, 5, 6, 7, 8, 9, 11, 12, 16})
_UNIMPLEMENTED, _UNAUTHENTICATED = 12, 16


class Header(msgspec.Struct):
    """Which cluster answered, and its revision: a number that every change of any key counts on."""

    cluster_id: int = 0
    revision: int = 0


class KeyValue(msgspec.Struct):
    """A key, the revisions that created it and last changed it, and its value."""

    key: bytes
    create_revision: int = 0
    mod_revision: int = 0
    value: bytes = b""


class RangeReply(msgspec.Struct):
    header: Header = msgspec.field(default_factory=Header)
    kvs: list[KeyValue] = []
    more: bool = False


class _OpReply(msgspec.Struct):
    response_range: RangeReply | None = None


class TxnReply(msgspec.Struct):
    header: Header
    succeeded: bool = False
    responses: list[_OpReply] = []

    def found(self, number: int) -> KeyValue | None:
        """The key that the range at this place of the transaction found."""
        reply = self.responses[number].response_range
        return reply.kvs[0] if reply is not None and reply.kvs else None


class LeaseReply(msgspec.Struct):
    """A lease that is gone has no time left."""

    header: Header
    id: int = msgspec.field(name="ID", default=0)
    ttl: int = msgspec.field(name="TTL", default=0)


class Change(msgspec.Struct):
    kv: KeyValue
    type: str = "PUT"


class WatchReply(msgspec.Struct):
    """Changes. `compact_revision` ends the watch: what came before it is no longer known."""

    header: Header
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    events: list[Change] = []


class _Failure(msgspec.Struct):
    message: str = ""
    code: int = 0
    grpc_code: int = 0


class _Line(msgspec.Struct, Generic[T]):
    """One answer of a stream."""

    result: T | None = None
    error: _Failure | None = None


class _Token(msgspec.Struct):
    token: str = ""


def put(key: bytes, value: bytes, lease: int = 0) -> dict[str, Any]:
    return {"request_put": {"key": key, "value": value, "lease": str(lease)}}


def delete(key: bytes) -> dict[str, Any]:
    return {"request_delete_range": {"key": key}}


def get(key: bytes) -> dict[str, Any]:
    return {"request_range": {"key": key}}


def created_at(key: bytes, revision: int) -> dict[str, Any]:
    """Holds if the key was created by this revision; 0: if there is none."""
    return {"key": key, "target": "CREATE", "create_revision": str(revision)}


def changed_at(key: bytes, revision: int) -> dict[str, Any]:
    """Holds if the key was last changed by this revision; 0: if there is none."""
    return {"key": key, "target": "MOD", "mod_revision": str(revision)}


def end_of(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"


class Gateway:
    """The members of one etcd cluster. Use with `async with`."""

    def __init__(
        self, endpoints: Sequence[str], *, tls: ssl.SSLContext | None = None, user: str = "", password: str = ""
    ) -> None:
        self._endpoints = endpoints
        self._tls = tls
        self._user = user
        self._password = password
        self._token = ""
        self._turn = 0
        self._session: aiohttp.ClientSession | None = None
        self._watching: set[asyncio.Timeout] = set()

    @property
    def endpoint(self) -> str:
        """The member in use."""
        return self._endpoints[self._turn % len(self._endpoints)]

    @property
    def members(self) -> int:
        return len(self._endpoints)

    async def __aenter__(self) -> Self:
        # Deadlines are ours: some requests never end.
        connector = aiohttp.TCPConnector(ssl=self._tls if self._tls is not None else True, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def read(
        self, start: bytes, end: bytes = b"", *, revision: int = 0, limit: int = 0, timeout: float
    ) -> RangeReply:
        """The keys from `start` to `end`, or this one key, as of now or of a revision; agreed by a majority."""
        asked: dict[str, Any] = {"key": start, "revision": str(revision), "limit": str(limit)}
        if end:
            asked["range_end"] = end
        return await self._call("kv/range", asked, RangeReply, timeout)

    async def transact(
        self, compare: list[dict[str, Any]], success: list[Any], failure: list[Any], timeout: float
    ) -> TxnReply:
        asked = {"compare": compare, "success": success, "failure": failure}
        return await self._call("kv/txn", asked, TxnReply, timeout)

    async def grant(self, seconds: int, timeout: float) -> LeaseReply:
        return await self._call("lease/grant", {"TTL": str(seconds)}, LeaseReply, timeout)

    async def renew(self, lease: int, timeout: float) -> LeaseReply:
        line = await self._call("lease/keepalive", {"ID": str(lease)}, _Line[LeaseReply], timeout)
        return self._result(line, self._turn)

    async def revoke(self, lease: int, timeout: float) -> None:
        await self._call("lease/revoke", {"ID": str(lease)}, _Line[object], timeout)

    async def watch(self, start: bytes, end: bytes, revision: int, timeout: float) -> AsyncGenerator[WatchReply, None]:
        """What changes from `revision` on. Ends with EtcdUnreachable, also when another member is used from now on."""
        asked = {"create_request": {"key": start, "range_end": end, "start_revision": str(revision)}}
        turn = self._turn
        try:
            async with contextlib.AsyncExitStack() as life:
                async with asyncio.timeout(timeout):
                    response = await life.enter_async_context(await self._post("watch", asked))
                    if response.status != 200:
                        raise self._refused(response.status, await response.read(), turn)
                rest = b""
                while chunk := await self._next_chunk(response, turn):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield self._result(_decoded(line, _Line[WatchReply]), turn)
        except (TimeoutError, aiohttp.ClientError, OSError) as exc:
            raise self._left(turn, exc) from exc
        raise self._left(turn, "the watch ended")

    async def _next_chunk(self, response: aiohttp.ClientResponse, turn: int) -> bytes:
        """Bytes of a watch, or TimeoutError once another member is used."""
        if turn != self._turn:
            raise TimeoutError
        async with asyncio.timeout(None) as scope:
            self._watching.add(scope)
            try:
                return await response.content.readany()
            finally:
                self._watching.discard(scope)

    async def _call(self, path: str, asked: dict[str, Any], reply: type[T], timeout: float) -> T:
        for fresh in (False, True):
            turn = self._turn
            try:
                async with asyncio.timeout(timeout), await self._post(path, asked) as response:
                    content = await response.read()
            except (TimeoutError, aiohttp.ClientError, OSError) as exc:
                raise self._left(turn, exc) from exc
            if response.status == 200:
                return _decoded(content, reply)
            error = self._refused(response.status, content, turn)
            # A token ends after some minutes, and with the member that gave it.
            expired = isinstance(error, EtcdError) and (
                error.code == _UNAUTHENTICATED or "auth store is old" in str(error)
            )
            if fresh or not (self._user and expired):
                break
            self._token = ""
        raise error

    async def _post(self, path: str, asked: dict[str, Any]) -> Any:
        assert self._session is not None
        if self._user and not self._token:
            await self._authenticate()
        headers = {"Authorization": self._token} if self._token else {}
        return self._session.post(self._url(path), data=msgspec.json.encode(asked), headers=headers)

    async def _authenticate(self) -> None:
        assert self._session is not None
        asked = msgspec.json.encode({"name": self._user, "password": self._password})
        turn = self._turn
        async with self._session.post(self._url("auth/authenticate"), data=asked) as response:
            content = await response.read()
        if response.status != 200:
            raise self._refused(response.status, content, turn)
        self._token = _decoded(content, _Token).token

    def _url(self, path: str) -> str:
        return f"{'https' if self._tls is not None else 'http'}://{self.endpoint}/v3/{path}"

    def _result(self, line: _Line[T], turn: int) -> T:
        if line.result is not None:
            return line.result
        failure = line.error or _Failure()
        raise self._failed(failure.grpc_code or failure.code, failure.message, turn)

    def _refused(self, status: int, content: bytes, turn: int) -> EtcdError | EtcdUnreachable:
        try:
            failure = _decoded(content, _Failure)
        except EtcdUnreachable:
            if status == 404:
                return EtcdError(_UNIMPLEMENTED, "it has no HTTP gateway; start it with --enable-grpc-gateway=true")
            return self._left(turn, f"HTTP status {status}")
        return self._failed(failure.code, failure.message, turn)

    def _failed(self, code: int, message: str, turn: int) -> EtcdError | EtcdUnreachable:
        if code in _REFUSALS:
            return EtcdError(code, message)
        return self._left(turn, message)

    def _left(self, turn: int, why: BaseException | str) -> EtcdUnreachable:
        """Go on to the next member, unless somebody did so already."""
        endpoint = self._endpoints[turn % len(self._endpoints)]
        if turn == self._turn:
            self._turn += 1
            for watch in self._watching:
                watch.reschedule(asyncio.get_running_loop().time())
        return EtcdUnreachable(f"{endpoint}: {why if isinstance(why, str) else _reason(why)}")


def _reason(exc: BaseException) -> str:
    match exc:
        case aiohttp.ClientConnectorCertificateError():
            return str(exc.certificate_error)
        case aiohttp.ClientConnectorError():
            return exc.os_error.strerror or str(exc.os_error)
        case TimeoutError():
            return "no answer"
    return str(exc) or type(exc).__name__


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind, strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise EtcdUnreachable(f"an answer that is not etcd's: {exc}") from exc
