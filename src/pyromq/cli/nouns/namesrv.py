"""`pyromq namesrv <verb>`: settings and keys of running name servers. Changes go to every one of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pyromq.admin.listing import Listing
from pyromq.client.admin.fan_out import partly

from ..parameters import pairs_of
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from .changes import Change, SettingChange, changes, compared, note_unknown, shown

app = new_app("Manage running name servers. Without a verb, `pyromq namesrv` runs one.")
config = new_app("Show and change name server settings.")
kv = new_app("Manage the keys that name servers keep, grouped by namespace.")
app.add_typer(config, name="config")
app.add_typer(kv, name="kv")

Namespace = Annotated[
    str, typer.Argument(metavar="NAMESPACE", help="Namespace, e.g. ORDER_TOPIC_CONFIG.", show_default=False)
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.", show_default=False)]


def main(arguments: list[str]) -> int:
    return run_app(app, "namesrv", arguments)


@reading(config, "get")
async def get(
    session: Session,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Only these keys.")] = None,
) -> Listing[Any] | dict[str, str]:
    """Show the settings of every name server.

    Example: pyromq namesrv config get orderMessageEnable
    """
    configs, missing = await partly(session.admin.namesrv.config())
    return shown(configs, keys or (), missing)


@changing(config, "set")
async def set_config(
    session: Session,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings to change; also KEY VALUE.")],
) -> Listing[SettingChange] | None:
    """Change settings on every name server, at once and in its file.

    Example: pyromq namesrv config set orderMessageEnable=true
    """
    wanted = pairs_of(pairs)
    before = await session.admin.namesrv.config()
    note_unknown(session, before, wanted)
    said = ", ".join(f"{key}={value}" for key, value in wanted.items())
    if not session.agreed(f"set {said} on {', '.join(before)}"):
        return None
    await session.admin.namesrv.set_config(wanted)
    return compared(before, await session.admin.namesrv.config(), wanted)


@reading(kv, "list")
async def list_kv(session: Session, namespace: Namespace) -> dict[str, str]:
    """List all keys of a namespace.

    Example: pyromq namesrv kv list ORDER_TOPIC_CONFIG
    """
    return dict(sorted((await session.admin.namesrv.list_kv(namespace)).items()))


@reading(kv, "get")
async def get_kv(session: Session, namespace: Namespace, key: Key) -> dict[str, str]:
    """Show the value of a key.

    Example: pyromq namesrv kv get ORDER_TOPIC_CONFIG orders
    """
    return {key: await session.admin.namesrv.get_kv(namespace, key)}


@changing(kv, "set")
async def set_kv(
    session: Session,
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value.", show_default=False)],
) -> Listing[Change] | None:
    """Set a key on every name server.

    Example: pyromq namesrv kv set ORDER_TOPIC_CONFIG orders broker-a:4
    """
    if not session.agreed(f"set {namespace}/{key} to {value}"):
        return None
    await session.admin.namesrv.put_kv(namespace, key, value)
    return changes(f"{namespace}/{key}", "set", session.target.addresses)


@changing(kv, "delete")
async def delete_kv(session: Session, namespace: Namespace, key: Key) -> Listing[Change] | None:
    """Delete a key from every name server.

    Example: pyromq namesrv kv delete ORDER_TOPIC_CONFIG orders --yes
    """
    await session.admin.namesrv.get_kv(namespace, key)  # raises QueryNotFound
    if not session.agreed(f"delete {namespace}/{key}", dangerous=True):
        return None
    await session.admin.namesrv.delete_kv(namespace, key)
    return changes(f"{namespace}/{key}", "deleted", session.target.addresses)
