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
from typing import TYPE_CHECKING, ParamSpec, TypeVar

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
        try:
            yield from method(*args, **kwargs)
        except PyroMQError:
            _hide_stack()
            raise

    return call


def _hide_stack() -> None:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name.startswith("pyspark."):  # a worker, which reports one error and ends
        os.environ[_HIDE] = "1"
