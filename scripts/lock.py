"""requirements.lock: made anew by `make lock`, compared with pyproject.toml by `make check`.

The first line of the lock carries a digest of everything in pyproject.toml that decides which packages are chosen.
So a forgotten `make lock` is noticed without a network, and a change of a linter's setting asks for nothing.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
COMPILE = "pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes"
QUIET = "--no-emit-index-url --no-header --quiet --output-file requirements.lock"


def header(pyproject: str) -> str:
    """The lock's first line for this pyproject.toml."""
    config = tomllib.loads(pyproject)
    project = config["project"]
    chosen_by = [
        config["build-system"]["requires"],
        project["requires-python"],
        project["dependencies"],
        project["optional-dependencies"],
    ]
    digest = hashlib.sha256(json.dumps(chosen_by, sort_keys=True).encode()).hexdigest()
    return f"# Made by `make lock` for the dependencies {digest[:16]} of pyproject.toml; not edited by hand."


def main(arguments: list[str]) -> int:
    expected = header((ROOT / "pyproject.toml").read_text())
    if arguments == ["--check"]:
        if LOCK.read_text().partition("\n")[0] == expected:
            return 0
        print("requirements.lock was made for other dependencies than pyproject.toml has now; run `make lock`")
        return 1
    # An existing lock keeps its versions; `make lock ARGS=--upgrade` takes the newest ones.
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run([uv, *COMPILE.split(), *QUIET.split(), *arguments], cwd=ROOT, check=False)
    if done.returncode == 0:
        LOCK.write_text(f"{expected}\n{LOCK.read_text()}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
