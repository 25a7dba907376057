"""How the line of replication is protected: `haTlsEnable` and `haSecret`, which are ours.

Without either everything is as RocketMQ's brokers expect it. A master that has a certificate takes TLS from slaves in
any case, so that it can be switched on broker by broker, slaves first.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from typing import TYPE_CHECKING, Any, TypeVar

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.remoting import TlsConfig
from pyromq.remoting.certificates import client_files, server_files, throw_away
from pyromq.remoting.listening import first_byte
from pyromq.remoting.tls import HANDSHAKE

from .lines import PlainLine, TlsLine
from .proof import HELLO_SIZE, MAGIC, PROOF_SIZE, MasterProof, NotProven, SlaveProof, refusal

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from pyromq.remoting.certificates import FollowedFiles, Shown

    from .config import ReplicationConfig
    from .lines import Line

    Feed = TypeVar("Feed", bound=asyncio.BaseProtocol)

_PATIENCE = 10.0  # seconds for handshake and proof, once a slave has said something


class LineProtection:
    """What a broker asks of the other end, as master and as slave. `certificates` are those of its port for clients."""

    def __init__(
        self,
        config: Callable[[], ReplicationConfig] | None = None,
        tls: TlsConfig | None = None,
        certificates: FollowedFiles | None = None,
    ) -> None:
        self._config = config
        tls = tls or TlsConfig()
        self._tls = tls
        self._served = certificates or server_files(tls)
        self._own: Shown | None = None
        self._client = client_files(tls)

    def load(self, *, may_lead: bool) -> None:
        """Read the certificates. Blocking. ConfigError if one is missing that is needed, or cannot be used."""
        if not self.wants_tls:
            return
        self._client.load()
        if may_lead and self._served.context is None:
            if not self._tls.test_mode:
                raise ConfigError("haTlsEnable needs a certificate: set tls.server.certPath and tls.server.keyPath")
            self._own = throw_away(self._tls)

    @property
    def wants_tls(self) -> bool:
        return self._config is not None and self._config().ha_tls

    @property
    def secret(self) -> str:
        return "" if self._config is None else self._config().ha_secret

    def described(self) -> str:
        """What this broker does as a slave, for 906."""
        return "+".join(word for word, is_on in (("tls", self.wants_tls), ("secret", bool(self.secret))) if is_on)

    def objection(self, described: str | None) -> str | None:
        """Why a slave with such a line cannot follow; None also if it did not say. It is said on both sides."""
        if described is None:
            return None
        words = described.split("+")
        if self.wants_tls and "tls" not in words:
            return "the master takes slaves by TLS only; set haTlsEnable=true on the slave"
        if self.secret and "secret" not in words:
            return "the slave does not prove that it knows haSecret; set the same haSecret there"
        return None

    # As master

    @property
    def _shown(self) -> Shown:
        return self._own or self._served.current

    @property
    def is_open(self) -> bool:
        """Whether slaves are taken as they come: there is nothing to look at."""
        return not (self.wants_tls or self.secret or self._shown.context)

    async def admit(self, sock: socket.socket, patience: float) -> Line:
        """Make a line of a connection, once its slave has proven what it must. The socket is closed if it does not.

        `patience` is for its first byte, in seconds. NotProven says why it is refused; OSError and TimeoutError that
        it is gone.
        """
        line: Line | None = None
        try:
            async with asyncio.timeout(patience):
                is_tls = await first_byte(sock) == HANDSHAKE
            shown = self._shown
            if is_tls and shown.context is None:
                raise NotProven("the slave speaks TLS, and this master has no certificate; set tls.server.certPath")
            if not is_tls and self.wants_tls:
                raise NotProven("the slave speaks plain text; set haTlsEnable=true there")
            async with asyncio.timeout(_PATIENCE):
                if is_tls and shown.context is not None:
                    tls = line = TlsLine(sock, shown.context)
                    await _hands_shaken(tls)
                else:
                    line = PlainLine(sock)
                if self.secret:
                    await _proven(line, MasterProof(self.secret, shown.fingerprint if is_tls else b""))
        except BaseException as exc:
            (sock if line is None else line).close()
            if isinstance(exc, ssl.SSLError):
                raise NotProven(f"the TLS handshake failed: {exc.reason or exc}") from exc
            raise
        return line

    # As slave

    async def connect(self, feed: Callable[[], Feed], host: str, port: int) -> tuple[asyncio.Transport, Feed]:
        """Connect to a master, and let `feed` take over once both have proven what they must. NotProven, OSError."""
        loop = asyncio.get_running_loop()
        context = None
        if self.wants_tls:
            await asyncio.to_thread(self._client.renew)
            context = self._client.context
        name = host if context is not None else None
        if not self.secret:
            with _explained(is_tls=context is not None):
                return await loop.create_connection(feed, host, port, ssl=context, server_hostname=name)
        with _explained(is_tls=context is not None):
            transport, proving = await loop.create_connection(
                lambda: _Proving(self.secret), host, port, ssl=context, server_hostname=name
            )
        try:
            await proving.ended
            protocol = feed()
            transport.pause_reading()  # uvloop reads for a buffered protocol in another way, which it begins with
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            transport.resume_reading()
        except BaseException:
            transport.abort()
            raise
        return transport, protocol


OPEN = LineProtection()


class _Proving(asyncio.Protocol):
    """The slave's proof. `ended` fails with the reason."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._proof: SlaveProof
        self._transport: asyncio.Transport
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport
        encrypted: Any = transport.get_extra_info("ssl_object")
        shown = b"" if encrypted is None else hashlib.sha256(encrypted.getpeercert(binary_form=True)).digest()
        self._proof = SlaveProof(self._secret, shown)
        self._transport.write(self._proof.hello())

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        try:
            answer = self._proof.feed(data)
        except RemoteProtocolError as exc:
            self.ended.set_exception(exc)
            return
        if answer:
            self._transport.write(answer)
        if self._proof.is_done:
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(NotProven("it closed the connection instead of proving that it knows haSecret"))


