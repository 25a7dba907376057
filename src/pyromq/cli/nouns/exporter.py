"""`pyromq exporter`: show the metrics of a whole cluster to Prometheus."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from pyromq.admin.exporter import Exporter
from pyromq.errors import ConfigError
from pyromq.metrics import MetricsConfig, Monitor
from pyromq.metrics.config import EXPORTER_PORT

from ..failures import CommandFailed, Exit
from ..session import Session
from ..verbs import new_app, reading, run_app

app = new_app("Show the metrics of a whole cluster to Prometheus.", alone=True)

LOOPBACK = "127.0.0.1"


def main(arguments: list[str]) -> int:
    return run_app(app, "exporter", arguments)


@reading(app, "exporter", timeout=None)
async def exporter(
    session: Session,
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=0, max=65535, help="Port of the pages; 0 picks a free one.")
    ] = EXPORTER_PORT,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST", help="Address to listen on; 0.0.0.0 lets other machines read.")
    ] = LOOPBACK,
    interval: Annotated[
        float, typer.Option("-i", "--interval", metavar="SEC", min=1.0, help="Seconds between rounds of questions.")
    ] = 15.0,
    label: Annotated[
        str, typer.Option("--label", metavar="NAME:VALUE", help="Labels for all metrics, separated by commas.")
    ] = "",
) -> None:
    """Ask all brokers every few seconds, and show their metrics under the names of rocketmq-exporter.

    Works with RocketMQ's own brokers, and with boards and rules made for its exporter. Besides /metrics it serves
    /livez, /readyz and /version. Runs until Ctrl-C.

    Example: pyromq exporter -n 10.0.0.5:9876 --listen 0.0.0.0
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    config = MetricsConfig(port=port, label=label)
    watched = Exporter(session.admin, interval)
    try:
        check_labels(config)
        async with Monitor(config, listen, [watched]) as monitor:
            print(f"Metrics of the cluster: {monitor.url}/metrics", flush=True)
            await watched.run()
    except ConfigError as exc:
        raise CommandFailed(str(exc), Exit.REFUSED) from exc


def check_labels(config: MetricsConfig) -> None:
    try:
        _ = config.labels
    except ValueError as exc:
        raise CommandFailed(str(exc).replace("metricsLabel", "--label"), Exit.USAGE) from exc
