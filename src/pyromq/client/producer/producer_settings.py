"""The settings of a producer: purpose, default and limits of each.

The constructors of `Producer` and `TransactionProducer` repeat them for editors and type checkers; a test compares all
three.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConfigError

from .outgoing import COMPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_RETRY_CODES = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer sends. Nonsensical values raise ConfigError. Times are in seconds, sizes in bytes."""

    timeout: float = 3.0  # for a whole send, all attempts together
    attempt_timeout: float | None = None  # for one attempt; without it a hanging broker uses up all the time
    retries: int = 2  # attempts after the first, each at another broker
    retry_not_stored: bool = False  # also retry what was stored but not confirmed by disk or replica
    retry_codes: frozenset[int] = DEFAULT_RETRY_CODES  # refusals that another broker may answer differently
    compress_over: int = 4096  # bodies of that size and more are compressed
    compression: str = "zlib"  # or lz4, zstd
    max_size: int = 4 << 20  # of a message; brokers have a limit of their own
    fault_tolerance: bool = False  # avoid slow or failing brokers for a while
    window: int = 10000  # messages that `submit` keeps in flight
    window_bytes: int = 100 << 20
    linger: float = 0.0  # how long a submitted message waits for others to share its request
    default_queues: int = 4  # queues of a topic that the first send creates

    def __post_init__(self) -> None:
        object.__setattr__(self, "retry_codes", frozenset(self.retry_codes))
        if self.timeout <= 0 or (self.attempt_timeout is not None and self.attempt_timeout <= 0):
            raise ConfigError(
                f"timeout {self.timeout} and attempt_timeout {self.attempt_timeout} must be more than 0 s"
            )
        if self.retries < 0:
            raise ConfigError(f"retries must be 0 or more, not {self.retries}")
        if self.compression not in COMPRESSIONS:
            raise ConfigError(f"compression must be one of {', '.join(COMPRESSIONS)}, not {self.compression!r}")
        if self.max_size < 1 or self.default_queues < 1:
            raise ConfigError(f"max_size {self.max_size} and default_queues {self.default_queues} must be 1 or more")
        if self.window < 1 or self.window_bytes < 1:
            raise ConfigError(f"a window of {self.window} messages and {self.window_bytes} bytes lets nothing through")
        if self.linger < 0:
            raise ConfigError(f"linger must be 0 or more seconds, not {self.linger}")


def settings_among(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among a constructor's arguments, its `locals()`."""
    return {field.name: arguments[field.name] for field in fields(ProducerSettings)}
