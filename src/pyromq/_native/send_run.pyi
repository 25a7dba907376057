from collections.abc import Callable
from typing import Any

from pyromq.protocol.record import MessageRecord
from pyromq.store.put import Unit
from pyromq.store.queues.consume_queue import ConsumeQueue

SIZE_BOUNDS: tuple[int, ...]

class Target:
    def __new__(
        cls,
        topic: bytes,
        topic_field: bytes,
        stamp: bytes,
        queues: list[ConsumeQueue],
        multi_tag: int,
        fixed_size: int,
        owner: Any,
    ) -> Target: ...

class Pass:
    def __new__(cls, secret: bytes) -> Pass: ...

def use_sha1(init: int, update: int, final: int) -> None: ...

class Replies:
    def __new__(
        cls, json_before: bytes, json_behind: bytes, json_end: bytes, binary_head: bytes, binary_before: bytes
    ) -> Replies: ...

class SendRun:
    count: int
    size: int
    largest: int
    is_placed: bool
    taken: int
    kind: int
    queues: list[ConsumeQueue]

    def __new__(cls, replies: Replies, store_host: bytes) -> SendRun: ...
    def take(
        self,
        connection: Any,
        host: bytes,
        data: bytes,
        pos: int,
        most: int,
        max_header: int,
        targets: dict[bytes, Any],
        ready: Callable[[bytes], object | None],
        admit: Callable[[Any, bytes, bytes], Pass | None] | None = None,
    ) -> int: ...
    def place(
        self, position: int, now: int, marks: dict[ConsumeQueue, tuple[int, int, int]], for_index: bool
    ) -> tuple[bytes, tuple[bytes, list[bytes], bytes, bytes] | None]: ...
    def answers(self) -> list[tuple[Any, bytes]]: ...
    def stored(self) -> list[tuple[Any, int, int, tuple[list[int], int, int, list[int]] | None]]: ...
    def frames(self) -> list[tuple[Any, bytes, Any, int, int, int, int]]: ...
    def units(self, record: type[MessageRecord]) -> list[Unit]: ...
