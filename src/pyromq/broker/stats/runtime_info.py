"""Runtime info: a broker's report about itself, as a table of strings (docs/spec/broker.md 12.2).

Every cluster overview is built from it, so it has all of RocketMQ's keys. Where this broker has no such thing
(thread pools, a lock around the log) the value is that of an idle broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyromq import _native
from pyromq.protocol.command import PROTOCOL_VERSION
from pyromq.protocol.names import SCHEDULE_TOPIC
from pyromq.store.disk import Disk

from .throughput import Rate

if TYPE_CHECKING:
    from pyromq.protocol.bodies import DelayOffsetTable

    from ..context import Context
    from ..timers.figures import TimerFigures

# For one kind of request ("send", "pull", "query", "endTransaction"): how many wait, and how long the first (ms).
Backlog = Callable[[str], tuple[int, int]]

VERSION_NAME = "V4_9_8"

_NO_POOL = 2**31 - 1  # practically unlimited buffers
_UNITS = "KMGTPE"


class RuntimeInfo:
    """Builds the table. `delay_offsets` tells how far delayed messages were delivered.

    `replication` gives the keys that tell of slaves and of a slave, `archives` those that tell how far the lake is.
    """

    def __init__(
        self,
        context: Context,
        *,
        delay_offsets: Callable[[], DelayOffsetTable],
        backlog: Backlog,
        timers: TimerFigures | None,
        replication: Callable[[], dict[str, str]] = dict,
        archives: Callable[[], dict[str, str]] = dict,
        disk: Disk | None = None,
    ) -> None:
        self._store = context.store
        self._statistics = context.stats
        self._live = context.live
        self._monotonic = context.monotonic
        self._began = context.began
        self._delay_offsets = delay_offsets
        self._backlog = backlog
        self._disk = disk or Disk()
        self._timers = timers
        self._replication = replication
        self._archives = archives

    def collect(self) -> dict[str, str]:
        """The current table. Looks at the disks, which takes microseconds."""
        self._statistics.collect()
        return {
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(PROTOCOL_VERSION),
            **self._throughput(),
            **self._totals(),
            **self._requests(),
            **self._log(),
            **self._disks(),
            **self._delayed(),
            "brokerActive": "true",
            "hotPath": _native.state(),
            **({} if self._store.failure is None else {"storeFailure": self._store.failure}),
            **self._replication(),
            **self._archives(),
            **(_NO_TIMERS if self._timers is None else self._timers.collect()),
        }

    def _throughput(self) -> dict[str, str]:
        throughput = self._statistics.throughput
        puts = max(throughput.puts, 1)
        transferred = throughput.rates(Rate.TRANSFERRED)
        return {
            "bootTimestamp": str(throughput.started),
            "runtime": duration_text(self._monotonic() - self._began),
            "putMessageEntireTimeMax": str(int(throughput.slowest_put)),
            "putMessageTimesTotal": str(puts),
            "putMessageFailedTimes": str(throughput.put_failures),
            "putMessageSizeTotal": str(throughput.put_bytes),
            "putMessageDistributeTime": throughput.put_times(),
            "putMessageAverageSize": str(throughput.put_bytes / puts),
            "getMessageEntireTimeMax": str(int(throughput.slowest_get)),
            "putTps": throughput.rates(Rate.PUT),
            "getFoundTps": throughput.rates(Rate.FOUND),
            "getMissTps": throughput.rates(Rate.MISSED),
            "getTotalTps": throughput.rates(Rate.FOUND, Rate.MISSED),
            # 4.9 tools look for it with one r, 5.5 tools with two.
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
            "putLatency99": f"{throughput.put_time(0.99):.2f}",
            "putLatency999": f"{throughput.put_time(0.999):.2f}",
        }

    def _totals(self) -> dict[str, str]:
        throughput = self._statistics.throughput
        return {
            "msgPutTotalYesterdayMorning": str(throughput.put_total_yesterday_morning),
            "msgPutTotalTodayMorning": str(throughput.put_total_this_morning),
            "msgPutTotalTodayNow": str(throughput.puts),
            "msgGetTotalYesterdayMorning": str(throughput.get_total_yesterday_morning),
            "msgGetTotalTodayMorning": str(throughput.get_total_this_morning),
            "msgGetTotalTodayNow": str(throughput.transferred),
        }

    def _requests(self) -> dict[str, str]:
        config = self._live.config
        table = {
            "EndTransactionQueueSize": str(self._backlog("endTransaction")[0]),
            "EndTransactionThreadPoolQueueCapacity": str(config.end_transaction_queue_capacity),
            "startAcceptSendRequestTimeStamp": str(config.start_accept_send),
        }
        given = dict(self._live.settings.items())
        for kind in ("send", "pull", "query"):
            size, head_wait = self._backlog(kind)
            table[f"{kind}ThreadPoolQueueSize"] = str(size)
            table[f"{kind}ThreadPoolQueueCapacity"] = given[f"{kind}ThreadPoolQueueCapacity"]
            table[f"{kind}ThreadPoolQueueHeadWaitTimeMills"] = str(head_wait)
        return table

    def _log(self) -> dict[str, str]:
        log = self._store.log
        return {
            "commitLogMinOffset": str(log.start),
            "commitLogMaxOffset": str(log.end),
            "earliestMessageTimeStamp": str(self._store.earliest_timestamp),
            "remainHowManyDataToFlush": size_text(max(log.end - self._store.flusher.flushed, 0)),
            "remainTransientStoreBufferNumbs": str(_NO_POOL),
            # Queue entries are made in the same turn as the record, by the only thread that could hold a lock.
            "dispatchBehindBytes": "0",
            "dispatchMaxBuffer": "0",
            "pageCacheLockTimeMills": "0",
        }

    def _disks(self) -> dict[str, str]:
        folders = self._store.config.commit_log_folders
        used = {str(folder): self._disk.used_ratio(folder) for folder in folders}
        table = {f"commitLogDiskRatio_{folder}": str(ratio) for folder, ratio in used.items()}
        table["commitLogDiskRatio"] = str(min(used.values()))
        table["consumeQueueDiskRatio"] = str(self._disk.used_ratio(self._store.root))
        try:
            stat = os.statvfs(self._store.root)
        except OSError:  # then there is no such key, as in RocketMQ
            return table
        total, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        table["commitLogDirCapacity"] = f"Total : {size_text(total)}, Free : {size_text(free)}."
        return table

    def _delayed(self) -> dict[str, str]:
        table = {}
        for level, delivered in self._delay_offsets().offset_table.items():
            queue = self._store.queues.find(SCHEDULE_TOPIC, level - 1)
            table[f"scheduleMessageOffset_{level}"] = f"{delivered},{0 if queue is None else queue.max_offset}"
        return table


# What the 5.5 overview also looks for when timers are off.
_NO_TIMERS = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


def duration_text(millis: int) -> str:
    """`[ 0 days, 1 hours, 2 minutes, 3 seconds ]`"""
    minutes, seconds = divmod(max(millis, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def size_text(size: int) -> str:
    """`12.0 KiB`"""
    if size < 1024:
        return f"{size} B"
    exponent = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**exponent:.1f} {_UNITS[exponent - 1]}iB"
