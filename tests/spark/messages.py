"""A cluster with messages for a Spark to read, and a few words to say so in tests."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from pyromq.sync import AdminClient, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from pyromq.testing.cluster import Cluster


class Topics:
    """Makes topics and fills them, in the cluster of a module."""

    def __init__(self, cluster: Cluster, admin: AdminClient, producer: Producer) -> None:
        self.cluster = cluster
        self.admin = admin
        self.producer = producer
        self._count = 0

    def new(self, queues: int = 4) -> str:
        """A topic that no other test knows."""
        self._count += 1
        topic = f"topic-{self._count}"
        self.admin.topics.create(topic, write_queues=queues, read_queues=queues)
        return topic

    def send(self, topic: str, bodies: Iterable[bytes], **fields: Any) -> None:
        """Send, and wait until all are stored. A field may be a function of the message's number."""
        under_way = [
            self.producer.submit(
                topic, body, **{name: value(at) if callable(value) else value for name, value in fields.items()}
            )
            for at, body in enumerate(bodies)
        ]
        for sent in under_way:
            sent.result()

    def options(self, topic: str, **options: Any) -> dict[str, str]:
        given = {"namesrv": self.cluster.namesrv, "subscribe": topic, **options}
        return {key: str(value) for key, value in given.items()}


@contextlib.contextmanager
def topics_in(cluster: Cluster) -> Iterator[Topics]:
    with AdminClient(cluster.namesrv) as admin, Producer("tests", namesrv=cluster.namesrv) as producer:
        yield Topics(cluster, admin, producer)


def bodies(frame: DataFrame) -> list[str]:
    """The bodies of all rows as text, sorted."""
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)
