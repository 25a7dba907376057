"""The table of what official peers were seen to do with our broker, made from the reports of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

_NODE = re.compile(r"tests/interop/test_(broker|features)_(?P<module>\w+)\.py::test_(?P<name>\w+)(\[(?P<peer>.+)\])?$")
# What a test is about, where it has no peer among its parameters.
_PEERS = {"with_mqadmin": "mqadmin-5.5.0", "in_apache_cluster": "mqadmin-5.5.0", "taken_over": "apache-5.5.0"}
_WORDS = {"passed": "yes", "failed": "**no**"}


def table(reports: Iterable[pytest.TestReport]) -> str:
    """Features in rows, peers in columns; empty if no test of the broker ran. "–" means not tried."""
    results: dict[str, dict[str, str]] = {}
    for report in reports:
        match = _NODE.search(report.nodeid)
        if match is None or (report.when != "call" and report.outcome != "failed"):
            continue
        where = " (in a cluster with Apache's)" if match["module"] == "in_apache_cluster" else ""
        feature = match["name"].replace("_", " ") + where
        peer = match["peer"] or _PEERS.get(match["module"], match["module"])
        results.setdefault(feature, {})[peer] = _WORDS.get(report.outcome, report.outcome)
    if not results:
        return ""
    peers = sorted({peer for row in results.values() for peer in row})
    lines = [f"| Feature | {' | '.join(peers)} |", "|---" * (len(peers) + 1) + "|"]
    lines += [f"| {feature} | {' | '.join(row.get(peer, '–') for peer in peers)} |" for feature, row in results.items()]
    return "\n".join(lines) + "\n"
