"""Everything that docs/filters.md says of an expression is so, and its Python is sound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api
from tests.unit.test_client_guide import blocks, parsed, program

from pyromq.errors import InvalidFilter
from pyromq.filter import compile_filter
from pyromq.filter.grammar import MAX_LENGTH, MAX_NODES

PAGE = Path(__file__).parents[2] / "docs" / "filters.md"
ROW = re.compile(r"^\| `(?P<expression>[^`]+)` \|(?P<properties>[^|]*)\| (?P<selected>yes|no) \|", re.MULTILINE)
WRONG = re.compile(r"^(?P<expression>\S.*)\n(?P<blanks> *)\^ (?P<reason>.+)$", re.MULTILINE)


@pytest.mark.parametrize("row", [*ROW.finditer(PAGE.read_text())], ids=lambda row: f"{row[1]} {row[2]}")
def test_a_message_is_selected_as_the_page_says(row):
    properties = dict(pair.split("=") for pair in re.findall(r"`([^`]+)`", row["properties"]))
    assert compile_filter(row["expression"]).matches(properties) is (row["selected"] == "yes")


@pytest.mark.parametrize("wrong", [*WRONG.finditer(PAGE.read_text())], ids=lambda wrong: wrong["expression"])
def test_a_mistake_is_shown_where_the_page_says(wrong):
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(wrong["expression"])
    assert (caught.value.column, caught.value.reason) == (len(wrong["blanks"]) + 1, wrong["reason"])


def test_the_page_has_tables_mistakes_and_limits_to_test():
    text = PAGE.read_text()
    assert len(ROW.findall(text)) == text.count("| yes |") + text.count("| no |")
    assert len(WRONG.findall(text)) == len(re.findall(r"^ *\^ ", text, re.MULTILINE))
    assert f"{MAX_LENGTH:,} characters and {MAX_NODES:,} conditions" in text


def test_every_block_of_python_compiles():
    assert len(blocks(PAGE)) == 3
    for block in blocks(PAGE):
        parsed(block)


@pytest.mark.slow
def test_a_type_checker_knows_every_name_in_them(tmp_path):
    module = tmp_path / "filters_page.py"
    module.write_text(program(PAGE))
    options = ["--strict", "--config-file=", "--no-error-summary", "--allow-redefinition"]
    said, errors, _ = api.run([*options, str(module)])
    assert (said, errors) == ("", "")
