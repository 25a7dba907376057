"""Write the type stubs of pyromq.sync, whose classes are made at run time: src/pyromq/sync/__init__.pyi.

Signatures, annotations and docstrings are those of the async classes, read out of their source; what each name becomes
is in the table that the classes themselves are made of. `--check` only says whether the file is as it would be written.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq import client, sync
from pyromq.sync.facade import blocking_doc
from pyromq.sync.received import ReceivedMessage
from pyromq.sync.table import TABLE, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

STUB = Path(__file__).resolve().parent.parent / "src" / "pyromq" / "sync" / "__init__.pyi"

HEAD = '''\
# Made by scripts/sync_stubs.py; do not edit.
# ruff: noqa: A002
"""{doc}"""
'''

# Attributes that are set without an annotation.
ATTRIBUTES = {
    ("Client", "client_id"): "str",
    ("Client", "versions"): "dict[str, int]",
    ("Producer", "group"): "str",
    ("Consumer", "client"): "Client",
    ("PullConsumer", "group"): "str",
    **{
        ("AdminClient", name): kind
        for name, kind in {
            "topics": "TopicAdmin",
            "groups": "GroupAdmin",
            "offsets": "OffsetAdmin",
            "messages": "MessageAdmin",
            "brokers": "BrokerAdmin",
            "namesrv": "NameServerAdmin",
            "acl": "AclAdmin",
            "clients": "ClientAdmin",
            "controllers": "ControllerAdmin",
        }.items()
    },
}

EXIT = (
    "def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, "
    "trace: TracebackType | None) -> None: ..."
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Imports:
    """What the stub imports: every name of an annotation, from where the async class has it."""

    def __init__(self) -> None:
        self.lines: dict[str, set[str]] = {}

    def add(self, module: str, name: str) -> None:
        self.lines.setdefault(module, set()).add(name)

    def of(self, tree: ast.AST, module: ModuleType) -> None:
        """Import what `tree`, a piece of the source of `module`, refers to."""
        known = imported_names(module)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name) or node.id in sync.__all__ or hasattr(builtins, node.id):
                continue
            if node.id in client.__all__:
                self.add("pyromq.client", node.id)
            else:
                self.add(known.get(node.id, module.__name__), node.id)

    def text(self) -> str:
        return "\n".join(
            f"import {', '.join(names)}" if module == "import" else f"from {module} import {', '.join(sorted(names))}"
            for module, names in self.lines.items()
        )


@cache
def imported_names(module: ModuleType) -> dict[str, str]:
    """Where a module has its names from, those for type checkers only among them; "import" for modules."""
    package = module.__name__.split(".")[:-1]
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            found.update({alias.name: source for alias in node.names if alias.asname is None})
        elif isinstance(node, ast.Import):
            found.update({alias.name: "import" for alias in node.names if alias.asname is None})
    return found


@cache
def functions_of(cls: type) -> dict[str, tuple[Function, ModuleType]]:
    """The methods of a class as they stand in its source, those of its bases among them."""
    found: dict[str, tuple[Function, ModuleType]] = {}
    for base in cls.__mro__[:-1]:
        module = sys.modules[base.__module__]
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for node in definition.body:
            if isinstance(node, Function):
                found.setdefault(node.name, (node, module))
    return found


def documented(head: str, doc: str | None) -> str:
    """A definition with nothing but its docstring."""
    doc = blocking_doc(doc)
    if not doc:
        return f"{head} ..."
    end = "\n" if "\n" in doc else ""
    text = textwrap.indent(f'"""{doc}{end}"""', "    ")
    return f"{head}\n{text}"


def shown(default: ast.expr) -> ast.expr:
    """A default value, unless it is one that only the source could explain."""
    if isinstance(default, ast.Attribute):  # a member of an enum, which the annotation names too
        return default
    unclear = any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(default))
    return ast.Constant(...) if unclear else default


class Stub:
    """Writes the stub of one class."""

    def __init__(self, cls: type, imports: Imports) -> None:
        self._cls = cls
        self._imports = imports

    def text(self) -> str:
        cls = self._cls
        base = next((f"({parent.__name__})" for parent in cls.__mro__[1:] if parent in TABLE), "")
        inherited = {name for parent in cls.__mro__[1:] if parent in TABLE for name in TABLE[parent].names}
        own = {name for name in TABLE[cls].names if name not in inherited}
        members = list(self._init())
        for name, kind in TABLE[cls].names.items():
            if name in own:
                members += MAKERS[kind](self, name)
        body = "\n".join(textwrap.indent(member, "    ") for member in members)
        return f"{documented(f'class {cls.__name__}{base}:', inspect.getdoc(cls))}\n{body}\n"

    def _init(self) -> Iterator[str]:
        if self._cls.__name__ not in MADE_BY_OTHERS:
            function, module = functions_of(self._cls)["__init__"]
            yield self._definition("__init__", function, module)

    def method(self, name: str) -> list[str]:
        function, module = functions_of(self._cls)[name]
        return [self._definition(name, function, module)]

    def submits(self, name: str) -> list[str]:
        function, module = functions_of(self._cls)[name]
        assert isinstance(function.returns, ast.Subscript)
        assert ast.unparse(function.returns.value) == "asyncio.Future"
        self._imports.add("concurrent.futures", "Future")
        self._imports.of(function.returns.slice, module)
        return [self._definition(name, function, module, f"Future[{ast.unparse(function.returns.slice)}]")]

    def reads(self, name: str) -> list[str]:
        if name in functions_of(self._cls):
            function, module = functions_of(self._cls)[name]
            return [f"@property\n{self._definition(name, function, module)}"]
        for parent in self._cls.__mro__:
            if (annotation := ATTRIBUTES.get((parent.__name__, name))) is not None:
                return [f"@property\ndef {name}(self) -> {annotation}: ..."]
        raise LookupError(f"{self._cls.__name__}.{name} has no annotation; name its type in ATTRIBUTES")

    def iterates(self, name: str) -> list[str]:
        function, module = functions_of(self._cls)[name]
        given = function.returns
        if isinstance(given, ast.Subscript):  # AsyncIterator[...]
            element = given.slice
        else:  # Self: the class is its own iterator
            function_next, module = functions_of(self._cls)["__anext__"]
            assert function_next.returns is not None
            element = function_next.returns
        self._imports.add("collections.abc", "Iterator")
        self._imports.of(element, module)
        return [documented(f"def __iter__(self) -> Iterator[{ast.unparse(element)}]:", ast.get_docstring(function))]

    def enters(self, name: str) -> list[str]:
        self._imports.add("typing", "Self")
        self._imports.add("types", "TracebackType")
        return ["def __enter__(self) -> Self: ...", EXIT]

    def _definition(self, name: str, function: Function, module: ModuleType, returns: str | None = None) -> str:
        arguments = function.args
        arguments.defaults = [shown(value) for value in arguments.defaults]
        arguments.kw_defaults = [None if value is None else shown(value) for value in arguments.kw_defaults]
        self._imports.of(arguments, module)
        if returns is None:
            assert function.returns is not None
            self._imports.of(function.returns, module)
            returns = ast.unparse(function.returns)
        head = f"def {name}({ast.unparse(arguments)}) -> {returns}:"
        return documented(head, ast.get_docstring(function))


# Found at an AdminClient or TransactionProducer, and never made by users.
MADE_BY_OTHERS = {"Transaction", *(kind for (owner, _), kind in ATTRIBUTES.items() if owner == "AdminClient")}

MAKERS: dict[Kind, Callable[[Stub, str], list[str]]] = {
    Kind.AWAITS: Stub.method,
    Kind.STARTS: Stub.method,
    Kind.CLOSES: Stub.method,
    Kind.SUBMITS: Stub.submits,
    Kind.CALLS: Stub.method,
    Kind.LISTENS: Stub.method,
    Kind.DECORATES: Stub.method,
    Kind.LOOKS: Stub.reads,
    Kind.IS: Stub.reads,
    Kind.ITERATES: Stub.iterates,
    Kind.ENTERS: Stub.enters,
}


def message_stub(imports: Imports) -> str:
    """The stub of the message, which is no twin of the async one but a subclass."""
    imports.add("pyromq", "client")  # not from there: the stub has a ReceivedMessage of its own
    (definition,) = ast.parse(inspect.getsource(ReceivedMessage)).body
    assert isinstance(definition, ast.ClassDef)
    head = f"class {definition.name}(client.ReceivedMessage):"
    members = []
    for node in definition.body:
        if isinstance(node, ast.FunctionDef):
            assert node.returns is not None
            imports.of(node.args, sys.modules[ReceivedMessage.__module__])
            imports.of(node.returns, sys.modules[ReceivedMessage.__module__])
            signature = f"def {node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}:"
            members.append(documented(f"{signature}  # type: ignore[override]", ast.get_docstring(node)))
    body = "\n".join(textwrap.indent(member, "    ") for member in members)
    return f"{documented(head, inspect.getdoc(ReceivedMessage))}\n{body}\n"


def stub() -> str:
    """The whole file, formatted."""
    imports = Imports()
    classes = [message_stub(imports)] + [Stub(cls, imports).text() for cls in TABLE]
    listed = "__all__ = [" + ", ".join(f'"{name}"' for name in sync.__all__) + "]"
    doc = (sync.__doc__ or "").strip() + "\n"
    text = "\n".join([HEAD.format(doc=doc), imports.text(), "", listed, "", *classes])
    for command in (["check", "--fix-only", "--select", "I"], ["format"]):
        ruff = [str(Path(sys.executable).with_name("ruff")), *command, "--quiet", "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    wanted = stub()
    if "--check" in sys.argv[1:]:
        if STUB.exists() and STUB.read_text() == wanted:
            return 0
        print(f"{STUB.name} of pyromq.sync is out of date; make it anew: python scripts/sync_stubs.py")
        return 1
    STUB.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
