"""docs/lake.md says what is: its options are those declared, its Python compiles and calls what there is."""

from __future__ import annotations

import ast
import inspect
import re

import pytest
from scripts.spark_options import LAKE_KINDS, LAKE_PAGE, render

import pyromq.spark as mq
from pyromq.spark.lake.archive import archive

TEXT = LAKE_PAGE.read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_the_tables_of_options_are_made_from_the_declarations():
    assert {*LAKE_KINDS} <= {*re.findall(r"<!-- options: (\w+) -->", TEXT)}
    # `python scripts/spark_options.py` makes them anew.
    assert render(TEXT) == TEXT


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_of_python_calls_what_there_is(block):
    known = {*inspect.signature(archive).parameters}
    for node in ast.walk(ast.parse(block)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "mq":
            assert node.func.attr in mq.__all__
            if node.func.attr == "archive":
                assert {keyword.arg for keyword in node.keywords} <= known
