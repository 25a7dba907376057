"""The virtual environment in .venv and, with --java, a Java runtime: whatever `make` needs, from nothing.

With --docs also the packages that build the documents, and with --etcd also etcd, which nothing else needs.

Needs Python 3.11 and its standard library. Every package comes pinned and with its hash from requirements.lock, the
installer (uv) and the build backend among them. Once all is in place a call looks at one stamp and returns.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

# Before the first annotation: an old Python must get as far as this sentence.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        "PyroMQ needs Python 3.11 or newer, this is {}.{}; name one: make PYTHON=python3.12".format(*sys.version_info)
    )

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
DOCS_LOCK = ROOT / "docs" / "requirements.lock"
STAMP = VENV / "pyromq-setup"
NATIVE_STAMP = VENV / "pyromq-native"
JAVA_STAMP = VENV / "pyromq-java"
JAVA_NEEDED = 17


class SetupError(Exception):
    """Something only the user can put right; the message says what."""


def main(arguments: list[str]) -> None:
    if not is_stamped(STAMP, packages_wanted()):
        # Two calls of make at once are one set-up: the second waits here and then finds the stamp.
        with LOCK.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not is_stamped(STAMP, packages_wanted()):
                set_up_packages()
    if not is_stamped(NATIVE_STAMP, native_wanted()):
        with LOCK.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not is_stamped(NATIVE_STAMP, native_wanted()):
                set_up_native()
    if "--java" in arguments:
        set_up_java()
    if "--etcd" in arguments and shutil.which("etcd") is None:
        apt_install("etcd-server", "etcd", wanted="etcd")
    if "--promtool" in arguments and shutil.which("promtool") is None:
        apt_install("prometheus", wanted="promtool")
    if "--chromium" in arguments and not (shutil.which("chromium") or shutil.which("chromium-browser")):
        apt_install("chromium", "chromium-browser", wanted="Chromium")
    if "--docs" in arguments and not (VENV / "bin" / "mkdocs").exists():
        say("installing the packages of docs/requirements.lock")
        uv("pip", "install", "--require-hashes", "--requirement", DOCS_LOCK)


def is_stamped(stamp: Path, content: str) -> bool:
    return stamp.exists() and stamp.read_text() == content


# Packages


def packages_wanted() -> str:
    """What the stamp says when nothing is left to do: this Python, this place, these requirements."""
    inputs = hashlib.sha256(LOCK.read_bytes() + (ROOT / "pyproject.toml").read_bytes())
    return f"{platform.python_version()} {ROOT} {inputs.hexdigest()}"


def set_up_packages() -> None:
    if not is_usable_venv():
        say(f"making {VENV.name} with Python {platform.python_version()}")
        if find_spec("ensurepip") is None:
            # Debian and its children ship Python's venv as a package of its own.
            major_minor = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
            apt_install(major_minor, "python3-venv", wanted="Python's venv module")
        # The base interpreter: the one that runs may live in the environment that is about to be replaced.
        run(getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--clear", VENV)

    say("installing uv")
    with tempfile.TemporaryDirectory() as folder:
        only_uv = Path(folder) / "uv.lock"
        only_uv.write_text(locked("uv"))
        pip("install", "--quiet", "--no-deps", "--require-hashes", "--requirement", only_uv)

    say("installing the packages of requirements.lock")
    uv("pip", "sync", "--require-hashes", LOCK)
    say("installing pyromq")
    uv("pip", "install", "--no-deps", "--no-build-isolation", "--editable", ROOT)
    STAMP.write_text(packages_wanted())


def native_wanted() -> str:
    """What the stamp says when pyromq._native is compiled, or cannot be: these sources, by this compiler."""
    folder = ROOT / "src" / "pyromq" / "_native"
    sources = sorted([*folder.glob("*.p??"), *folder.glob("*.h")])
    inputs = hashlib.sha256(b"".join(path.read_bytes() for path in (*sources, ROOT / "hatch_build.py")))
    return f"{packages_wanted()} {shutil.which('cc') or shutil.which('gcc')} {inputs.hexdigest()}"


def set_up_native() -> None:
    say("compiling pyromq._native")
    try:
        run(PYTHON, ROOT / "hatch_build.py")
    except SetupError:
        say("no C compiler, or no headers of Python: PyroMQ runs without its compiled parts, and more slowly")
    NATIVE_STAMP.write_text(native_wanted())


def is_usable_venv() -> bool:
    """Whether .venv is whole, was made by this Python and has not been moved since (its scripts name their place)."""
    config = VENV / "pyvenv.cfg"
    if not (PYTHON.exists() and (VENV / "bin" / "pip").exists() and config.exists()):
        return False
    lines = config.read_text().splitlines()
    return f"version = {platform.python_version()}" in lines and any(
        line.startswith("command = ") and line.endswith(f" {VENV}") for line in lines
    )


def locked(package: str) -> str:
    """The lines of requirements.lock that pin `package`."""
    entry = re.search(rf"^{package}==.*\n(?:    .*\n)*", LOCK.read_text(), re.MULTILINE)
    if entry is None:
        raise SetupError(f"requirements.lock does not pin {package}; run `make lock`")
    return entry[0]


def pip(*arguments: str | Path) -> str:
    return run(PYTHON, "-m", "pip", "--disable-pip-version-check", *arguments)


def uv(*arguments: str | Path) -> None:
    run(VENV / "bin" / "uv", "--quiet", *arguments, env=uv_environment())


def uv_environment() -> dict[str, str]:
    """uv does not read pip's configuration, so a mirror or a certificate named there is passed on."""
    env = {**os.environ, "VIRTUAL_ENV": str(VENV)}
    configured = pip("config", "list")
    for setting, variable in (("index-url", "UV_DEFAULT_INDEX"), ("cert", "SSL_CERT_FILE")):
        found = re.search(rf"^\S+\.{setting}='(.+)'$", configured, re.MULTILINE)
        if found:
            env.setdefault(variable, found[1])
    if not os.access(Path("~").expanduser(), os.W_OK):
        env.setdefault("UV_CACHE_DIR", str(ROOT / ".cache" / "uv"))
    return env


