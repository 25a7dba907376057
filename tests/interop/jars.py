"""The official Java packages: which ones, fetched how, compiled against where.

Nothing of theirs is committed. Maven copies the jars of a set into `.cache/interop/<set>/lib`; a stamp beside them
holds the pom they came from, so a second call starts at once and a changed version fetches again.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.setup import JAVA_NEEDED, SetupError, apt_install, find_java, java_version

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "interop"
JAVA_SOURCES = Path(__file__).resolve().parent / "java"

SETS = {
    "apache-5.5.0": ("5.5.0", ("namesrv", "broker", "tools", "example", "client")),
    "apache-4.9.7": ("4.9.7", ("namesrv", "broker", "tools", "client")),
    "client-4.9.8": ("4.9.8", ("client", "acl")),
}

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pyromq.interop</groupId>
  <artifactId>{set_name}</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "    <dependency><groupId>org.apache.rocketmq</groupId>"
    "<artifactId>rocketmq-{module}</artifactId><version>{version}</version></dependency>"
)


def class_path(set_name: str) -> str:
    """The class path of a set with our driver programs in front, fetched and compiled when that was not done yet."""
    return f"{_compiled(set_name)}:{_fetched(set_name)}/*"


@functools.cache
def tool(name: str) -> str:
    """The path of `java`, `javac` or `mvn`, installed first if it is missing and we may install packages."""
    home = os.environ.get("JAVA_HOME")
    if name == "mvn":
        if shutil.which(name) is None:
            apt_install("maven", wanted="Maven, which fetches the official packages,")
        return shutil.which(name) or name
    # The JDK that Maven takes too: JAVA_HOME wins over the PATH. A runtime alone has no javac.
    folder = str(Path(home) / "bin") if home else None
    java = find_java(home)
    if java is None or java_version(java) < JAVA_NEEDED or shutil.which("javac", path=folder) is None:
        packages = f"openjdk-{JAVA_NEEDED}-jdk-headless", "default-jdk-headless"
        apt_install(*packages, wanted=f"a JDK {JAVA_NEEDED} or newer")
    return shutil.which(name, path=folder) or name


def _fetched(set_name: str) -> Path:
    """The folder with the jars of a set."""
    version, modules = SETS[set_name]
    home = CACHE / set_name
    dependencies = "\n".join(DEPENDENCY.format(module=module, version=version) for module in modules)
    pom = POM.format(set_name=set_name, dependencies=dependencies)
    stamp = home / "fetched"
    with locked(set_name):
        if not (stamp.exists() and stamp.read_text() == pom):
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            (home / "pom.xml").write_text(pom)
            _run([tool("mvn"), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], cwd=home)
            stamp.write_text(pom)
    return home / "lib"


def _compiled(set_name: str) -> Path:
    """The folder with our driver programs, compiled against the jars of a set."""
    jars = _fetched(set_name)
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    classes = CACHE / set_name / "classes"
    stamp = CACHE / set_name / "compiled"
    with locked(set_name):
        if not (stamp.exists() and stamp.read_text() == digest):
            shutil.rmtree(classes, ignore_errors=True)
            _run([tool("javac"), "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)], cwd=CACHE)
            stamp.write_text(digest)
    return classes


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Keeps a test run and a benchmark that start together from fetching into the same folder."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], *, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"`{' '.join(command)}` ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")


if __name__ == "__main__":
    for each in SETS:
        class_path(each)
        print(f"{each}: {len(list((CACHE / each / 'lib').iterdir()))} jars in {CACHE / each}")
