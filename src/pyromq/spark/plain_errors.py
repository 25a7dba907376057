"""Errors in one sentence: no stack of ours for what a user can put right.

Spark wraps what our code raises in its worker processes: its own words, then both stacks, and our sentence as the last
of many lines. A worker leaves the stack out if an environment variable of its own says so when it reports an error,
right before it exits. So the variable is set for an error of ours, whose sentence says all there is to know, and for no
other.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pyromq.errors import PyroMQError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")

_HIDE = "SPARK_HIDE_TRACEBACK"


def plainly(method: Callable[P, T]) -> Callable[P, T]:
    """A method that Spark calls in one of its workers."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except PyroMQError:
            _hide_stack()
            raise

    return call


def plainly_each(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for one that returns an iterator."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        _expect_hang_up()
        try:
            yield from method(*args, **kwargs)
        except PyroMQError:
            _hide_stack()
            raise

    return call


def _hide_stack() -> None:
    if _is_worker():
        os.environ[_HIDE] = "1"  # it reports one error and ends


def _expect_hang_up() -> None:
    """Keep a worker quiet when Spark has enough rows: after `show` or LIMIT it hangs up, and the worker prints that."""
    if not _is_worker() or hasattr(traceback.print_exc, "__wrapped__"):
        return
    plain = traceback.print_exc

    @functools.wraps(plain)
    def print_exc(*args: Any, **kwargs: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            plain(*args, **kwargs)

    traceback.print_exc = print_exc


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
