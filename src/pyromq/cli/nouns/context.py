"""`pyromq context`: named connections, so that you need not type addresses and secrets."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pyromq.admin.listing import Listing

from .. import context_file
from ..context_file import Context
from ..failures import CommandFailed, Exit
from ..session import Session
from ..verbs import changing, new_app, reading, run_app

app = new_app("Manage named connections, for --context. One of them is the current one.")

MASKED = "********"

ContextArgument = Annotated[str, typer.Argument(metavar="NAME", help="The context.", show_default=False)]


@dataclass(frozen=True, slots=True)
class ContextRow:
    name: str
    current: bool
    namesrv: str
    access_key: str | None
    tls: bool


def main(arguments: list[str]) -> int:
    return run_app(app, "context", arguments)


@changing(app, "add", connects=False)
async def add(
    session: Session,
    name: ContextArgument,
    address: Annotated[
        str, typer.Option("-n", "--namesrv", metavar="HOST:PORT", help="Name servers, separated by ';'.")
    ],
    *,
    access_key: Annotated[str | None, typer.Option("--access-key", metavar="KEY", help="Access key.")] = None,
    secret_key: Annotated[
        str | None,
        typer.Option("--secret-key", metavar="-", help="Secret key; '-' reads it from stdin, hidden from other users."),
    ] = None,
    security_token: Annotated[str | None, typer.Option("--security-token", metavar="TOKEN")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt.")] = False,
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", metavar="FILE", help="Encrypt, and trust only these certificates, PEM.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Encrypt, and show this certificate, PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of the certificate, PEM.")
    ] = None,
    limit: Annotated[
        float | None, typer.Option("--timeout", metavar="SEC", min=0.1, help="Default time limit for its commands.")
    ] = None,
    controller: Annotated[
        str | None,
        typer.Option("--controller", metavar="HOST:PORT", help="Controllers, separated by ';', for pyromq controller."),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the current one.")] = False,
) -> None:
    """Save a connection under a name, replacing any of that name.

    Example: pyromq context add staging -n 10.0.0.5:9876
    """
    from pyromq.client.name_server_addresses import configured

    configured(address)  # raises ConfigError
    if secret_key == "-":
        secret_key = sys.stdin.readline().strip()
    if bool(access_key) != bool(secret_key):
        raise CommandFailed("--access-key and --secret-key go together", Exit.USAGE)
    if tls_key is not None and tls_cert is None:
        raise CommandFailed("--tls-key needs --tls-cert", Exit.USAGE)
    files = [_existing(each) for each in (tls_ca, tls_cert, tls_key)]
    file = context_file.path(os.environ)
    contexts = context_file.load(file)
    if not session.agreed(f"save context {name} in {file}"):
        return
    keys = (access_key, secret_key, security_token)
    contexts = contexts.with_context(Context(name, address, *keys, tls or any(files), limit, controller, *files))
    if use or len(contexts.table) == 1:
        contexts = replace(contexts, current=name)
    context_file.save(file, contexts)
    session.note(f"saved in {file}{', now the current one' if contexts.current == name else ''}")


@changing(app, "use", connects=False)
async def use(session: Session, name: ContextArgument) -> None:
    """Make a context the default.

    Example: pyromq context use staging
    """
    file = context_file.path(os.environ)
    contexts = context_file.load(file)
    contexts.get(name)
    if session.agreed(f"use context {name}"):
        context_file.save(file, replace(contexts, current=name))
        if os.environ.get("NAMESRV_ADDR"):
            session.note("NAMESRV_ADDR is set and takes precedence")


@reading(app, "list", connects=False)
async def list_contexts(session: Session) -> Listing[ContextRow]:
    """List all contexts.

    Example: pyromq context list
    """
    contexts = context_file.load(context_file.path(os.environ))
    rows = (
        ContextRow(name, name == contexts.current, each.namesrv, each.access_key, each.tls)
        for name, each in sorted(contexts.table.items())
    )
    return Listing.make(ContextRow, rows)


@reading(app, "show", connects=False)
async def show(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The current one if omitted.")] = None,
) -> dict[str, Any]:
    """Show a context, without its secrets.

    Example: pyromq context show staging
    """
    contexts = context_file.load(context_file.path(os.environ))
    wanted = name or contexts.current
    if wanted is None:
        raise CommandFailed("there is no current context; `pyromq context use NAME` sets it", Exit.NOT_FOUND)
    context = contexts.get(wanted)
    return {
        "name": context.name,
        "current": context.name == contexts.current,
        "namesrv": context.namesrv,
        "accessKey": context.access_key,
        "secretKey": MASKED if context.secret_key else None,
        "securityToken": MASKED if context.security_token else None,
        "tls": context.tls,
        "timeout": context.timeout,
        "controller": context.controller,
        "tlsCa": context.tls_ca,
        "tlsCert": context.tls_cert,
        "tlsKey": context.tls_key,
    }


@changing(app, "delete", connects=False)
async def delete(session: Session, name: ContextArgument) -> None:
    """Delete a context.

    Example: pyromq context delete staging
    """
    file = context_file.path(os.environ)
    contexts = context_file.load(file)
    contexts.get(name)
    if session.agreed(f"delete context {name}", dangerous=True):
        context_file.save(file, contexts.without(name))


def _existing(file: Path | None) -> str | None:
    if file is not None and not file.exists():
        raise CommandFailed(f"{file} does not exist", Exit.USAGE)
    return None if file is None else str(file.absolute())