async def _hands_shaken(line: TlsLine) -> None:
    while (writes := line.shake_hands()) is not None:
        await _ready(line, writes=writes)


async def _proven(line: Line, proof: MasterProof) -> None:
    try:
        hello = await _read(line, 1)
        if hello == MAGIC[:1]:  # another says less, and waits for an answer
            hello += await _read(line, HELLO_SIZE - 1)
        await _write(line, proof.challenge(hello))
        await _write(line, proof.checked(await _read(line, PROOF_SIZE)))
    except NotProven as exc:
        with contextlib.suppress(OSError):
            line.send(refusal(str(exc)))
        raise


async def _read(line: Line, size: int) -> bytes:
    """Exactly so many bytes: what follows them is not for us."""
    data = b""
    while len(data) < size:
        try:
            more = line.recv(size - len(data))
        except BlockingIOError:
            await _ready(line)
            continue
        if not more:
            raise ConnectionResetError("closed by the slave")
        data += more
    return data


async def _write(line: Line, data: bytes) -> None:
    while data:
        try:
            data = data[line.send(data) :]
        except BlockingIOError:
            await _ready(line, writes=True)


async def _ready(line: Line, *, writes: bool = False) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if writes else (loop.add_reader, loop.remove_reader)
    add(line.fileno(), _wake, ready)
    try:
        await ready
    finally:
        remove(line.fileno())


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@contextlib.contextmanager
def _explained(*, is_tls: bool) -> Iterator[None]:
    """Say what a failed handshake may be due to."""
    try:
        yield
    except ssl.SSLCertVerificationError as exc:
        raise NotProven(f"its certificate is not trusted: {exc.verify_message}") from exc
    except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as exc:
        if not is_tls:
            raise
        raise NotProven("it does not speak TLS here; does it have a certificate (tls.server.certPath)?") from exc
