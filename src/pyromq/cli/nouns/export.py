"""`pyromq export`: a cluster's topics, groups, settings or load as a document."""

from __future__ import annotations

from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyromq.admin.cluster.settings import cluster_configs
from pyromq.admin.cluster.size import cluster_size
from pyromq.admin.manifest.export import cluster_metadata

from ..failures import CommandFailed, Exit
from ..output import Output, Printer, whole_file
from ..parameters import ClusterName
from ..session import Session
from ..verbs import new_app, reading, run_app

if TYPE_CHECKING:
    from collections.abc import Mapping


app = new_app("Export a cluster's topics, groups, settings or load as a document.")

ToFile = Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="File to write; - is stdout.")]
STDOUT = Path("-")


def main(arguments: list[str]) -> int:
    return run_app(app, "export", arguments)


@reading(app, "metadata", timeout=10.0)
async def metadata(
    session: Session,
    file: ToFile = STDOUT,
    cluster: ClusterName = None,
    retry: Annotated[bool, typer.Option("--retry", help="Include retry and dead-letter topics.")] = False,
) -> None:
    """Export topics and groups for `pyromq apply -f`; -o yaml writes YAML.

    Example: pyromq export metadata -f shop.json, and elsewhere: pyromq apply -f shop.json
    """
    import msgspec

    found = await cluster_metadata(session.admin, cluster, retry=retry)
    what = f"{len(found.topics)} topics and {len(found.groups)} groups"
    write_document(session, msgspec.to_builtins(found), file, what)


@reading(app, "configs", timeout=10.0)
async def configs(session: Session, file: ToFile = STDOUT, cluster: ClusterName = None) -> None:
    """Export the settings of all name servers and brokers.

    Example: pyromq export configs -f before.json
    """
    found = await cluster_configs(session.admin, cluster)
    document = {"nameServers": found.name_servers, "brokers": found.brokers}
    count = len(found.name_servers) + sum(map(len, found.brokers.values()))
    write_document(session, document, file, f"the settings of {count} servers")
    session.incomplete(found.missing)


@reading(app, "report", timeout=20.0)
async def report(session: Session, file: ToFile = STDOUT, cluster: ClusterName = None) -> None:
    """Export the load of brokers: rates, messages a day, topics, groups, disks, client versions.

    Example: pyromq export report -o yaml
    """
    found = await cluster_size(session.admin, cluster)
    document = {"brokers": found.brokers, "total": found.total, "clients": found.clients}
    write_document(session, document, file, f"the load of {len(found.brokers)} brokers")
    session.incomplete(found.missing)


def write_document(session: Session, document: Mapping[str, Any], file: Path, what: str) -> None:
    """Print a document, or write it to a file, never half of it."""
    printer = Printer(Output.yaml if session.asked.output is Output.yaml else Output.json)
    if file == STDOUT:
        printer.record(document)
        return
    try:
        with whole_file(file) as part, part.open("w", encoding="utf-8") as target, redirect_stdout(target):
            printer.record(document)
    except OSError as exc:
        raise CommandFailed(f"{file} cannot be written: {exc.strerror}", Exit.USAGE) from exc
    session.note(f"wrote {what} to {file}")
