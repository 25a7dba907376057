"""The histogram of requests, from what a server counts (`remoting.latencies`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.protocol.codes import RequestCode, ResponseCode

from .model import Distribution, Sample, truth
from .server_metrics import RPC_LATENCY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.remoting.latencies import RequestLatencies

_REQUESTS = {int(code): code.name.lower() for code in RequestCode}
_RESPONSES = {int(code): code.name.lower() for code in ResponseCode}


def request_samples(latencies: RequestLatencies) -> Iterator[Sample]:
    """One sample for each request code and its answers."""
    for kind, took in latencies:
        values = Distribution(RPC_LATENCY.buckets)
        values.counts, values.sum = took.counts, took.seconds * 1000
        labels = (
            _REQUESTS.get(kind.code, str(kind.code)),
            _RESPONSES.get(kind.response, str(kind.response)),
            truth(kind.held),
            "oneway" if kind.oneway else "success",
            "remoting",
        )
        yield Sample(RPC_LATENCY, labels, values)
