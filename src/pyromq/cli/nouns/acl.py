"""`pyromq acl`: accounts of RocketMQ 4.x, and the files that brokers keep them in."""

from __future__ import annotations

from typing import Annotated

import typer

from pyromq.admin.accounts import AccountRow, AclFileRow, account_list, acl_files
from pyromq.admin.listing import Listing
from pyromq.client.admin import Account

from ..failures import CommandFailed, Exit
from ..new_secret import new_secret
from ..parameters import Place
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from .changes import Change, changes

app = new_app("List and change accounts (aclEnable), and see which files are in effect.")

AccessKey = Annotated[str, typer.Argument(metavar="ACCESS_KEY", help="The account.", show_default=False)]
DefaultPermission = Annotated[str | None, typer.Option(metavar="PERM", help="DENY, PUB, SUB or PUB|SUB.")]


def main(arguments: list[str]) -> int:
    return run_app(app, "acl", arguments)


@reading(app, "list")
async def list_accounts(session: Session, place: Place) -> Listing[AccountRow]:
    """List the accounts of every broker and what they may do. Secrets are not shown.

    Example: pyromq acl list -b broker-a
    """
    return await account_list(session.admin, **place.chosen)


@reading(app, "status")
async def status(session: Session, place: Place) -> Listing[AclFileRow]:
    """Show the account files of every broker: their version, and why one is not in effect.

    Example: pyromq acl status
    """
    return await acl_files(session.admin, **place.chosen)


@changing(app, "set")
async def set_account(
    session: Session,
    access_key: AccessKey,
    place: Place,
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option("-t", "--topic", metavar="TOPIC=PERM", help="All topics with a right of their own; repeatable."),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option("-g", "--group", metavar="GROUP=PERM", help="All groups with a right of their own; repeatable."),
    ] = None,
    default_topic: DefaultPermission = None,
    default_group: DefaultPermission = None,
    white_address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="From there it needs no signature, and may do everything.")
    ] = None,
    admin: Annotated[bool | None, typer.Option("--admin/--no-admin", help="Whether it may administer.")] = None,
    secret: Annotated[
        bool,
        typer.Option("--secret", help="Set its secret: from PYROMQ_NEW_SECRET, stdin, or as you type it."),
    ] = False,
) -> Listing[Change] | None:
    """Create an account or change it. What you leave out stays as it is; a new account needs --secret.

    Example: pyromq acl set orders-service --secret -t orders=PUB -g billing=SUB
    """
    account = Account(
        access_key=access_key,
        secret_key=new_secret(access_key) if secret and not session.asked.dry_run else None,
        white_remote_address=white_address,
        admin=admin,
        default_topic_perm=default_topic,
        default_group_perm=default_group,
        topic_perms=_listed(topics),
        group_perms=_listed(groups),
    )
    dangerous = admin is True or bool(white_address)
    if not session.agreed(f"set account {access_key} on {place}", dangerous=dangerous):
        return None
    return changes(access_key, "set", await session.admin.acl.set_account(account, **place.chosen))


@changing(app, "delete")
async def delete_account(session: Session, access_key: AccessKey, place: Place) -> Listing[Change] | None:
    """Delete an account. Whoever uses it is refused from then on.

    Example: pyromq acl delete orders-service --yes
    """
    if not session.agreed(f"delete account {access_key} on {place}", dangerous=True):
        return None
    return changes(access_key, "deleted", await session.admin.acl.delete_account(access_key, **place.chosen))


@changing(app, "allow")
async def allow(
    session: Session,
    place: Place,
    addresses: Annotated[
        list[str] | None, typer.Argument(metavar="[ADDRESS]...", help="10.0.0.7, 10.0.0.*, 10.0.1-9.*, 10.0.0.{1,2}")
    ] = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="Empty the list.")] = False,
    file: Annotated[str | None, typer.Option(metavar="PATH", help="Of one file, by its path on the brokers.")] = None,
) -> Listing[Change] | None:
    """Set the addresses from which everything is allowed without an account.

    Example: pyromq acl allow 10.0.0.7 "10.0.8.*" --yes
    """
    if bool(addresses) == nobody:
        raise CommandFailed("name the addresses, or --nobody", Exit.USAGE)
    said = f"allow everything from {', '.join(addresses)}" if addresses else "allow nobody without an account"
    if not session.agreed(f"{said} on {place}", dangerous=bool(addresses)):
        return None
    done = await session.admin.acl.set_white_addresses(addresses or (), file=file, **place.chosen)
    return changes(", ".join(addresses or ()) or "nobody", "allowed", done)


def _listed(words: list[str] | None) -> tuple[str, ...] | None:
    """An empty word makes an empty list."""
    return None if words is None else tuple(word for word in words if word)
