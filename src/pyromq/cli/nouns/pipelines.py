"""`pyromq pipelines init`: a project of Spark Declarative Pipelines, ready to run."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from pyromq.client.names import check_topic_for_send
from pyromq.errors import PyroMQError
from pyromq.spark.pipelines.project import Project
from pyromq.spark.pipelines.project import init as make_project

from ..failures import exit_code
from ..servers import serving
from ..verbs import new_app, run_app

app = new_app("Make a project of Spark Declarative Pipelines.")


def main(arguments: list[str]) -> int:
    return run_app(app, "pipelines", arguments)


@app.command("init", context_settings={"help_option_names": ["-h", "--help"]})
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder; the pipeline is named after it.")],
    topic: Annotated[str, typer.Option("--from", metavar="TOPIC", help="Topic to read.")] = "orders",
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Topic to send to.")] = None,
    namesrv: Annotated[
        str, typer.Option("-n", "--namesrv", metavar="HOST:PORT", help="Name servers, separated by ';'.")
    ] = "localhost:9876",
) -> None:
    """Make a project that `spark-pipelines run` runs: a topic as a table, and a flow into another topic.

    Example: pyromq pipelines init shop --from orders --to orders_copy
    """
    try:
        for name in filter(None, (topic, to)):
            check_topic_for_send(name)
        made = make_project(folder, Project(topic, to or f"{topic}_copy", namesrv, sys.executable))
    except PyroMQError as exc:
        raise serving.failure("pipelines", exc, exit_code(exc)) from exc
    for path in made:
        print(path)
    print(f"{folder / 'run'} runs it; README.md says more", file=sys.stderr)
