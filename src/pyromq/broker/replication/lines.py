"""The socket of a line of replication: plain, or within TLS. Neither ever waits: BlockingIOError is raised instead."""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK = 64 << 10  # bytes of a file that are encrypted at a time


class Line(Protocol):
    """What a master needs of a connection to a slave."""

    def fileno(self) -> int: ...

    def peer(self) -> tuple[str, int]: ...

    def has_more(self) -> bool:
        """Whether something was received that the socket does not show as readable any more."""
        ...

    def recv(self, size: int) -> bytes: ...

    def send(self, data: bytes, *, more: bool = False) -> int:
        """`more` says that further bytes follow at once. If it cannot be sent, the same has to be tried again."""
        ...

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> int:
        """Send heads and data in turn, as far as it goes now. If nothing does, the first two have to be tried again."""
        ...

    def send_file(self, descriptor: int, offset: int, count: int) -> int:
        """Send bytes of a file, as many as can be sent now. If none can, the same have to be tried again."""
        ...

    def close(self) -> None: ...


class PlainLine:
    """Bytes of files go from the page cache to the socket by `sendfile`, and never pass through Python."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self.fileno = sock.fileno
        self.recv = sock.recv
        self.close = sock.close

    def peer(self) -> tuple[str, int]:
        host, port = self._sock.getpeername()[:2]
        return host, port

    def has_more(self) -> bool:
        return False

    def send(self, data: bytes, *, more: bool = False) -> int:
        return self._sock.send(data, socket.MSG_MORE if more else 0)

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> int:
        return self._sock.sendmsg(parts)

    def send_file(self, descriptor: int, offset: int, count: int) -> int:
        return os.sendfile(self._sock.fileno(), descriptor, offset, count)


class TlsLine:
    """Encryption happens in this process, so `sendfile` cannot be used: bytes of files are copied."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        """The handshake is still to come: `shake_hands` until it does not raise. OSError if the peer is gone."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer = sock.getpeername()[:2]
        self._sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.fileno = self._sock.fileno
        # What was read from a file and could not be sent yet: OpenSSL wants the same bytes again.
        self._unsent = b""

    def peer(self) -> tuple[str, int]:
        host, port = self._peer
        return host, port

    def shake_hands(self) -> bool | None:
        """None when it is done; otherwise whether it waits to write, not to read."""
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            return True
        return None

    def has_more(self) -> bool:
        return self._sock.pending() > 0

    def recv(self, size: int) -> bytes:
        try:
            return self._sock.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLEOFError:
            return b""  # closed without a word, as most programs do it

    def send(self, data: bytes, *, more: bool = False) -> int:
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> int:
        # OpenSSL wants the same bytes again, and which frames come after the first may change until then.
        return self.send(b"".join(parts[:2]))

    def send_file(self, descriptor: int, offset: int, count: int) -> int:
        if not self._unsent:
            self._unsent = os.pread(descriptor, min(count, _CHUNK), offset)
        sent = self.send(self._unsent)
        self._unsent = self._unsent[sent:]
        return sent

    def close(self) -> None:
        self._sock.close()
