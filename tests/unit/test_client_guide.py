"""The Python in docs/client.md and README.md compiles, and a type checker knows every name and argument in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "client.md", ROOT / "README.md"]

# What the guide's blocks take for granted, once it has been said.
KNOWN = """\
import pyromq
producer: pyromq.Producer
consumer: pyromq.Consumer
"""


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def parsed(block):
    return compile(block, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def program(page):
    """The blocks of a page as one module: imports on top, and each block in a coroutine function of its own."""
    imports, functions = [], []
    for number, block in enumerate(blocks(page)):
        tree = parsed(block)
        statements = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
        imports += [ast.unparse(node) for node in tree.body if node not in statements]
        body = "\n".join(ast.unparse(node) for node in statements)
        functions.append(f"async def block_{number}() -> None:\n" + re.sub("^", "    ", body, flags=re.MULTILINE))
    return "\n".join(["from __future__ import annotations", *imports, KNOWN, *functions, ""])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_python_compiles(page):
    assert blocks(page)
    for block in blocks(page):
        parsed(block)


@pytest.mark.slow
def test_a_type_checker_knows_every_name_in_them(tmp_path):
    modules = []
    for page in PAGES:
        modules.append(tmp_path / f"{page.stem}_page.py")
        modules[-1].write_text(program(page))
    options = ["--strict", "--config-file=", "--no-error-summary", "--allow-redefinition"]
    said, errors, _ = api.run([*options, *map(str, modules)])
    assert (said, errors) == ("", "")


def test_every_example_that_the_guide_could_name_is_there():
    links = re.findall(r"\((\.\./examples[^)#]*)\)", PAGES[0].read_text())
    assert links
    assert all((PAGES[0].parent / link).exists() for link in links)
