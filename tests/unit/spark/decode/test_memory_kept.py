"""What is freed after a batch is there for the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from pyromq.spark.decode.memory import keep_freed_memory

def batch():
    held = [np.ones(700_000, np.uint8) for _ in range(8)]

if sys.argv[1] == "kept":
    keep_freed_memory()
for _ in range(3):
    batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other habits")
def test_batches_use_the_memory_of_those_before():
    def faults(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True, text=True)
        return int(done.stdout)

    assert faults("kept") * 10 < faults("as it is")
