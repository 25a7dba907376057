"""Ports that belong to this process of the tests as long as it lives, whatever else runs on the machine.

A port that the system chose and took back may be somebody else's a moment later. So a test that names a port before
anybody listens there, or finds it again after a restart, takes one from here: below the range from which the system
gives ports to everybody, and from a block that no other process of tests uses meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import socket

FIRST, LAST = 15_000, 32_000
BLOCK = 500


def free_port(brokers: int = 1) -> int:
    """A port where so many brokers fit, ten apart: each takes the port two below, and the one above, too."""
    mine = _block()
    for _ in range(BLOCK):
        port = mine.take(10 * brokers) + 2
        if all(_is_free(port + 10 * number + step) for number in range(brokers) for step in (-2, 0, 1)):
            return port
    raise AssertionError(f"no port is free from {mine.first} on")


class Block:
    """So many ports in a row, handed out in turn. Its first one stays bound, so that others see whose it is."""

    def __init__(self, first: int, mark: socket.socket) -> None:
        self.first = first
        self._mark = mark
        self._next = 1

    def take(self, count: int) -> int:
        """The first of `count` in a row; after the last the first ones are given again."""
        if self._next + count > BLOCK:
            self._next = 1
        taken = self.first + self._next
        self._next += count
        return taken


@functools.cache
def _block() -> Block:
    for first in range(FIRST, LAST, BLOCK):
        mark = socket.socket()
        try:
            mark.bind(("127.0.0.1", first))
        except OSError:
            mark.close()
        else:
            return Block(first, mark)
    raise AssertionError(f"all blocks of ports from {FIRST} to {LAST} are taken")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # what is left of closed connections is no hindrance
        with contextlib.suppress(OSError):
            tried.bind(("0.0.0.0", port))
            tried.listen()
            return True
    return False
