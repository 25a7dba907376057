"""requirements.lock and docs/requirements.lock: made anew by `make lock`, compared with pyproject.toml by `make check`.

The first line of a lock carries a digest of everything in pyproject.toml that decides which packages are chosen.
So a forgotten `make lock` is noticed without a network, and a change of a linter's setting asks for nothing.

What builds the documents has a lock of its own, so that nothing else waits for it to be installed.
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
DOCS_LOCK = ROOT / "docs" / "requirements.lock"
DOCS_EXTRA = "docs"
COMPILE = "pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes"
QUIET = "--no-emit-index-url --no-header --quiet --output-file"


def header(pyproject: str) -> str:
    """The first line of a lock for this pyproject.toml."""
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
    pyproject = (ROOT / "pyproject.toml").read_text()
    expected = header(pyproject)
    if arguments == ["--check"]:
        if all(lock.read_text().partition("\n")[0] == expected for lock in (LOCK, DOCS_LOCK)):
            return 0
        print("the locks were made for other dependencies than pyproject.toml has now; run `make lock`")
        return 1
    everyday = [extra for extra in tomllib.loads(pyproject)["project"]["optional-dependencies"] if extra != DOCS_EXTRA]
    # The documents are built with the packages that the tests run with, and some more.
    return compiled(LOCK, everyday, arguments, expected) or compiled(
        DOCS_LOCK, [DOCS_EXTRA], ["--constraint", str(LOCK.relative_to(ROOT)), *arguments], expected
    )


def compiled(lock: Path, extras: list[str], arguments: list[str], first_line: str) -> int:
    """Make one lock; an existing one keeps its versions, `make lock ARGS=--upgrade` takes the newest ones."""
    uv = Path(sys.executable).with_name("uv")
    chosen = [word for extra in extras for word in ("--extra", extra)]
    target = str(lock.relative_to(ROOT))
    done = subprocess.run([uv, *COMPILE.split(), *chosen, *QUIET.split(), target, *arguments], cwd=ROOT, check=False)
    if done.returncode == 0:
        lock.write_text(f"{first_line}\n{lock.read_text()}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
