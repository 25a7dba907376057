"""`pyromq policy`: what users may do, in RocketMQ 5's access control."""

from __future__ import annotations

from typing import Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.users import PolicyRow, policy_list
from pyromq.client.admin import Acl, Policy, PolicyEntry

from ..parameters import Place
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from .changes import Change, changes

app = new_app("Show and change what users may do (authorizationEnabled).")

Name = Annotated[str, typer.Argument(metavar="USER", help="The user.", show_default=False)]
Resource = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE",
        help="Topic:NAME, Group:NAME or Cluster:NAME; NAME* for a prefix, * for all.",
        show_default=False,
    ),
]
Default = Annotated[
    bool, typer.Option("--default", help="A default policy: it counts where no other one says anything.")
]


def main(arguments: list[str]) -> int:
    return run_app(app, "policy", arguments)


@reading(app, "list")
async def list_policies(
    session: Session,
    place: Place,
    user: Annotated[str | None, typer.Argument(metavar="[USER]", help="Only this user.")] = None,
    resource: Annotated[
        str | None, typer.Option("-r", "--resource", metavar="TEXT", help="Only resources that contain this.")
    ] = None,
) -> Listing[PolicyRow]:
    """List what users may do, and which brokers say so.

    Example: pyromq policy list alice
    """
    return await policy_list(session.admin, user, resource, **place.chosen)


@changing(app, "grant")
async def grant(
    session: Session,
    user: Name,
    resource: Resource,
    actions: Annotated[
        list[str],
        typer.Argument(metavar="ACTION...", help="pub, sub, create, update, delete, get, list, or all."),
    ],
    place: Place,
    *,
    deny: Annotated[bool, typer.Option("--deny", help="Deny it instead.")] = False,
    sources: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="ADDRESS", help="Only from this address or network (10.0.0.0/8); repeatable."),
    ] = None,
    default: Default = False,
) -> Listing[Change] | None:
    """Allow a user something, or with --deny deny it. What was said of the same resource before is replaced.

    The closest resource decides: a name, then the longest prefix, then all. Without any match all is denied.

    Example: pyromq policy grant alice 'Topic:orders*' pub sub
    """
    wanted = [part for each in actions for part in each.split(",") if part]
    verb = "deny" if deny else "allow"
    if not session.agreed(f"{verb} user {user} {', '.join(wanted)} on {resource} on {place}"):
        return None
    entry = PolicyEntry(
        resource=resource,
        actions=[each.capitalize() for each in wanted],
        source_ips=sources or [],
        decision=verb.capitalize(),
    )
    acl = Acl(subject=f"User:{user}", policies=[Policy(policy_type=_type(default), entries=[entry])])
    addresses = await session.admin.acl.update_acl(acl, **place.chosen)
    return changes(user, f"{verb} {','.join(entry.actions)} on {resource}", addresses)


@changing(app, "revoke")
async def revoke(
    session: Session, user: Name, resource: Resource, place: Place, default: Default = False
) -> Listing[Change] | None:
    """Take back what a user was allowed or denied on one resource, as it was written.

    Example: pyromq policy revoke alice 'Topic:orders*'
    """
    if not session.agreed(f"revoke what user {user} is allowed or denied on {resource} on {place}"):
        return None
    addresses = await session.admin.acl.delete_acl(
        f"User:{user}", resource=resource, policy_type=_type(default), **place.chosen
    )
    return changes(user, f"revoked {resource}", addresses)


@changing(app, "delete")
async def delete(session: Session, user: Name, place: Place) -> Listing[Change] | None:
    """Delete all policies of a user.

    Example: pyromq policy delete alice --yes
    """
    if not session.agreed(f"delete all policies of user {user} on {place}", dangerous=True):
        return None
    return changes(user, "policies deleted", await session.admin.acl.delete_acl(f"User:{user}", **place.chosen))


def _type(default: bool) -> str:
    return "Default" if default else "Custom"
