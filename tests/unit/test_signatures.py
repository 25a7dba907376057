"""How many arguments a function takes: so few that a call can be read without looking the function up."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src" / "pyromq"

MOST = 6  # positional ones, without self; the others are given by name, or in a group that has one

EXCEPTIONS = {
    "spark/sink/messages.py:_row": "called for every row with what zip gives of its columns; names would cost a dict",
}


def signatures(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Every function with the number of its positional parameters."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [each.arg for each in [*node.args.posonlyargs, *node.args.args]]
            yield node.name, len(names) - (names[:1] in (["self"], ["cls"]))


def packed_calls(module: ast.Module) -> list[int]:
    """The lines of calls like `f(*(a, b))`: as many arguments, and less to read them by."""
    return [
        node.lineno
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and any(isinstance(each, ast.Starred) and isinstance(each.value, ast.Tuple | ast.List) for each in node.args)
    ]


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


@pytest.mark.slow
def test_no_function_takes_more_than_six_positional_arguments(modules):
    long = {f"{path}:{name}" for path, module in modules.items() for name, count in signatures(module) if count > MOST}
    assert long - EXCEPTIONS.keys() == set()
    assert EXCEPTIONS.keys() - long == set(), "no exception is needed any more"


@pytest.mark.slow
def test_no_arguments_are_packed_into_a_list(modules):
    assert [f"{path}:{line}" for path, module in modules.items() for line in packed_calls(module)] == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("def f(a, b, /, c, d=1): ...", 4),
        ("def f(self, a, *, b, c): ...", 1),
        ("async def f(cls, a, *rest, **more): ...", 1),
        ("class C:\n    def __init__(self, a, b, c, d, e, f, g): ...", 7),
    ],
)
def test_positional_parameters_are_counted(source, count):
    assert [found for _, found in signatures(ast.parse(source))] == [count]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("f(*(a, b), c)", [1]),
        ("\nf(a, *[b])", [2]),
        ("f(*rest)", []),
        ("f(*(each for each in a))", []),
        ("f((a, b))", []),
    ],
)
def test_packed_arguments_are_found(source, found):
    assert packed_calls(ast.parse(source)) == found
