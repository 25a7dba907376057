"""`make demo` does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_everything_sent_is_sold_and_nothing_is_left():
    command = [sys.executable, "-m", "examples.demo", "--orders", "1000"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    said = " ".join(ended.stdout.split())
    assert re.search(r"1,000 orders, (\d+) payments, (\d+) orders owed", said)
    assert "1 orders came at the second attempt" in said
    assert "left to be read by bookkeeping: 0" in said
