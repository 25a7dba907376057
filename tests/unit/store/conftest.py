"""What tests of the store share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.store.kit import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyromq.store import MessageStore
    from pyromq.testing import Clock, FaultyDisk


@pytest.fixture(autouse=True)
def upkeep_is_not_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of upkeep does all it may, however busy the machine is, so that tests know what one call has done."""
    monkeypatch.setattr("pyromq.store.upkeep._STEP", 3600.0)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Opens stores; when the test is over all are closed and checked."""
    stores = Stores(tmp_path)
    yield stores
    stores.finish()


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    return stores.open()


@pytest.fixture
def disk(stores: Stores) -> FaultyDisk:
    """The disk of `store`."""
    return stores.disk


@pytest.fixture
def clock(stores: Stores) -> Clock:
    """The clock of `store`."""
    return stores.clock
