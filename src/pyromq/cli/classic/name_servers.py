"""Subcommands about name servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands import Opt, classic

if TYPE_CHECKING:
    import argparse

    from ..session import Session

NAMESPACE = Opt("s", "namespace", "The namespace.", required=True)
KEY = Opt("k", "key", "The key.", required=True)
VALUE = Opt("v", "value", "Its value.", required=True)


@classic("getNamesrvConfig")
async def get_namesrv_config(session: Session, args: argparse.Namespace) -> None:
    for address, config in (await session.admin.namesrv.config()).items():
        print(f"============{address}============")
        for key, value in config.items():
            print(f"{key:<50}=  {value}")


@classic("updateNamesrvConfig", KEY, VALUE)
async def update_namesrv_config(session: Session, args: argparse.Namespace) -> None:
    await session.admin.namesrv.set_config({args.k: args.v})
    named = f"[{', '.join(session.target.addresses)}]" if args.n else ""
    print(f"update name server config success!{named}\n{args.k} : {args.v}")


@classic("updateKvConfig", NAMESPACE, KEY, VALUE)
async def update_kv_config(session: Session, args: argparse.Namespace) -> None:
    await session.admin.namesrv.put_kv(args.s, args.k, args.v)
    print("create or update kv config to namespace success.")


@classic("deleteKvConfig", NAMESPACE, KEY)
async def delete_kv_config(session: Session, args: argparse.Namespace) -> None:
    await session.admin.namesrv.delete_kv(args.s, args.k)
    print("delete kv config from namespace success.")
