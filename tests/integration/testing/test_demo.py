"""`make demo` does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.spark


def test_everything_sent_is_sold_and_spark_agrees(tmp_path):
    page = tmp_path / "demo.html"
    command = [sys.executable, "-m", "examples.demo", "--orders", "1000", "--report", str(page)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "ERROR" not in ended.stderr
    said = " ".join(ended.stdout.split())
    assert re.search(r"sent 2,000 messages", said)
    assert "in transactions 40 orders committed, 10 not" in said
    assert re.search(r"bookkeeping 1,040 orders, (\d+) payments; 1 came twice", said)
    assert re.search(r"gifts (\d+) orders, by SQL", said)
    assert re.search(r"reminders (\d+) orders are owed", said)
    assert "left to be read bookkeeping 0, gifts 0, spark-paid 0, spark-revenue 0" in said
    assert "the books and Spark agree" in said
    assert "archived 1,9" in said
    assert "1,000 orders in the lake, 40 live, 1,040 as one table" in said
    assert page.read_text().count('<td class="bar">') == 7
    channels = re.findall(
        r'<td class="number">([\d,]+) in the lake</td><td class="number">(\d+) live', page.read_text()
    )
    assert sum(int(live) for _, live in channels) == 40
