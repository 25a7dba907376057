"""Compiled twins of the functions on a message's path. Everything works without them, and more slowly.

    from pyromq import _native
    sends = _native.module("send_run")     # None where it is not compiled, or PYROMQ_PURE=1 forbids it

Whoever has a fast twin asks here, once, when it is imported or made; nobody else imports from this package. What each
module does is said once, in its Python twin; tests/property/test_native_*.py compare the two byte by byte.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["PURE", "is_forbidden", "module", "state"]

PURE = "PYROMQ_PURE"


def module(name: str) -> ModuleType | None:
    """The compiled module of this name, if there is one and it may be used."""
    if is_forbidden():
        return None
    try:
        return importlib.import_module(f"pyromq._native.{name}")
    except ImportError:
        return None


def is_forbidden() -> bool:
    """Whether the environment asks for plain Python."""
    return os.environ.get(PURE, "") not in ("", "0")


def state() -> str:
    """A word on what serves here, for people."""
    if is_forbidden():
        return f"plain Python ({PURE} is set)"
    return "plain Python (not compiled)" if module("send_run") is None else "compiled"
