"""Who may import whom. The picture of the layers, and the tests that keep it true."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import pyromq
import pyromq.client

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src" / "pyromq"

EVERYTHING = "protocol filter remoting metrics auth store client sync namesrv controller broker admin dashboard spark"
MAY_IMPORT = {
    "": "client",  # pyromq/__init__.py: only when a name is asked for, see the last tests here
    "errors": "",
    "settings": "",
    "protocol": "",
    "filter": "",
    "remoting": "protocol",
    "store": "protocol",
    "metrics": "protocol remoting",
    "client": "protocol remoting",
    "sync": "client protocol remoting",
    "auth": "protocol remoting",
    "namesrv": "protocol remoting metrics auth",
    "controller": "protocol remoting metrics auth",
    "broker": "protocol remoting metrics auth store filter",
    "_native": "protocol",
    "admin": "protocol client metrics",
    "dashboard": "admin",
    "spark": "protocol client store.format",
    "cli": f"{EVERYTHING} testing",
    "testing": f"{EVERYTHING} cli",
    "__main__": "cli",
}
OPEN_TO_ALL = "errors settings __version__ _native"

# Packages that are heavy or belong to an extra, and the only ones of ours that may import them.
FOREIGN = {
    "pyspark": "spark",
    "pyarrow": "spark",
    "deltalake": "spark",
    "pyiceberg": "spark",
    "fastavro": "spark",
    "google": "spark",
    # The servers import it when the first index entry or timer needs it, the protocol when asked for a dtype.
    "numpy": "spark store broker protocol",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "aiohttp": "controller",
    "opentelemetry": "metrics client",  # the client only where the program uses it
    "typer": "cli",
    "rich": "cli",
}


def imports(module: str, source: str) -> Iterator[tuple[str, bool]]:
    """Every name that `module` (dotted, without pyromq) imports, as an absolute one, and whether it was relative.

    A name from a package may be a module, so `from pyromq.store import format` gives pyromq.store.format.
    """
    package = f"pyromq.{module}".split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, node.module] if node.module else base
            yield from ((".".join([*base, alias.name]), node.level > 0) for alias in node.names)


def violations(module: str, source: str) -> list[str]:
    """What is wrong with the imports of `module`, which is dotted and without pyromq: "store.commit_log"."""
    own = module.split(".")[0].removesuffix("__init__")
    if own not in MAY_IMPORT:
        return [f"{own} has no place among the layers"]
    found = []
    for name, relative in imports(module, source):
        top, _, target = name.partition(".")
        if top != "pyromq":
            if top in FOREIGN and own not in FOREIGN[top].split():
                found.append(f"{module} imports {name}")
        elif relative != (target.split(".")[0] == own):
            found.append(f"{module} imports {name}: relative inside a package, absolute across")
        elif not relative and not any(
            f"{target}.".startswith(f"{allowed}.") for allowed in f"{OPEN_TO_ALL} {MAY_IMPORT[own]}".split()
        ):
            found.append(f"{module} imports {name}")
    return found


def test_every_import_keeps_to_the_layers():
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found += violations(module, path.read_text())
    assert found == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("protocol.frame", "from pyromq.remoting import Connection"),
        ("protocol.frame", "import pyromq.store.commit_log"),
        ("client.producer", "def late():\n    from pyromq.store import CommitLog"),
        ("broker.send", "from pyromq import client"),
        ("spark.reader", "from pyromq.store.commit_log import CommitLog"),
        ("spark.reader", "from pyromq.store import CommitLog"),
        ("store.commit_log", "from pyromq.store.index.index import IndexFile"),
        ("store.commit_log", "from ..errors import StoreError"),
        ("store.commit_log", "from .. import protocol"),
        ("__init__", "from pyromq.broker import Broker"),
        ("namesrv.routes", "import numpy as np"),
        ("client.producer", "from rich.console import Console"),
        ("newcomer.module", ""),
    ],
)
def test_an_import_across_the_layers_is_found(module, source):
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("protocol.frame", "from pyromq.errors import RemoteProtocolError"),
        ("protocol.__init__", "from .frame import FrameDecoder"),
        ("protocol.headers.send", "from ..frame import FrameDecoder"),
        ("broker.send", "from pyromq.store import CommitLog"),
        ("broker.main", "from pyromq import __version__, settings"),
        ("spark.reader", "import pyarrow\nfrom pyromq.store import format\nfrom pyromq.store.format import scan"),
        ("store.commit_log", "import numpy as np\nimport struct"),
        ("cli.namesrv", "import typer\nfrom pyromq.namesrv import NameServer"),
    ],
)
def test_an_import_within_the_layers_is_left_alone(module, source):
    assert violations(module, source) == []


FRAME_OF_A_MODULE = {"annotations", "TYPE_CHECKING"}


def packages() -> list[str]:
    return [
        ".".join(["pyromq", *path.parent.relative_to(SOURCE).parts]) for path in sorted(SOURCE.rglob("__init__.py"))
    ]


@pytest.mark.parametrize("package", packages()[1:])  # the first is pyromq itself, which imports nothing
def test_a_package_exports_exactly_what_it_lists(package):
    module = importlib.import_module(package)
    listed = set(getattr(module, "__all__", ()))
    assert all(hasattr(module, name) for name in listed)
    assert listed >= {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in FRAME_OF_A_MODULE and not isinstance(value, ModuleType)
    }


def test_importing_any_part_does_not_import_the_client():
    program = "import sys, pyromq.broker, pyromq.namesrv; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "pyromq.broker" in loaded
    assert not {"pyromq.client", "numpy", "pyarrow", "pyspark"} & {*loaded}


def test_the_names_of_the_client_are_found_at_the_top():
    assert {*pyromq.__all__} == {*pyromq.client.__all__, "__version__"}
    for name in pyromq.client.__all__:
        assert getattr(pyromq, name) is getattr(pyromq.client, name)
    assert {*pyromq.__all__} <= {*dir(pyromq)}
    with pytest.raises(AttributeError, match="no attribute 'Prodcer'"):
        _ = pyromq.Prodcer


def test_no_module_hides_what_its_package_offers():
    """Importing `pyromq.spark.session` as a module would replace the function of that name for good."""
    for init in SOURCE.rglob("__init__.py"):
        names = {path.stem for path in init.parent.iterdir() if path.suffix == ".py" or path.is_dir()}
        tree = ast.parse(init.read_text(encoding="utf-8"))
        offered = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        assert not names & offered, f"{init.parent.name}: {names & offered}"
