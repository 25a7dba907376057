"""Metrics and health of the commands that run servers: which port, and what to say if it is taken."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from pyromq.metrics import Monitor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyromq.metrics import MetricsConfig
    from pyromq.metrics.health import Monitored
    from pyromq.settings import Settings

logger = logging.getLogger(__name__)

_PORT = "metricsPromExporterPort"


def monitor_of(
    settings: Settings, kind: type[MetricsConfig], servers: Sequence[Monitored] = (), *, must_listen: bool | None = None
) -> Monitor:
    """The monitoring of a process with these servers, not yet entered.

    Two brokers of RocketMQ on one machine need no setting for this, so the default port may be taken: then there are
    no pages. Another one must be free. A file that a broker wrote has the default, too, and nobody chose it.
    """
    config = settings[kind]
    is_given = config.port != kind().port
    if not is_given and settings.value("listenPort") == "0":
        config = dataclasses.replace(config, port=0)  # where the system chooses one port, it chooses this one, too
    host = settings.value("bindAddress") or ""
    return Monitor(config, host, servers, must_listen=is_given if must_listen is None else must_listen)


def say_where(monitor: Monitor) -> list[str]:
    """What to print about it: a line, or none."""
    if monitor.url is not None:
        return [f"Metrics and health: {monitor.url}/metrics, /livez, /readyz."]
    if monitor.problem is not None:
        logger.warning("no metrics and no health checks: %s; set %s to a free port", monitor.problem, _PORT)
    return []
