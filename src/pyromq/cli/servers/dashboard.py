"""`pyromq dashboard`: pages and a JSON API for a cluster, ours or RocketMQ's own. `pyromq up` runs it, too."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq import remoting
from pyromq.errors import ConfigError, PyroMQError

from .. import context_file
from ..connecting import target
from ..failures import CommandFailed, Exit
from . import logs, serving
from .systemd import Systemd

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.client import Client
    from pyromq.dashboard.config import DashboardConfig
    from pyromq.dashboard.lake import ArchivedTopic
    from pyromq.dashboard.server import Dashboard
    from pyromq.dashboard.site import Source

    from ..connecting import Target

logger = logging.getLogger(__name__)

FAILED = 1
PORT = 8082
NEEDS = "the dashboard needs more packages: pip install 'pyromq[dashboard]'"
_STOP_WITHIN = 5.0

app = serving.new_app()


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    return serving.run_app(app, "dashboard", arguments)


def is_installed() -> bool:
    """Whether the extra is there."""
    return all(importlib.util.find_spec(name) for name in ("starlette", "uvicorn", "jinja2", "python_multipart"))


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def dashboard(
    *,
    namesrv: Annotated[
        str | None, typer.Option("-n", "--namesrv", metavar="ADDR", help="Name servers: host:port;host:port.")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option("--context", metavar="NAME", help="A named connection; repeat it to show several clusters."),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST", help="Address to listen on; others than this machine's need --login.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="P", help="Port to listen on.", min=0, max=65535)] = PORT,
    base_path: Annotated[
        str, typer.Option("--base-path", metavar="PATH", help="Serve below this path, behind a proxy: /mq.")
    ] = "",
    login: Annotated[
        bool, typer.Option("--login", help="Ask for a name and a password. The first start prints one for admin.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without a login: everybody is an admin.")
    ] = False,
    users: Annotated[
        Path | None,
        typer.Option("--users", metavar="FILE", help="Take over the users.properties of RocketMQ's dashboard."),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option("--host-name", metavar="NAME", help="Another name by which browsers reach it; repeatable."),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDR", help="Believe X-Forwarded-For and -Proto of this proxy; repeatable."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where history, users and jobs are kept.", show_default=False)
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(metavar="ROOT", envvar="PYROMQ_LAKE", help="The lake of archived topics: a folder, or s3://…"),
    ] = None,
    access_key: Annotated[
        str | None, typer.Option("--access-key", metavar="KEY", help="Sign requests; the secret: PYROMQ_SECRET_KEY.")
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt connections to the cluster.")] = False,
    log_level: Annotated[logs.LogLevel, typer.Option(help="Log level.")] = logs.LogLevel.warning,
    log_format: Annotated[logs.LogFormat, typer.Option(help="Log format.")] = logs.LogFormat.text,
    log_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Log to files in this directory (1 GiB at most) instead of stderr."),
    ] = None,
) -> None:
    """Show clusters in the browser: health, topics, groups, messages, dead letters, and what to do about them.

    Works with brokers of PyroMQ and of Apache RocketMQ. It listens on this machine only, unless --listen says
    otherwise. Reading never changes an offset. History is kept in a small database.

    Example: pyromq dashboard -n mq1:9876
    """
    serving.set_up_logs("dashboard", log_level, log_format, log_dir)
    if not is_installed():
        raise serving.failure("dashboard", ConfigError(NEEDS), FAILED)
    from pyromq.dashboard.config import DashboardConfig, normal_base_path
    from pyromq.dashboard.server import Dashboard

    try:
        config = DashboardConfig(
            host=listen,
            port=port,
            base_path=normal_base_path(base_path),
            folder=data or default_folder(),
            login=login or users is not None,
            insecure=insecure,
            hosts=tuple(host_name or ()),
            proxies=tuple(trusted_proxy or ()),
            lake=lake,
        )
        config.check()
        targets = _targets(namesrv, context or [], access_key, tls=tls)
        password = first_password(config, users)
        sources = [source(name, each) for name, each in targets.items()]
        server = Dashboard(config, sources, read_lake=lake_reader(next(iter(targets.values()))))
        remoting.run(_run(server, targets, password))
    except CommandFailed as exc:
        print(f"pyromq dashboard: {exc}", file=sys.stderr)
        raise typer.Exit(exc.exit_code) from exc
    except PyroMQError as exc:
        raise serving.failure("dashboard", exc, FAILED) from exc


def _targets(namesrv: str | None, contexts: list[str], access_key: str | None, *, tls: bool) -> dict[str, Target]:
    if not contexts:
        found = target(namesrv, None, access_key=access_key, tls=tls)
        name = found.source.removeprefix("context ") if found.source.startswith("context ") else "default"
        return {name: found}
    if namesrv:
        raise CommandFailed("use -n or --context, not both", Exit.USAGE)
    known = context_file.load(context_file.path(os.environ))
    return {known.get(name).name: target(None, name, access_key=access_key, tls=tls) for name in contexts}


def source(name: str, where: Target) -> Source:
    from pyromq.dashboard.site import Source

    def client(addresses: str) -> Client:
        return dataclasses.replace(where, namesrv=addresses).client()

    return Source(name, tuple(where.addresses), client)


def lake_reader(where: Target) -> Callable[[str], list[ArchivedTopic]] | None:
    """Reads the tables of a lake, in a thread; None without the extra."""
    if not all(importlib.util.find_spec(name) for name in ("pyarrow", "deltalake")):
        return None

    def read(root: str) -> list[ArchivedTopic]:
        from pyromq.dashboard.lake import ArchivedTopic, Commit
        from pyromq.spark.lake.headroom import headroom
        from pyromq.spark.lake.storage import Storage
        from pyromq.spark.lake.tables import list_tables, open_table
        from pyromq.spark.options import SourceOptions

        storage = Storage.of(root, {})
        rows = []
        for table in (open_table(storage, name) for name in list_tables(storage)):
            snapshot = table.snapshot()
            left = None
            with contextlib.suppress(PyroMQError):  # brokers need not be up to look at a lake
                left = headroom(
                    SourceOptions(namesrv=where.namesrv, subscribe=(table.topic,)), table.topic, snapshot.positions
                )
            rows.append(
                ArchivedTopic(
                    topic=table.topic,
                    table=table.name,
                    format=table.format,
                    messages=sum(file.rows for file in table.files(snapshot)),
                    behind=left.unarchived if left else None,
                    headroom=left.lake_headroom_seconds if left else None,
                    lost=left.lost if left else None,
                    gaps=len(table.gaps()),
                    last_commit=snapshot.time,
                    commits=tuple(
                        Commit(each.version, each.time, each.operation, each.rows) for each in table.versions(5)
                    ),
                )
            )
        return rows

    return read


def default_folder() -> Path:
    """`$XDG_STATE_HOME/pyromq`, otherwise below `~/.local/state`."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()) / "pyromq"


