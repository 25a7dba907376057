"""Items that are made ahead: in order, one at a time, and no thread stays behind."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from pyromq.spark.blocking_client import Link
from pyromq.spark.options import SourceOptions, parse
from pyromq.spark.source.read_ahead import ReadAhead

OPTIONS = parse(SourceOptions, {"namesrv": "127.0.0.1:1", "subscribe": "orders"})


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "read-ahead"]


def test_items_come_in_their_order_and_one_is_made_ahead():
    made = []
    is_made = threading.Event()

    def items():
        for number in range(4):
            made.append(number)
            is_made.set()
            yield number

    seen = []
    with ReadAhead(items(), lambda: None) as ahead:
        for item in ahead:
            if item < 3:
                assert is_made.wait(5)
                while made[-1] == item:
                    time.sleep(0.001)
            assert made[-1] <= item + 1
            seen.append(item)
            is_made.clear()
    assert seen == [0, 1, 2, 3]
    assert threads() == []


def test_an_error_comes_where_its_item_would_have_been():
    def items():
        yield 1
        raise ConnectionResetError("gone")

    seen: list[int] = []
    with pytest.raises(ConnectionResetError, match="gone"), ReadAhead(items(), lambda: None) as ahead:
        seen.extend(ahead)
    assert seen == [1]
    assert threads() == []


def test_whoever_stops_early_leaves_no_thread_behind():
    def items():
        yield from range(100)

    with ReadAhead(items(), lambda: None) as ahead:
        assert next(iter(ahead)) == 0
    assert threads() == []


def test_what_is_waited_for_is_ended_when_the_rest_is_not_wanted():
    with Link(OPTIONS) as link:

        def items():
            yield 1
            link.run(asyncio.sleep(3600))
            yield 2

        began = time.monotonic()
        with ReadAhead(items(), link.interrupt) as ahead:
            assert next(iter(ahead)) == 1
        assert time.monotonic() - began < 5
        assert threads() == []


def test_an_interrupted_link_starts_nothing_more():
    with Link(OPTIONS) as link:
        link.interrupt()
        with pytest.raises(asyncio.CancelledError):
            link.run(asyncio.sleep(3600))
