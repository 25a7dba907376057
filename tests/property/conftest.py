"""What the tests of compiled code share."""

from __future__ import annotations

import pytest

from pyromq import _native


@pytest.fixture(scope="session")
def native() -> None:
    """Skips a test where there is nothing compiled to compare with."""
    if _native.module("send_run") is None:
        pytest.skip(f"nothing is compiled here: {_native.state()}")
