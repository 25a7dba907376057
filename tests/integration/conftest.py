"""What every test with real servers shares: a disk that is never nearly full by accident."""

from __future__ import annotations

import pytest

from pyromq.store.disk import Disk


@pytest.fixture(autouse=True)
def roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers of these tests find half of their disk free, however full this machine's is.

    From 75 % on they would delete early and `doctor` would warn. A test that wants that sets `FaultyDisk.used`.
    """
    monkeypatch.setattr(Disk, "used_ratio", lambda _disk, _folder: 0.5)
