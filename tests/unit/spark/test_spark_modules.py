"""The top-level modules by which Spark finds our formats."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"
MODULES = sorted(path.stem for path in SOURCE.glob("pyspark_*.py"))


def test_there_are_some():
    assert "pyspark_rocketmq_log" in MODULES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_gives_the_format_of_its_name(module):
    source = importlib.import_module(module).DefaultSource
    assert source.name() == module.removeprefix("pyspark_")


@pytest.mark.slow
def test_they_import_nothing_heavy():
    # Spark imports them on every driver, and one that fails takes all formats away.
    program = f"import sys, {', '.join(MODULES)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyarrow", "numpy", "pandas", "msgspec", "asyncio", "pyromq.client", "pyromq.protocol"} & {*loaded}
