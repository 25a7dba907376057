"""`pyromq tls`: certificates for a cluster that has no authority of its own yet."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.errors import ConfigError

from ..failures import CommandFailed, Exit
from ..session import Session
from ..verbs import changing, new_app, reading, run_app

app = new_app("Make certificates for TLS, and look at those that servers show.")

_ALWAYS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class CertificateRow:
    where: str
    subject: str
    issuer: str
    expires: str
    problem: str | None


def main(arguments: list[str]) -> int:
    return run_app(app, "tls", arguments)


@changing(app, "init", connects=False)
async def init(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the files.", show_default=False)],
    *,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="Name or address by which clients reach the servers; repeatable."),
    ] = None,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, max=3650, help="How long they are valid.")] = 365,
) -> None:
    """Make an authority, and certificates for the servers and for clients, and print how to use them.

    Run again in the same folder, it renews both certificates and keeps the authority; servers pick them up by
    themselves. Keep ca.key away from the servers: whoever has it can pass for any of them.

    Example: pyromq tls init /etc/pyromq/tls --host mq1.example.com
    """
    from pyromq.remoting.issuing import Authority, write_private

    folder = folder.absolute()
    is_renewal = (folder / "ca.pem").exists()
    names = [*dict.fromkeys([*(hosts or ()), socket.gethostname(), *_ALWAYS])]
    what = "renew the certificates" if is_renewal else "make an authority and certificates"
    if not session.agreed(f"{what} in {folder}, for {', '.join(names)}"):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be created: {exc.strerror}") from exc
    authority = Authority.load(folder) if is_renewal else Authority.create(folder, "PyroMQ authority")
    authority.issue(folder, "server", hosts=names, days=days, server=True)
    authority.issue(folder, "client", days=days, server=False)
    write_private(folder / "tls.properties", _settings(folder).encode())
    session.text(_advice(folder))


@reading(app, "show", connects=False)
async def show(
    session: Session,
    places: Annotated[
        list[str], typer.Argument(metavar="FILE|HOST:PORT", help="Certificates, or servers.", show_default=False)
    ],
) -> Listing[CertificateRow]:
    """Show certificates: whose they are, who signed them, and until when they are valid.

    The exit code is 6 if one has expired, or will within 30 days.

    Example: pyromq tls show /etc/pyromq/tls/server.pem mq1:9876
    """
    rows = [row for place in places for row in _shown(place)]
    if any(row.problem for row in rows):
        session.exit_code = Exit.THRESHOLD
    return Listing.make(CertificateRow, rows)


def _settings(folder: Path) -> str:
    return "\n".join(
        (
            "# Settings of name servers, brokers and controllers: tls.config.file names this file.",
            "tls.server.mode=enforcing",
            f"tls.server.certPath={folder}/server.pem",
            f"tls.server.keyPath={folder}/server.key",
            f"tls.server.trustCertPath={folder}/ca.pem",
            "# `require` lets only clients in that have a certificate of this authority.",
            "tls.server.need.client.auth=optional",
            "# How these servers speak to each other.",
            "tls.enable=true",
            "tls.client.authServer=true",
            f"tls.client.trustCertPath={folder}/ca.pem",
            f"tls.client.certPath={folder}/server.pem",
            f"tls.client.keyPath={folder}/server.key",
            "",
        )
    )


def _advice(folder: Path) -> str:
    return f"""Servers (name servers, brokers, controllers), in their settings:
  tls.config.file={folder}/tls.properties

RocketMQ's Java clients, in a file named by -Dtls.config.file, with -Dtls.enable=true:
  tls.test.mode.enable=false
  tls.client.authServer=true
  tls.client.trustCertPath={folder}/ca.pem
  tls.client.certPath={folder}/client.pem
  tls.client.keyPath={folder}/client.key

This command line:
  pyromq context add NAME -n HOST:9876 --tls-ca {folder}/ca.pem \\
    --tls-cert {folder}/client.pem --tls-key {folder}/client.key

Copy to each machine only what it needs: ca.pem and one pair. ca.key stays where you renew certificates."""


def _shown(place: str) -> list[CertificateRow]:
    import ssl

    from cryptography import x509

    from pyromq.remoting.certificates import expiry_problem

    try:
        if (file := Path(place)).exists():
            found = x509.load_pem_x509_certificates(file.read_bytes())
        else:
            found = [x509.load_der_x509_certificate(_shown_by(place))]
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        is_away = isinstance(exc, OSError) and not isinstance(exc, ssl.SSLError)
        raise CommandFailed(
            f"{place}: no certificate there: {reason}", Exit.UNREACHABLE if is_away else Exit.REFUSED
        ) from exc
    now = datetime.now(UTC)
    return [
        CertificateRow(
            place,
            each.subject.rfc4514_string(),
            each.issuer.rfc4514_string(),
            each.not_valid_after_utc.strftime("%Y-%m-%d %H:%M:%S+00:00"),
            expiry_problem(each.not_valid_after_utc, now),
        )
        for each in found
    ]


def _shown_by(address: str) -> bytes:
    from pyromq.remoting import split_address
    from pyromq.remoting.certificates import shown_by

    return shown_by(*split_address(address), timeout=3.0)
