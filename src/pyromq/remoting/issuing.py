"""Makes certificates: a throw-away one for TLS test mode, and an authority for clusters that have no other.

Keys are on the curve P-256 and in PKCS #8, which RocketMQ's Java clients read as they are. Importing this imports
`cryptography`, which takes a while.
"""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

AUTHORITY_DAYS = 3650
_EARLIER = timedelta(days=1)  # clocks of other machines may be behind


def self_signed(now: datetime | None = None) -> bytes:
    """A new key and a certificate signed by it, PEM: good for encryption, proof of nothing."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("pyromq")
    begin = now or datetime.now(UTC)
    cert = _builder(name, name, key.public_key(), begin, AUTHORITY_DAYS).sign(key, hashes.SHA256())
    return _pem(cert) + _key_pem(key)


class Authority:
    """An authority of one's own, kept in `ca.pem` and `ca.key` of a folder."""

    def __init__(self, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._cert = cert
        self._key = key

    @classmethod
    def create(cls, folder: Path, name: str) -> Authority:
        """Make a new one. ConfigError if it cannot be written, or is there already."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        cert = (
            _builder(subject, subject, key.public_key(), datetime.now(UTC), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_private(folder / "ca.key", _key_pem(key), anew=True)
        _write(folder / "ca.pem", _pem(cert), 0o644, anew=True)
        return cls(cert, key)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """Open that of a folder. ConfigError if it cannot be used."""
        try:
            cert = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        except (OSError, ValueError, TypeError) as exc:  # TypeError: the key has a password
            raise ConfigError(f"the authority in {folder} cannot be used: {exc}") from exc
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != cert.public_key():
            raise ConfigError(f"ca.key in {folder} is not the key of ca.pem")
        return cls(cert, key)

    def issue(self, folder: Path, name: str, *, hosts: Iterable[str] = (), days: int, server: bool) -> None:
        """Write a new certificate and its key to `<name>.pem` and `<name>.key`, replacing those that are there.

        `hosts` are the names and addresses by which a server is reached. A server is a client of other servers, too.
        """
        now = datetime.now(UTC)
        days = min(days, (self._cert.not_valid_after_utc - now).days)
        if days < 1:
            raise ConfigError(f"the authority in {folder} expires too soon; make another in another folder")
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if server:
            purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(_name(name), self._cert.subject, key.public_key(), now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(
                    cast("ec.EllipticCurvePublicKey", self._cert.public_key())
                ),
                critical=False,
            )
        )
        names = [_host(each) for each in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        cert = builder.sign(self._key, hashes.SHA256())
        # The key first: whoever follows the files finds a pair that does not match only for a moment, and waits.
        write_private(folder / f"{name}.key", _key_pem(key))
        _write(folder / f"{name}.pem", _pem(cert), 0o644)


def write_private(file: Path, data: bytes, *, anew: bool = False) -> None:
    """Write a file that only its owner can read. ConfigError if that fails, or with `anew` if it is there already."""
    _write(file, data, 0o600, anew=anew)


def _write(file: Path, data: bytes, mode: int, *, anew: bool = False) -> None:
    """All of it or nothing: a server that follows the file never sees a half."""
    draft = file if anew else file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(data)
        if draft != file:
            draft.replace(file)
    except OSError as exc:
        raise ConfigError(f"{file} cannot be written: {exc.strerror}") from exc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(text.encode("idna").decode("ascii"))
    except (UnicodeError, ValueError) as exc:
        raise ConfigError(f"{text!r} is neither an address nor the name of a host") from exc


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
