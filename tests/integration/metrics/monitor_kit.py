"""Reads the pages of a process over real HTTP, and metrics with Prometheus' own parser for Python."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from pyromq.metrics import MetricsConfig, Monitor


def monitored(*servers, **config):
    """The monitoring of these servers, on a port of the system's choice."""
    return Monitor(MetricsConfig(port=0, **config), "127.0.0.1", servers)


async def page(url: str, path: str) -> tuple[int, str]:
    """The status and the text of a page."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(30):
            answer = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


class Scrape:
    """One reading of /metrics."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [sample for family in self.families.values() for sample in family.samples]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self._samples}

    def of(self, name: str, **labels: str) -> list[float]:
        """The values of all samples with these labels."""
        wanted = labels.items()
        return [sample.value for sample in self._samples if sample.name == name and wanted <= sample.labels.items()]

    def one(self, name: str, **labels: str) -> float:
        (value,) = self.of(name, **labels)
        return value

    def labels(self, name: str) -> list[dict[str, str]]:
        return [sample.labels for sample in self._samples if sample.name == name]


async def scrape(monitor: Monitor) -> Scrape:
    assert monitor.url is not None
    status, text = await page(monitor.url, "/metrics")
    assert status == 200, text
    return Scrape(text)
