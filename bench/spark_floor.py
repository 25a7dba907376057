"""What a micro-batch costs that has next to nothing to do, and what a query costs brokers that has nothing to do."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from pyromq.spark import options as known
from pyromq.spark.source.stream_reader import StreamPlanner
from pyromq.sync import AdminClient, Producer
from pyromq.testing.cluster import running_cluster

from .spark_kit import Results, folder, is_quick, rounds, session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

QUIET = 16  # queues
BACKLOG = 8_000  # messages, of which a batch takes one for each queue
BATCHES = 12
IDLE_SECONDS = 20.0


def main(seconds: float) -> None:
    floors = Results("Floor of a micro-batch, into noop")
    with folder() as scratch, session(scratch) as spark, running_cluster(scratch / "cluster") as cluster:
        with AdminClient(cluster.namesrv) as admin, Producer("bench", namesrv=cluster.namesrv) as producer:
            for topic, queues in (("one", 1), ("quiet", QUIET)):
                admin.topics.create(topic, write_queues=queues, read_queues=queues)
                sent = [producer.submit(topic, b"%d" % number) for number in range(BACKLOG)]
                for each in sent:
                    each.result()

        def ours(topic: str) -> Callable[[], DataFrame]:
            options = {"namesrv": cluster.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
            options["maxOffsetsPerTrigger"] = str(QUIET)
            return lambda: spark.readStream.format("rocketmq").options(**options).load()

        def rate() -> DataFrame:
            return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", QUIET).load()

        sides = {"quiet": ours("quiet"), "one": ours("one"), "rate": rate}
        took = dict.fromkeys(sides, float("inf"))
        for number in range(rounds(seconds)):
            for name, stream in sides.items():
                took[name] = min(took[name], _floor(spark, stream(), scratch / f"{name}-{number}"))
        said = {name: f"{value:.0f} ms" for name, value in took.items()}
        ratio = took["quiet"] / took["rate"]
        floors.at_most("16 quiet queues / Spark's own rate source", said["quiet"], said["rate"], ratio, 2.5)
        floors.at_most(
            "16 quiet queues / a topic of 1 queue", said["quiet"], said["one"], took["quiet"] / took["one"], 1.3
        )
        span = 4.0 if is_quick(seconds) else IDLE_SECONDS
        requests, cpu = _idle(cluster.namesrv, span)
    floors.show()
    idle = Results("An idle query", ("what", "measured", "", "value", "bar", ""))
    idle.at_most("requests to a broker, a second", f"{requests / span:.1f}", "", requests / span, 10)
    idle.at_most("percent of a core, driver-side reader", f"{100 * cpu / span:.1f}", "", 100 * cpu / span, 3)
    idle.show()


def _floor(spark: SparkSession, stream: DataFrame, checkpoint: Path) -> float:
    """The median duration of batches, without the first ones."""
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        durations: dict[int, float] = {}
        while len(durations) < BATCHES + 3:
            time.sleep(0.05)
            if (failure := query.exception()) is not None:
                raise failure
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    durations[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
    finally:
        query.stop()
    return statistics.median([duration for _, duration in sorted(durations.items())][3:])


class _Counting:
    def __init__(self) -> None:
        self.count = 0

    def before_request(self, peer: str, request: Any) -> None:
        self.count += 1

    def after_response(self, peer: str, request: Any, response: Any) -> None:
        pass


def _idle(namesrv: str, seconds: float) -> tuple[int, float]:
    """Requests of a driver-side reader that is asked without a pause, as Spark does, and the CPU time that it takes."""
    options = {"namesrv": namesrv, "subscribe": "quiet", "startingOffsets": "latest"}
    planner = StreamPlanner(known.parse(known.SourceOptions, options))
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        end = planner.latest(planner.initial(), ReadAllAvailable())
        planner.latest(end, ReadAllAvailable())
        counting = _Counting()
        endpoint = planner._link.client.remoting.endpoint
        endpoint.hooks = [*endpoint.hooks, counting]
        begin, cpu = time.monotonic(), time.thread_time()
        while time.monotonic() - begin < seconds:
            planner.latest(end, ReadAllAvailable())
            time.sleep(0.01)  # Spark's polling delay
        return counting.count, time.thread_time() - cpu
    finally:
        planner.close()
