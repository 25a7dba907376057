"""What tests of the check share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.store.check.kit import fill, opened


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("check") / "sound"
    store = opened(root)
    fill(store)
    store.close()
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A sound store, to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / "store"))
