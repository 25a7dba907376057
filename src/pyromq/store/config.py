"""Settings of the store, under RocketMQ's names in broker.conf. Sizes are bytes, times milliseconds, as there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.settings import GiB, KiB, MiB, computed, option

from .format import ABORT, CHECKPOINT, CONSUME_QUEUE, ENTRY, INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator


class FlushDiskType(Enum):
    """When a producer is answered: before its message is on disk, or after."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


def _home_store() -> str:
    return str(Path.home() / "store")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Everything a store can be told."""

    # Where and how large. Sizes are fixed once a store exists: file names are offsets.
    root: str = option("storePathRootDir", computed(str, _home_store), "Root folder of the store.")
    commit_log_paths: str = option(
        "storePathCommitLog", "", "Folders of the commit log, separated by commas; empty means `commitlog` in the root."
    )
    consume_queue_path: str = option(
        "storePathConsumeQueue", "", "Must be `consumequeue` in the root, or empty. RocketMQ ignores it."
    )
    index_path: str = option("storePathIndex", "", "Must be `index` in the root, or empty. RocketMQ ignores it.")
    checkpoint_path: str = option(
        "storeCheckpoint", "", "Must be `checkpoint` in the root, or empty. RocketMQ ignores it."
    )
    abort_path: str = option("abortFile", "", "Must be `abort` in the root, or empty. RocketMQ ignores it.")
    commit_log_file_size: int = option(
        "mappedFileSizeCommitLog", 1 * GiB, "Bytes per commit log file. Fixed once a store exists.", min=128, size=True
    )
    consume_queue_file_size: int = option(
        "mappedFileSizeConsumeQueue",
        300_000 * ENTRY.size,
        "Bytes per consume queue file, rounded up to whole entries of 20. Fixed once a store exists.",
        min=ENTRY.size,
        size=True,
    )
    consume_queue_ext: bool = option(
        "enableConsumeQueueExt",
        False,
        "Keep the filter bitmaps that enableCalcFilterBitMap computes beside the queues.",
    )
    consume_queue_ext_file_size: int = option(
        "mappedFileSizeConsumeQueueExt", 48 * MiB, "Bytes per file of filter bitmaps.", min=64, size=True
    )
    hash_slots: int = option("maxHashSlotNum", 5_000_000, "Slots per index file. Fixed once a store exists.", min=1)
    index_entries: int = option("maxIndexNum", 20_000_000, "Entries per index file. Fixed once a store exists.", min=2)

    # What is accepted.
    max_message_size: int = option(
        "maxMessageSize",
        4 * MiB,
        "Largest body. Clients refuse more than 4 MiB by default.",
        min=1,
        size=True,
        hot=True,
        limit="code 13",
    )
    compatible_49: bool = option(
        "storeCompatible49",
        False,
        "Refuse records a 4.9 broker cannot read: those of version 2, which long retry topics need.",
    )

    # When it is on disk.
    flush: FlushDiskType = option(
        "flushDiskType",
        FlushDiskType.ASYNC_FLUSH,
        "SYNC_FLUSH answers the producer after fsync, ASYNC_FLUSH before it.",
    )
    flush_interval: int = option("flushIntervalCommitLog", 500, "Pause between asynchronous flushes.", min=1)
    flush_least_pages: int = option(
        "flushCommitLogLeastPages", 4, "Dirty pages of 4 KiB that an asynchronous flush waits for.", min=0
    )
    flush_thorough_interval: int = option(
        "flushCommitLogThoroughInterval", 10_000, "Flush everything after this time, however little it is.", min=1
    )
    sync_flush_timeout: int = option(
        "syncFlushTimeout", 5000, "SYNC_FLUSH: longest wait of a producer; its message is stored anyway.", min=1
    )
    queue_flush_interval: int = option("flushIntervalConsumeQueue", 1000, "Pause between flushes of queues.", min=1)
    queue_flush_least_pages: int = option(
        "flushConsumeQueueLeastPages", 2, "Dirty pages of 4 KiB from which a queue is flushed.", min=0
    )
    queue_flush_thorough_interval: int = option(
        "flushConsumeQueueThoroughInterval",
        60_000,
        "Flush all queues, the index and the checkpoint after this time; a crash replays what came since.",
        min=1,
    )

    # Index.
    index: bool = option("messageIndexEnable", True, "Index messages by key, so that clients can look them up.")
    index_safe: bool = option(
        "messageIndexSafe", False, "After a crash, recover from no later than the last flush of the index."
    )
    max_query: int = option("maxMsgsNumBatch", 64, "Most messages returned by a look-up by key.", min=1, hot=True)
    default_query: int = option(
        "defaultQueryMaxNum", 32, "Most messages returned by a look-up by unique key.", min=1, hot=True
    )

    # Reading.
    max_bytes_in_memory: int = option(
        "maxTransferBytesOnMessageInMemory", 256 * KiB, "Bytes per pull of recent messages.", min=1, size=True, hot=True
    )
    max_count_in_memory: int = option(
        "maxTransferCountOnMessageInMemory", 32, "Messages per pull of recent messages.", min=1, hot=True
    )
    max_bytes_on_disk: int = option(
        "maxTransferBytesOnMessageInDisk", 64 * KiB, "Bytes per pull of old messages.", min=1, size=True, hot=True
    )
    max_count_on_disk: int = option(
        "maxTransferCountOnMessageInDisk", 8, "Messages per pull of old messages.", min=1, hot=True
    )
    memory_ratio: int = option(
        "accessMessageInMemoryMaxRatio",
        40,
        "Messages within this percentage of memory from the end of the log count as recent; 10 less on a slave.",
        min=0,
        max=100,
        hot=True,
    )
    delay_levels: str = option(
        "messageDelayLevel",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays that messages can choose by level, starting with level 1.",
    )

    # Clean-up.
    reserved_hours: int = option("fileReservedTime", 72, "Hours to keep commit log files.", min=0, hot=True)
    delete_when: str = option("deleteWhen", "04", "Hours of the day for clean-up, separated by semicolons.", hot=True)
    disk_max_used: int = option(
        "diskMaxUsedSpaceRatio",
        75,
        "Disk use in percent from which expired files are deleted at any hour.",
        min=10,
        max=95,
        hot=True,
    )
    disk_warning: int = option(
        "diskSpaceWarningLevelRatio",
        90,
        "Disk use in percent from which the store refuses messages.",
        min=1,
        max=99,
        hot=True,
    )
    disk_clean_forcibly: int = option(
        "diskSpaceCleanForciblyRatio",
        85,
        "Disk use in percent from which files are deleted early, and below which a full store accepts messages again.",
        min=1,
        max=99,
        hot=True,
    )
    clean_forcibly: bool = option(
        "cleanFileForciblyEnable",
        True,
        "Allow deleting unexpired files when the disk is nearly full.",
        hot=True,
    )
    archive_before_delete: bool = option(
        "archiveBeforeDelete",
        False,
        "Keep commit log files that the lake has not archived yet, until diskSpaceCleanForciblyRatio.",
        hot=True,
    )
    clean_interval: int = option("cleanResourceInterval", 10_000, "Pause between clean-up rounds.", min=1)
    delete_interval: int = option("deleteCommitLogFilesInterval", 100, "Pause between deletions of log files.", min=0)
    delete_queue_interval: int = option(
        "deleteConsumeQueueFilesInterval", 100, "Pause between deletions of queue and index files.", min=0
    )
    delete_batch: int = option("deleteFileBatchMax", 10, "Most commit log files deleted per round.", min=1)

    # Recovery.
    check_crc_on_recover: bool = option("checkCRCOnRecover", True, "Check the CRC of bodies during recovery.")

    @property
    def commit_log_folders(self) -> tuple[Path, ...]:
        """Where commit log files may lie, in the order that decides which file goes where."""
        listed = sorted(part.strip() for part in self.commit_log_paths.split(",") if part.strip())
        return tuple(map(Path, listed)) or (Path(self.root, "commitlog"),)

    def misplaced(self) -> Iterator[tuple[str, str, Path]]:
        """Each key that names another place than this store uses, with what it names and the place that is used.

        Files for brokers often list these places. RocketMQ keeps everything in the root whatever they say; but somebody
        who wrote another place down expects files there, and is better told than served from an empty folder.
        """
        root = Path(self.root)
        for key, given, name in (
            ("storePathConsumeQueue", self.consume_queue_path, CONSUME_QUEUE),
            ("storePathIndex", self.index_path, INDEX),
            ("storeCheckpoint", self.checkpoint_path, CHECKPOINT),
            ("abortFile", self.abort_path, ABORT),
        ):
            if given and Path(given).absolute() != (root / name).absolute():
                yield key, given, root / name
