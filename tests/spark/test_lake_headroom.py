"""An archive and what brokers delete, against real brokers; no Spark is needed for that."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import replace

import pytest
from tests.integration.broker.life_kit import Peer, eventually, new_name_server
from tests.integration.broker.scene_kit import running

from pyromq.admin.cluster.doctor import examine
from pyromq.admin.cluster.doctor_rules import Health
from pyromq.client import Client, MessageQueue
from pyromq.client.admin.headroom import Alarm
from pyromq.protocol.bodies import KVTable
from pyromq.protocol.codes import RequestCode
from pyromq.spark import options as known
from pyromq.spark.blocking_client import Link
from pyromq.spark.lake.headroom import archive_group, headroom, report_archived
from pyromq.testing import FaultyDisk

pytestmark = pytest.mark.slow

ROOT = "s3://lake/mq"
HOURS = ";".join(map(str, range(24)))
# Whatever is in a full file of 16 KiB is old at once, and cleaned up at any hour.
FAST = (
    "mappedFileSizeCommitLog=16384",
    "cleanResourceInterval=20",
    "deleteCommitLogFilesInterval=0",
    "flushConsumeQueueThoroughInterval=20",
    f"deleteWhen={HOURS}",
)
# An archive needs no group that somebody made for it.
KEEPING = ("fileReservedTime=0", "archiveBeforeDelete=true", "autoCreateSubscriptionGroup=false")
QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
OTHER = MessageQueue(topic="orders", broker_name="broker-a", queue_id=1)


class Cluster:
    """A broker that forgets fast, and an archive that tells it how far it is."""

    def __init__(self, scene, peer, name_server):
        self.store = scene.broker._parts.context.store
        self.address = f"127.0.0.1:{scene.port}"
        self.peer = peer
        self.name_server = name_server
        self.options = known.parse(known.SourceOptions, {"namesrv": name_server, "subscribe": "orders"})

    async def fill(self, files, *queues):
        """Write until the log has this many more full files; gives where each queue ends."""
        goal = self.store.log.end + files * 16384
        ends = {}
        while self.store.log.end < goal:
            for queue in queues:
                ends[queue] = 1 + await self.peer.send(self.address, b"x" * 1000, queue_id=queue.queue_id)
        return ends

    async def report(self, positions, root=ROOT):
        def tell():
            with Link(self.options) as link:
                report_archived(link, root, positions)

        await asyncio.to_thread(tell)

    async def runtime(self):
        reply = await self.peer.ask(self.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(reply.body_bytes).table

    async def keeps(self, files):
        """Wait until so many expired files are kept, and the clean-up has nothing else to do."""
        await eventually(lambda: self._keeps(files))

    async def _keeps(self, files):
        return int((await self.runtime())["archiveKeptFiles"]) == files and len(self.store.log.segments) == files + 1

    async def finding(self):
        """What doctor says of the archive."""
        found = await examine([self.name_server], lambda address: Client(address))
        return next(each for each in found.rows if each.what == "lake archive of broker-a")


@pytest.fixture
async def name_server(tmp_path):
    async with new_name_server(tmp_path) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture
def cluster(tmp_path, name_server):
    """Starts the broker; again in the same folder once it has ended."""

    @contextlib.asynccontextmanager
    async def starting(*sets, disk=None):
        async with (
            running(tmp_path / "store", *FAST, *sets, namesrv_addr=name_server, disk=disk) as scene,
            Peer() as peer,
        ):
            made = Cluster(scene, peer, name_server)
            await peer.create_topic(made.address, "orders", 2)
            await peer.routed(name_server, "orders")
            yield made

    return starting


@pytest.mark.scenario("spark 34")
async def test_files_are_kept_until_they_are_archived_and_let_go_at_85_percent(cluster):
    disk = FaultyDisk()
    disk.used = 0.5
    async with cluster(*KEEPING, disk=disk) as there:
        # No archive has ever said anything: everything stays.
        ends = await there.fill(3, QUEUE, OTHER)
        await there.keeps(3)
        assert (await there.finding()).found.startswith("archiveBeforeDelete is on, but no archive has ever reported")
        # One queue of two is archived: the other one holds everything.
        await there.report({QUEUE: ends[QUEUE]})
        await eventually(lambda: _has(there, archiveBehind="orders queue 1"))
        await there.keeps(3)
        found = await there.finding()
        assert (found.status, "kept for it" in found.found) == (Health.WARN, True)
        assert archive_group(ROOT) in str(found.to_do)
        # Both are: what is archived goes.
        await there.report(ends)
        await there.keeps(0)
        assert (await there.finding()).status is Health.OK
        more = await there.fill(3, QUEUE, OTHER)
        await there.keeps(3)
        # A second archive that is slower counts.
        await there.report({QUEUE: 0, OTHER: 0}, "/another")
        await there.report(more)
        await eventually(lambda: _has(there, archiveBehindGroup=archive_group("/another")))
        await there.keeps(3)
    async with cluster(*KEEPING, disk=disk) as there:
        # A broker that started again knows.
        await there.keeps(3)
        assert (await there.runtime())["archiveBehindGroup"] == archive_group("/another")
        # A disk that is nearly full counts more.
        disk.used = 0.85
        await there.keeps(3)
        disk.used = 0.86
        await eventually(lambda: _log_has(there, 1))
        disk.used = 0.5
        await there.fill(2, QUEUE)
        await there.keeps(2)
        # The setting is live.
        await there.peer.configure(there.address, "archiveBeforeDelete=false")
        await eventually(lambda: _log_has(there, 1))


async def _has(there, **wanted):
    table = await there.runtime()
    return all(table.get(key) == value for key, value in wanted.items())


async def _log_has(there, files):
    return len(there.store.log.segments) == files


@pytest.mark.scenario("spark 34")
async def test_the_headroom_is_asked_of_any_broker(cluster):
    async with cluster() as there:
        ends = await there.fill(2, QUEUE, OTHER)

        def found(positions):
            return headroom(there.options, "orders", positions)

        all_done = await asyncio.to_thread(found, ends)
        assert (all_done.unarchived, all_done.alarm, str(all_done)) == (0, Alarm.NONE, "orders: all is archived")
        behind = await asyncio.to_thread(found, {QUEUE: ends[QUEUE] - 2, OTHER: ends[OTHER]})
        assert (behind.unarchived, behind.lost, behind.queue) == (2, 0, "queue 0 of orders on broker-a")
        assert 72 * 3600 - 60 < behind.lake_headroom_seconds <= 72 * 3600
        assert behind.retention_seconds == 72 * 3600
        assert behind.alarm is Alarm.NONE
        assert abs(behind.oldest.timestamp() - time.time()) < 60
        assert replace(behind, lake_headroom_seconds=23 * 3600.0).alarm is Alarm.WARN
        assert replace(behind, lake_headroom_seconds=5 * 3600.0).alarm is Alarm.ERROR
        # A table that has never seen a queue has all of it before it.
        assert (await asyncio.to_thread(found, {QUEUE: ends[QUEUE]})).unarchived == ends[OTHER]
        # The first file goes, and with it what was in no table.
        os.utime(there.store.log.segments[0].path, (0, 0))
        await eventually(lambda: _log_has(there, 2))
        late = await asyncio.to_thread(found, {QUEUE: 0, OTHER: ends[OTHER]})
        assert late.lost == there.store.queue("orders", 0).min_offset > 0
        assert late.alarm is Alarm.ERROR
        assert str(late) == f"orders: {late.lost} messages were deleted before they were archived"


async def test_a_full_disk_leaves_no_headroom_and_a_report_that_nobody_takes_does_no_harm(cluster, caplog):
    async with cluster() as there:
        await there.fill(1, QUEUE)
        # It is the real disk, which nobody wants to fill: have the limit below its use.
        await there.peer.configure(there.address, "diskSpaceCleanForciblyRatio=1")
        found = await asyncio.to_thread(headroom, there.options, "orders", {})
        assert (found.lake_headroom_seconds, found.alarm) == (0.0, Alarm.ERROR)
        assert "% full, so it deletes messages early" in str(found)
        unknown = MessageQueue(topic="orders", broker_name="broker-z", queue_id=0)
        await there.report({unknown: 3, QUEUE: 1})
        assert "broker-z does not know how far the archive is" in caplog.text
        assert there.store.queues.find("orders", 0) is not None


def test_each_lake_has_a_group_of_its_own():
    assert archive_group("s3://lake/mq") == archive_group("s3://lake/mq/")
    assert archive_group("s3://lake/mq") != archive_group("s3://other/mq")
    assert archive_group("/data/a lake/").startswith("CID_RMQ_SYS_LAKE_a_lake_")
    assert len(archive_group("/" + "x" * 500)) < 120
