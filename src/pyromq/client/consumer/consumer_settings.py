"""The settings of push and pull consumers, and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError
from pyromq.protocol.names import DEFAULT_CONSUMER_GROUP

from ..names import check_group
from .poll_reader import ReadSettings
from .send_back import CONCURRENT_RETRIES, UNLIMITED
from .start_offset import StartAt, consume_from_where

if TYPE_CHECKING:
    from .allocation import Strategy
    from .handlers import OnError
    from .offset_store import OffsetStore

MIN_COMMIT_INTERVAL = 1.0
# Limits on how far a consumer may pull ahead.
_PULL_RANGES = {"pull_batch": 1024, "max_cached": 65535, "max_cached_mib": 1024, "max_span": 65535}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """What a `Consumer` was made with; see there."""

    group: str
    broadcast: bool
    ordered: bool
    start_at: StartAt | datetime
    allocate: Strategy
    max_concurrency: int
    batch: int
    pull_batch: int
    max_cached: int
    max_cached_mib: int
    max_span: int
    max_retries: int | None
    suspend: float
    consume_timeout: float
    drain: float
    on_error: OnError | None
    offset_store: OffsetStore | None

    def __post_init__(self) -> None:
        _check_group(self.group)
        _check_ranges(self, max_concurrency=1000, batch=1024, **_PULL_RANGES)
        if self.max_retries is not None and self.max_retries < 0:
            raise ConfigError(f"max_retries must be 0 or more, or None for the default, not {self.max_retries}")
        if not self.consume_timeout > 0:
            raise ConfigError(f"consume_timeout must be more than 0 seconds, not {self.consume_timeout!r}")
        if self.suspend < 0 or self.drain < 0:
            raise ConfigError("suspend and drain must be 0 or more seconds")
        if isinstance(self.start_at, datetime) and self.start_at.tzinfo is None:
            raise ConfigError("start_at needs a time zone")

    @property
    def retries(self) -> int:
        """How often a message is retried before it becomes a dead letter."""
        if self.max_retries is not None:
            return self.max_retries
        return UNLIMITED if self.ordered else CONCURRENT_RETRIES

    def java_names(self) -> dict[str, object]:
        """The settings as operators see them (307)."""
        return {
            "consumerGroup": self.group,
            "messageModel": "BROADCASTING" if self.broadcast else "CLUSTERING",
            "consumeFromWhere": consume_from_where(self.start_at).value,
            "allocateMessageQueueStrategy": self.allocate.name,
            "consumeThreadMin": self.max_concurrency,
            "consumeThreadMax": self.max_concurrency,
            "consumeMessageBatchMaxSize": self.batch,
            "pullBatchSize": self.pull_batch,
            "pullInterval": 0,
            "pullThresholdForQueue": self.max_cached,
            "pullThresholdSizeForQueue": self.max_cached_mib,
            "consumeConcurrentlyMaxSpan": self.max_span,
            "maxReconsumeTimes": -1 if self.max_retries is None else self.max_retries,
            "suspendCurrentQueueTimeMillis": int(self.suspend * 1000),
            "consumeTimeout": self.consume_timeout / 60,
            "awaitTerminationMillisWhenShutdown": int(self.drain * 1000),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """What a `PullConsumer` was made with; see there."""

    group: str
    broadcast: bool
    start_at: StartAt | datetime
    allocate: Strategy
    pull_batch: int
    broker_wait: float
    max_buffered: int
    max_cached: int
    max_cached_mib: int
    max_span: int
    auto_commit: bool
    commit_interval: float
    metadata_interval: float
    offset_store: OffsetStore | None

    def __post_init__(self) -> None:
        _check_group(self.group)
        _check_ranges(self, max_buffered=6_553_500, **_PULL_RANGES)
        if self.commit_interval < MIN_COMMIT_INTERVAL:
            raise ConfigError(
                f"commit_interval must be at least {MIN_COMMIT_INTERVAL:g} s, not {self.commit_interval:g}"
            )
        if self.broker_wait <= 0 or self.metadata_interval <= 0:
            raise ConfigError("broker_wait and metadata_interval must be more than 0")

    @property
    def reads(self) -> ReadSettings:
        """How each queue is read."""
        return ReadSettings(
            pull_batch=self.pull_batch,
            suspend=self.broker_wait,
            suspend_timeout=self.broker_wait + 10.0,
            max_cached=self.max_cached,
            max_cached_mib=self.max_cached_mib,
            max_span=self.max_span,
        )


def _check_group(group: str) -> None:
    check_group(group)
    if group == DEFAULT_CONSUMER_GROUP:
        raise ConfigError(f"{DEFAULT_CONSUMER_GROUP} is reserved; choose your own group name")


def _check_ranges(settings: object, **highest: int) -> None:
    """Check that each setting is at least 1 and at most the given number."""
    for name, high in highest.items():
        value = getattr(settings, name)
        if not 1 <= value <= high:
            raise ConfigError(f"{name} must be between 1 and {high}, not {value!r}")
