"""Certificates while a server or client runs: their files are followed, and those about to expire are announced.

A new context is made when a file changes, for connections to come; open connections keep the one they have.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import ConfigError

from .tls import TlsMode, client_context, server_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tls import TlsConfig

    # Called when files were read, or with why they cannot be used; then what was there before stays.
    Reloaded = Callable[[ConfigError | None], None]

logger = logging.getLogger(__name__)

LOOK = 5.0  # seconds between two looks at the files
SOON = timedelta(days=30)  # certificates that expire within this time are announced
_AGAIN = timedelta(days=1)  # until they are announced once more

_Stamps = tuple[tuple[int, int, int] | None, ...]


class Shown(NamedTuple):
    """A server's context, and the fingerprint of its certificate: SHA-256, as the peer computes it."""

    context: ssl.SSLContext | None = None
    fingerprint: bytes = b""


class FollowedFiles:
    """A TLS context made from files. `load` and `renew` read files: call them off the event loop, one at a time.

    Once `follow` runs, it alone calls them; `load_soon` asks it to.
    """

    def __init__(self, what: str, make: Callable[[], ssl.SSLContext | None], cert: str, *others: str) -> None:
        """`what` names the certificate in log lines: "the server's certificate"."""
        self._what = what
        self._make = make
        self._cert = Path(cert) if cert else None
        self._files = [Path(file) for file in (cert, *others) if file]
        self._stamps: _Stamps = ()
        self._unusable: _Stamps | None = None
        self._announced: datetime | None = None
        # Those who want to hear how the next reading went.
        self._asked: list[Reloaded] = []
        self._wake = asyncio.Event()
        self.current = Shown()
        self.expires: datetime | None = None

    @property
    def context(self) -> ssl.SSLContext | None:
        return self.current.context

    def load(self) -> None:
        """Read the files now. ConfigError if they cannot be used; what was there before stays."""
        # Before they are read: what changes meanwhile is seen at the next look.
        stamps = self._looked()
        context, fingerprint = self._make(), b""
        if self._cert is not None:
            try:
                fingerprint, self.expires = _identity(self._cert.read_text("latin-1"))
            except OSError as exc:
                raise ConfigError(f"certificate {self._cert} cannot be read: {exc.strerror}") from exc
        self.current = Shown(context, fingerprint)
        self._stamps, self._unusable, self._announced = stamps, None, None
        self.announce(datetime.now(UTC))

    def renew(self) -> None:
        """Read the files again if they have changed. If they cannot be used, that is logged, and the old ones stay."""
        stamps = self._looked()
        if stamps == self._stamps:
            return
        try:
            self.load()
        except ConfigError as exc:
            # A certificate and its key are replaced one after the other; only what stays like this is worth a line.
            if stamps == self._unusable:
                self._stamps = stamps
                logger.error("%s changed and cannot be used; the old one stays: %s", self._what, exc)
            self._unusable = stamps
        else:
            logger.info("%s changed and was read again", self._what)

    def announce(self, now: datetime) -> None:
        """Warn of a certificate that expires soon, once a day."""
        if self.expires is None or (self._announced is not None and now - self._announced < _AGAIN):
            return
        problem = expiry_problem(self.expires, now)
        if problem is not None:
            self._announced = now
            logger.warning("%s, %s, %s; replace the file, it is read again by itself", self._what, self._cert, problem)

    def load_soon(self, done: Reloaded) -> None:
        """Read the files in a thread, even if they look the same, and call `done`. For the event loop of `follow`."""
        self._asked.append(done)
        self._wake.set()

    async def follow(self) -> None:
        """Renew until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK if self._files else None):
                    await self._wake.wait()
            self._wake.clear()
            asked, self._asked = self._asked, []
            if asked:
                error = await asyncio.to_thread(self._loading_error)
                for done in asked:
                    done(error)
            else:
                await asyncio.to_thread(self.renew)
            self.announce(datetime.now(UTC))

    def _loading_error(self) -> ConfigError | None:
        try:
            self.load()
        except ConfigError as exc:
            return exc
        return None

    def _looked(self) -> _Stamps:
        return tuple(_stamp(file) for file in self._files)


def server_files(tls: TlsConfig) -> FollowedFiles:
    """The context of a server; it stays None without a certificate."""

    def make() -> ssl.SSLContext | None:
        if tls.mode is TlsMode.ENFORCING and not tls.server_cert and not tls.test_mode:
            raise ConfigError("tls.server.mode is enforcing, but tls.server.certPath names no certificate")
        return server_context(tls) if tls.mode is not TlsMode.DISABLED and tls.server_cert else None

    return FollowedFiles("the server's certificate", make, tls.server_cert, tls.server_key, tls.server_trust)


def client_files(tls: TlsConfig) -> FollowedFiles:
    """The context of a client that speaks TLS."""
    files = (tls.client_cert, tls.client_key, tls.client_trust if tls.client_auth_server else "")
    return FollowedFiles("the client's certificate", lambda: client_context(tls), *files)


def expiry_problem(expires: datetime, now: datetime) -> str | None:
    """What is wrong with a certificate that is valid until `expires`; None if it has more than 30 days."""
    left = expires - now
    day = expires.strftime("%Y-%m-%d")
    if left <= timedelta(0):
        return f"expired on {day}"
    if left < SOON:
        return f"expires on {day}, in {left.days} days" if left.days > 1 else f"expires on {day}"
    return None


def expiry(certificate: bytes) -> datetime:
    """Until when a certificate, DER, is valid. ValueError if it is none. Imports `cryptography`."""
    from cryptography import x509

    return x509.load_der_x509_certificate(certificate).not_valid_after_utc


def throw_away(tls: TlsConfig) -> Shown:
    """A context with a self-signed certificate. Blocking. Imports `cryptography`."""
    import tempfile

    from .issuing import self_signed

    pem = self_signed()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "self-signed.pem")  # the ssl module reads certificates only from files
        file.write_bytes(pem)
        context = server_context(dataclasses.replace(tls, server_cert=str(file), server_key=""))
    return Shown(context, _identity(pem.decode())[0])


def _identity(pem: str) -> tuple[bytes, datetime | None]:
    """The fingerprint of the first certificate, which is the one that is shown, and when it expires."""
    _, _, rest = pem.partition(ssl.PEM_HEADER)
    body, footer, _ = rest.partition(ssl.PEM_FOOTER)
    try:
        der = ssl.PEM_cert_to_DER_cert(ssl.PEM_HEADER + body + footer)
        return hashlib.sha256(der).digest(), expiry(der)
    except ValueError:  # OpenSSL can read it, so it is of a rarer form
        return b"", None


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except (OSError, ValueError):  # ValueError: a path that no file can have
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def shown_by(host: str, port: int, timeout: float) -> bytes:
    """The certificate, DER, that a server shows. Blocking. OSError if it does not answer or does not speak TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is looked at, not trusted
    with (
        socket.create_connection((host, port), timeout) as plain,
        context.wrap_socket(plain, server_hostname=host) as sock,
    ):
        return sock.getpeercert(binary_form=True) or b""
