"""`pyromq user`: those who sign requests, in RocketMQ 5's access control."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.users import UserRow, user_list
from pyromq.client.admin import User

from ..failures import CommandFailed, Exit
from ..new_secret import new_secret
from ..parameters import Place
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from .changes import Change, changes

app = new_app("List, create, change and delete users, who sign requests (authenticationEnabled).")

Name = Annotated[str, typer.Argument(metavar="USER", help="The user.", show_default=False)]


class Kind(StrEnum):
    normal = "normal"
    super = "super"


KindOption = Annotated[
    Kind | None, typer.Option("--type", help="A super user may do everything; a normal one what policies allow.")
]


def main(arguments: list[str]) -> int:
    return run_app(app, "user", arguments)


@reading(app, "list")
async def list_users(
    session: Session,
    place: Place,
    part: Annotated[str | None, typer.Argument(metavar="[PART]", help="Only names that contain this.")] = None,
) -> Listing[UserRow]:
    """List users, and which brokers know them. Secrets are not shown.

    Example: pyromq user list
    """
    return await user_list(session.admin, part, **place.chosen)


@changing(app, "create")
async def create(session: Session, user: Name, place: Place, kind: KindOption = None) -> Listing[Change] | None:
    """Create a user. Its secret is asked for, or read from PYROMQ_NEW_SECRET or stdin.

    Example: pyromq user create alice
    """
    if not session.agreed(f"create user {user} on {place}"):
        return None
    wanted = User(username=user, password=new_secret(user), user_type=(kind or Kind.normal).capitalize())
    return changes(user, "created", await session.admin.acl.create_user(wanted, **place.chosen))


@changing(app, "update")
async def update(
    session: Session,
    user: Name,
    place: Place,
    kind: KindOption = None,
    enable: Annotated[bool | None, typer.Option("--enable/--disable", help="Let the user in, or not.")] = None,
    secret: Annotated[bool, typer.Option("--secret", help="Ask for a new secret; see `user create`.")] = False,
) -> Listing[Change] | None:
    """Change a user's secret, type or status.

    Example: pyromq user update alice --disable
    """
    if kind is None and enable is None and not secret:
        raise CommandFailed("nothing to change; use --secret, --type, --enable or --disable", Exit.USAGE)
    if not session.agreed(f"update user {user} on {place}"):
        return None
    wanted = User(
        username=user,
        password=new_secret(user) if secret else None,
        user_type=None if kind is None else kind.capitalize(),
        user_status=None if enable is None else ("enable" if enable else "disable"),
    )
    return changes(user, "updated", await session.admin.acl.update_user(wanted, **place.chosen))


@changing(app, "delete")
async def delete(session: Session, user: Name, place: Place) -> Listing[Change] | None:
    """Delete a user and all its policies.

    Example: pyromq user delete alice --yes
    """
    if not session.agreed(f"delete user {user} and its policies on {place}", dangerous=True):
        return None
    return changes(user, "deleted", await session.admin.acl.delete_user(user, **place.chosen))
