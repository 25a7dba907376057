"""Where figures were taken: the facts that a reader needs to judge them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

from scripts.setup import find_java

ROOT = Path(__file__).resolve().parents[1]
QUIET = 0.5


def facts() -> str:
    """The machine in one line, and a warning if others work on it right now."""
    java = _java()
    line = ", ".join(
        (
            f"{_processor()} ({platform.machine()}), {os.cpu_count()} cores",
            f"{platform.system()} {platform.release()}",
            f"{platform.python_implementation()} {platform.python_version()}",
            f"Java {java}" if java else "no Java",
            f"commit {commit()}",
        )
    )
    load = os.getloadavg()[0]
    if load > QUIET:
        line += (
            f"\nNote: the load average was {load:.2f} before the run: others work on this machine, so ratios may lie."
        )
    return line


def _processor() -> str:
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.processor()


def _java() -> str:
    java = find_java(os.environ.get("JAVA_HOME"))
    if java is None:
        return ""
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'"(.+?)"', said)
    return found[1] if found else ""


def commit(which: str | None = None) -> str:
    """A commit in short; without one this one, marked if files differ from it."""
    command = ["git", "--no-optional-locks", "describe", "--always", "--exclude=*", which or "--dirty"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
