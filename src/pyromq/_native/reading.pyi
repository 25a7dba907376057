from pyromq.store.segment import Segment

def few(
    entries: bytes, segment: Segment, file_end: int, wanted: int, max_bytes: int, joined: bool
) -> tuple[list[memoryview], int, int, int] | None: ...