def first_password(config: DashboardConfig, users: Path | None) -> str | None:
    """The password of a new admin, if there is nobody yet who could log in."""
    if not config.login:
        return None
    from pyromq.dashboard.access.users import Users
    from pyromq.dashboard.kept.database import Database

    database = Database(config.folder)
    try:
        known = Users(database)
        if users is not None:
            beside = users.with_name("role-permission.yml")
            taken = known.migrate(users, beside if beside.exists() else None)
            if taken:
                print(f"Users taken over from {users}: {', '.join(taken)}.")
        return known.first_start()
    finally:
        database.close()


async def _run(server: Dashboard, targets: dict[str, Target], password: str | None) -> None:
    systemd = Systemd.of(os.environ)

    def listening() -> None:
        shown = ", ".join(each.namesrv for each in targets.values())
        print(f"The dashboard is at {server.url} and shows {shown}.")
        if password is not None:
            print(f"Log in as admin with the one-time password {password} (it is not shown again).")
        print("Ctrl-C stops it.", flush=True)
        systemd.ready(f"serving at {server.url}")

    await serving.until_stopped(server.run(listening), "dashboard", systemd=systemd, reload=lambda: None)


class DashboardThread:
    """The dashboard beside servers, with a thread and an event loop of its own: a long page does not hold them up.

    Its port is taken when it is made, so that a browser may come at once; the rest starts with `start`.
    """

    def __init__(self, config: DashboardConfig, where: Target) -> None:
        from pyromq.dashboard.server import bound, url_of

        config.check()
        self._config = config
        self._where = where
        self._listener = bound(config)
        self.url = url_of(config, self._listener)
        self._thread: threading.Thread | None = None
        self._ending: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._begun = threading.Event()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="dashboard", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            remoting.run(self._serve())
        except PyroMQError as exc:
            logger.warning("the dashboard ended: %s", exc)
        except Exception:
            logger.exception("the dashboard ended")
        finally:
            self._begun.set()

    async def _serve(self) -> None:
        from pyromq.dashboard.server import Dashboard

        server = Dashboard(self._config, [source("default", self._where)], listener=self._listener)
        serving_task = asyncio.create_task(server.run(), name="dashboard")
        self._ending = asyncio.get_running_loop(), serving_task
        self._begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await serving_task

    async def stop(self) -> None:
        """Always ends soon; what is not finished then ends with the process."""
        if self._thread is None:
            self._listener.close()
            return
        await asyncio.to_thread(self._begun.wait, _STOP_WITHIN)
        if self._ending is not None:
            loop, task = self._ending
            with contextlib.suppress(RuntimeError):  # it ended by itself
                loop.call_soon_threadsafe(task.cancel)
        await asyncio.to_thread(self._thread.join, _STOP_WITHIN)
