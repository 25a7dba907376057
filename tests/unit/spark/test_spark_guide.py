"""docs/spark.md says what is: its Python compiles and its names exist, its options and columns are those declared."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from scripts.spark_options import KINDS, PAGE, PIPELINE_KINDS, PIPELINES_PAGE, render

import pyromq.spark as mq
from pyromq.spark.meta.tables import TABLES
from pyromq.spark.option_values import declared
from pyromq.spark.schema import COLUMNS

TEXT = Path(PAGE).read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_the_tables_of_options_are_made_from_the_declarations():
    assert re.findall(r"<!-- options: (\w+) -->", TEXT) == list(KINDS)
    # `python scripts/spark_options.py` makes them anew.
    assert render(TEXT) == TEXT


def test_the_tables_of_settings_are_made_from_the_declarations():
    page = Path(PIPELINES_PAGE).read_text()
    assert re.findall(r"<!-- settings: (\w+) -->", page) == list(PIPELINE_KINDS)
    assert render(page) == page


def test_every_table_of_the_cluster_is_listed_with_its_columns():
    [page] = re.findall(r"^## `rocketmq_meta`.*?^## ", TEXT, re.DOTALL | re.MULTILINE)
    for name, table in TABLES.items():
        [line] = [line for line in page.splitlines() if line.startswith(f"| `{name}` | ")]
        assert re.findall(r"`(\w+)`", line) == [name, *table.columns]


def test_every_column_of_a_message_is_named():
    [rows] = re.findall(r"^## Rows\n(.*?)^## ", TEXT, re.DOTALL | re.MULTILINE)
    assert not {*COLUMNS} - {*re.findall(r"`(\w+)`", rows)}


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_of_python_calls_what_there_is(block):
    options = {info.key for kind in KINDS.values() for _, info in declared(kind)}
    for node in ast.walk(ast.parse(block)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "mq":
            assert node.func.attr in mq.__all__
        if node.func.attr in ("options", "stream", "read"):
            assert {keyword.arg for keyword in node.keywords} <= options


def test_every_helper_is_named():
    assert not {*mq.__all__} - {*re.findall(r"mq\.(\w+)", TEXT)}
