"""What tests of the store share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.unit.store.kit import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyromq.store import MessageStore


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Opens stores; when the test is over all are closed and checked. The clock is that of the other processes."""
    stores = Stores(tmp_path)
    stores.clock.set_millis(time.time_ns() // 1_000_000)
    yield stores
    stores.finish()


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    return stores.open()
