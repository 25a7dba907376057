"""The files of others that the dashboard serves to browsers: taken from npm packages, named in a manifest.

    python scripts/vendor.py           take the files of the versions below anew, and write the manifest
    python scripts/vendor.py --check   compare each file with the manifest; for `make check`
    python scripts/vendor.py --axe     put axe-core into .cache, for the accessibility tests

Packages are fetched by `npm pack` from wherever npm is configured to look. Nothing else of the project needs npm.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "src" / "pyromq" / "dashboard" / "static" / "vendor"
MANIFEST = FOLDER / "manifest.json"
AXE = ROOT / ".cache" / "axe.min.js"
AXE_PACKAGE = "axe-core@4.14.0"

# Package and version: its licence; its files, and what they are called here.
PACKAGES: dict[str, tuple[str, dict[str, str]]] = {
    "htmx.org@2.0.11": ("0BSD", {"dist/htmx.min.js": "htmx.min.js"}),
    "htmx-ext-sse@2.2.4": ("0BSD", {"dist/sse.min.js": "sse.min.js"}),
    "uplot@1.6.32": ("MIT", {"dist/uPlot.iife.min.js": "uplot.min.js", "dist/uPlot.min.css": "uplot.min.css"}),
}


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        wrong = problems()
        print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
        return 1 if wrong else 0
    if "--axe" in arguments:
        AXE.parent.mkdir(exist_ok=True)
        AXE.write_bytes(unpacked(AXE_PACKAGE)["axe.min.js"])
        return 0
    entries = []
    for package, (licence, files) in PACKAGES.items():
        content = unpacked(package)
        described = json.loads(content["package.json"])
        licence_file = f"{described['name']}.LICENSE"
        (FOLDER / licence_file).write_bytes(content["LICENSE"])
        for source, name in files.items():
            (FOLDER / name).write_bytes(content[source])
            entries.append(
                {
                    "file": name,
                    "package": described["name"],
                    "version": described["version"],
                    "licence": licence,
                    "licenceFile": licence_file,
                    "source": source,
                    "sha256": hashlib.sha256(content[source]).hexdigest(),
                }
            )
    MANIFEST.write_text(json.dumps(entries, indent=2) + "\n")
    return 0


def problems(folder: Path = FOLDER) -> list[str]:
    """What is wrong with the files: changed, missing, or not in the manifest."""
    entries = {entry["file"]: entry for entry in json.loads((folder / "manifest.json").read_text())}
    wrong = []
    for name, entry in entries.items():
        path = folder / name
        if not path.exists():
            wrong.append(f"{name} is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
            wrong.append(f"{name} is not the file of {entry['package']} {entry['version']}")
        if not (folder / entry["licenceFile"]).exists():
            wrong.append(f"the licence of {entry['package']} is missing")
    there = {path.name for path in folder.iterdir() if path.suffix in (".js", ".css")}
    wrong += [f"{name} is not in the manifest" for name in sorted(there - entries.keys())]
    wanted = {f"{entry['package']}@{entry['version']}" for entry in entries.values()}
    wrong += [f"the manifest does not have {package}" for package in sorted(PACKAGES.keys() - wanted)]
    return wrong


def unpacked(package: str) -> dict[str, bytes]:
    """The files of a package by their paths."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is needed to fetch packages; `--check` works without")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([npm, "pack", "--silent", package], cwd=folder, check=True, capture_output=True)
        [archive] = Path(folder).glob("*.tgz")
        found = {}
        with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as tar:
            for member in tar:
                if member.isfile() and (content := tar.extractfile(member)) is not None:
                    found[member.name.partition("/")[2]] = content.read()
        return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
