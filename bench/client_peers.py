"""The clients that ours is measured beside, each in an environment of its own under `.cache/bench`.

None of them is needed: what cannot be had is said, and left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "bench"
INSTALL_SECONDS = 300.0
PURE = "https://github.com/tt67wq/pyrocketmq"


class Missing(Exception):
    """A peer cannot be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program that takes a load, a name server and a time; `-m module` with its own interpreter."""

    name: str
    python: str
    module: str
    loads: frozenset[str]
    path: str = ""

    def command(self, load: str, namesrv: str, seconds: float) -> list[str]:
        return [self.python, "-m", self.module, load, namesrv, str(seconds)]

    def environment(self) -> dict[str, str]:
        foreign = ("PYROMQ_", "ROCKETMQ", "NAMESRV", "PYTHONPATH")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        # The C++ client writes its logs below HOME.
        return inherited | {"PYTHONPATH": self.path, "HOME": str(CACHE), "PYTHONUNBUFFERED": "1"}


def ours() -> Program:
    return Program("pyromq", sys.executable, "bench.client_loads", frozenset(), str(ROOT / "src"))


def cpp() -> Program:
    """The official C++ client as a wheel. It bundles its library."""
    python = _environment("rocketmq-cpp", "rocketmq==0.4.4")
    _must_import(python, "rocketmq.client", "")
    loads = frozenset(("sync_send", "sync_send_8", "consume"))
    return Program("C++ wheel 0.4.4", python, "bench.client_cpp", loads)


def pure() -> Program:
    """pyrocketmq in pure Python, which is on GitHub only: the package of that name on PyPI drives the Java client."""
    home = CACHE / "pyrocketmq"
    source = home / "source"
    if not (source / "src" / "pyrocketmq").is_dir():
        done = _run(["git", "clone", "--quiet", "--depth", "1", PURE, str(source)])
        if done.returncode:
            raise Missing(f"`git clone {PURE} {source}` failed: {_last_line(done.stderr)}")
    python = _environment("pyrocketmq", "aiofiles>=25.1.0", "python-statemachine>=2.5.0")
    _must_import(python, "pyrocketmq.producer", str(source / "src"))
    loads = frozenset(("send", "sync_send", "sync_send_8", "consume"))
    return Program("pyrocketmq", python, "bench.client_pyrocketmq", loads, str(source / "src"))


def _environment(name: str, *packages: str) -> str:
    """The interpreter of a virtual environment with these packages, made when it is not there yet."""
    venv = CACHE / name / "venv"
    python = venv / "bin" / "python"
    stamp = CACHE / name / "installed"
    if stamp.exists() and stamp.read_text() == " ".join(packages):
        return str(python)
    uv = str(Path(sys.executable).with_name("uv"))
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(venv)],
        [uv, "pip", "install", "--quiet", "--python", str(python), *packages],
    ):
        done = _run(command)
        if done.returncode:
            raise Missing(f"`{' '.join(command)}` failed: {_last_line(done.stderr)}")
    stamp.write_text(" ".join(packages))
    return str(python)


def _must_import(python: str, modules: str, path: str) -> None:
    done = _run([python, "-c", f"import {modules}"], {**os.environ, "PYTHONPATH": path})
    if done.returncode:
        raise Missing(f"`import {modules}` failed: {_last_line(done.stderr)}")


def _run(command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Missing(f"`{' '.join(command)}`: {exc}") from exc


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]
