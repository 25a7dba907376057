"""Metrics that a collector gets: the official SDK sends them, and a real HTTP server takes them."""

from __future__ import annotations

import asyncio
import contextlib
import gzip

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from tests.integration.broker.life_kit import Peer, new_broker
from tests.integration.metrics.monitor_kit import monitored

from pyromq.metrics import ExporterType

pytestmark = pytest.mark.slow


class Collector:
    """Takes OTLP over HTTP; `exports` are the requests, `headers` their heads. With `broken` it refuses."""

    def __init__(self) -> None:
        self.exports: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self.heads: list[str] = []
        self.broken = False
        self.url = ""

    async def serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                self.heads.append(head)
                length = int(head.split("content-length: ")[1].split("\r\n")[0])
                body = await reader.readexactly(length)
                if "content-encoding: gzip" in head:
                    body = gzip.decompress(body)
                answer = ExportMetricsServiceResponse().SerializeToString()
                status = "400 Bad Request" if self.broken else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
                await writer.drain()
                request = ExportMetricsServiceRequest.FromString(body)
                metrics = request.resource_metrics[0].scope_metrics[0].metrics
                self.exports.put_nowait({metric.name: metric for metric in metrics})
        writer.close()


@pytest.fixture
async def collector():
    taking = Collector()
    server = await asyncio.start_server(taking.serve, "127.0.0.1", 0)
    taking.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield taking


async def next_export(collector):
    async with asyncio.timeout(30):
        return await collector.exports.get()


def value(metric, **labels):
    points = metric.sum.data_points or metric.gauge.data_points
    for point in points:
        given = {each.key: each.value.string_value for each in point.attributes}
        if labels.items() <= given.items():
            return point.as_int or point.as_double
    return None


async def test_a_collector_gets_the_same_metrics(tmp_path, collector):
    options = {
        "exporter": ExporterType.OTLP_GRPC,
        "otlp_target": collector.url,
        "otlp_header": "x-token:secret",
        "otlp_interval": 100,
        "label": "dc:east",
    }
    async with new_broker(tmp_path) as broker, Peer() as peer, monitored(broker, **options):
        await peer.create_topic(broker.address, "orders", 1)
        for _ in range(3):
            await peer.send(broker.address)
        while True:
            found = await next_export(collector)
            if "rocketmq_messages_in_total" in found:
                break
    assert "post /v1/metrics " in collector.heads[0]
    assert "x-token: secret" in collector.heads[0]
    messages = found["rocketmq_messages_in_total"]
    assert value(messages, topic="orders", node_id="broker-a", dc="east", message_type="normal") == 3
    assert messages.sum.is_monotonic
    assert messages.sum.aggregation_temporality == 2  # cumulative
    latency = found["rocketmq_rpc_latency"]
    assert latency.unit == "milliseconds"
    assert len(latency.histogram.data_points[0].explicit_bounds) == 9
    assert value(found["rocketmq_broker_permission"]) == 6


async def test_deltas_add_up_to_the_total(tmp_path, collector):
    options = {
        "exporter": ExporterType.OTLP_GRPC,
        "otlp_target": collector.url,
        "otlp_interval": 100,
        "in_delta": True,
    }
    async with new_broker(tmp_path) as broker, Peer() as peer, monitored(broker, **options):
        await peer.create_topic(broker.address, "orders", 1)
        total = 0
        for round_ in range(3):
            await peer.send(broker.address)
            while total <= round_:
                found = await next_export(collector)
                if (metric := found.get("rocketmq_messages_in_total")) is not None:
                    assert metric.sum.aggregation_temporality == 1
                    total += value(metric, topic="orders") or 0
        assert total == 3


async def test_a_collector_that_refuses_costs_one_line(tmp_path, collector, caplog):
    collector.broken = True
    options = {"exporter": ExporterType.OTLP_GRPC, "otlp_target": collector.url, "otlp_interval": 100}
    async with new_broker(tmp_path) as broker, monitored(broker, **options):
        for _ in range(3):
            await next_export(collector)
    assert caplog.text.count("takes no metrics") == 1


async def test_metrics_may_go_to_the_log(tmp_path, caplog):
    caplog.set_level("INFO")
    async with new_broker(tmp_path) as broker, monitored(broker, exporter=ExporterType.LOG, log_interval=100):
        async with asyncio.timeout(30):
            while "rocketmq_broker_permission" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.01)
