from collections.abc import Callable
from typing import Any

def joined_key_hashes(
    topics: list[str | bytes],
    properties: bytes | bytearray,
    sizes: Any,
    prefix_hash: Callable[[str | bytes], Any],
) -> tuple[bytearray, bytearray] | None: ...
