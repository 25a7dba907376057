"""The official Go and Node clients with our driver programs around them, fetched into `.cache` and built once.

The versions are pinned beside the programs (`go/go.mod`, `go/go.sum`, `node/package-lock.json`). Nothing of theirs is
committed. A stamp holds what was built from, so a second call starts at once.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.setup import SetupError
from tests.interop.jars import CACHE, locked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SOURCES = Path(__file__).resolve().parent
_WANTED = {
    "go": "the Go client needs Go 1.21 or newer: put `go` into the PATH",
    "npm": "the Node client needs Node.js 16 or newer with npm: put both into the PATH",
    "node": "the Node client needs Node.js 16 or newer with npm: put both into the PATH",
}


@functools.cache
def go_command() -> list[str]:
    """The command line of the Go driver, but for the name server. SetupError says what is missing."""
    home = _built("go", lambda folder: _run([_tool("go"), "build", "-o", "peer", "."], folder))
    return [str(home / "peer")]


@functools.cache
def node_command() -> list[str]:
    """The command line of the Node driver, but for the name server. SetupError says what is missing."""
    home = _built("node", lambda folder: _run([_tool("npm"), "ci", "--no-audit", "--no-fund", "--silent"], folder))
    return [_tool("node"), str(home / "peer.js")]


COMMANDS: dict[str, Callable[[], list[str]]] = {"go": go_command, "node": node_command}


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SetupError(_WANTED[name])
    return found


def _built(name: str, build: Callable[[Path], None]) -> Path:
    """A folder with the sources of a driver, built there when they are not the ones that it was built from."""
    sources = sorted(path for path in (SOURCES / name).iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()
    home = CACHE / name
    stamp = home / "built"
    with locked(name):
        if not (stamp.exists() and stamp.read_text() == digest):
            home.mkdir(parents=True, exist_ok=True)
            for path in sources:
                shutil.copy(path, home)
            build(home)
            stamp.write_text(digest)
    return home


def _run(command: Sequence[str], folder: Path) -> None:
    # Modules go where the rest goes, so that `make clean` removes them, too; writable, or it could not.
    environment = os.environ | {"GOMODCACHE": str(CACHE / "go-modules"), "GOFLAGS": "-modcacherw -buildvcs=false"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-2000:]
        raise SetupError(f"`{' '.join(command)}` ended with {done.returncode} in {folder}:\n{said}")