# Java


def set_up_java() -> None:
    """Find a Java runtime as Spark does (JAVA_HOME decides when it is set), or install one where we may."""
    home = os.environ.get("JAVA_HOME")
    java = find_java(home)
    if java and is_stamped(JAVA_STAMP, fingerprint(java)):
        return
    if java is None or java_version(java) < JAVA_NEEDED:
        if home:
            raise SetupError(f"JAVA_HOME={home} holds no Java {JAVA_NEEDED} or newer; point it at one or unset it")
        packages = f"openjdk-{JAVA_NEEDED}-jre-headless", "default-jre-headless"
        apt_install(*packages, wanted=f"a Java {JAVA_NEEDED} runtime or newer")
        java = find_java(home)
        if java is None or java_version(java) < JAVA_NEEDED:
            raise SetupError(
                f"the Java that was installed is not the one on PATH; put Java {JAVA_NEEDED} or newer first"
            )
    JAVA_STAMP.write_text(fingerprint(java))


def find_java(home: str | None) -> Path | None:
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    return Path(found).resolve() if found else None


def fingerprint(java: Path) -> str:
    """Starting Java to ask for its version takes 0.1 s; an unchanged file needs no second question."""
    return f"{java} {java.stat().st_mtime_ns}"


def java_version(java: Path) -> int:
    """The feature release, 8 for 1.8.0; 0 when it does not start."""
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(said[1]) if said and answer.returncode == 0 else 0


# Both


def apt_install(*packages: str, wanted: str) -> None:
    """Install the first of `packages` that this system has, if we may install anything at all."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SetupError(f"{wanted} is missing; please install it (on Debian or Ubuntu: apt-get install {packages[0]})")
    say(f"installing {wanted}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", env=env)
    for package in packages:
        try:
            run("apt-get", "install", "-y", "--no-install-recommends", package, env=env)
            return
        except SetupError:
            if package == packages[-1]:
                raise


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """What `command` printed. Its output is shown only when it fails: a good run has nothing to say."""
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SetupError(f"{done.stdout.rstrip()}\nfailed: {' '.join(map(str, command))}")
    return done.stdout


def say(step: str) -> None:
    print(f"setup: {step}", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SetupError as error:
        sys.exit(f"setup: {error}")
