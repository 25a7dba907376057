"""SQL92 expressions: which messages they select. Every line was also asked of RocketMQ 4.9.7 and 5.5.0."""

from __future__ import annotations

import pytest

from pyromq.filter import compile_filter
from pyromq.filter.java_numbers import NotANumber

# Each with the properties of a message, and what the expression is for it; "error" ends the evaluation.
CASES = [
    ("a = 5", {}, None),
    ("a = 5", {"a": "5"}, True),
    ("a = 5", {"a": "+5"}, True),
    ("a = 5", {"a": "5.0"}, "error"),
    ("a = 5", {"a": " 5"}, "error"),
    ("a = 5", {"a": "1_0"}, "error"),
    ("a = 5", {"a": "2147483648"}, "error"),
    ("a = 5", {"a": "\u0665"}, True),  # a digit of another script
    ("a = 2147483648", {"a": "2147483648"}, True),
    ("a > -2147483648", {"a": "2147483648"}, True),  # written as a long
    ("5 = a", {}, False),
    ("5 = a", {"a": "5"}, True),
    ("a = b", {}, True),
    ("a = b", {"a": "1"}, False),
    ("a = b", {"b": "1"}, None),
    ("a = b", {"a": "1", "b": "1.0"}, False),
    ("a >= b", {"a": "1", "b": " 1.0d"}, True),
    ("a > b", {"a": "x", "b": "1"}, "error"),
    ("a > b", {"a": "0.0", "b": "-0.0"}, True),
    ("a >= b", {"a": "NaN", "b": "NaN"}, True),
    ("a > 1.5", {"a": "NaN"}, True),
    ("a < 1.5", {"a": "NaN"}, False),
    ("1.5 < a", {"a": "NaN"}, True),
    ("a > 1.5", {"a": "Infinity"}, True),
    ("a > 1.5", {"a": "inf"}, "error"),
    ("a > 1.5", {"a": "0x1p1"}, True),
    ("a > 5", {}, None),
    ("a > 5", {"a": "6"}, True),
    ("a > 5", {"a": "10.5"}, "error"),
    ("5 > a", {"a": "6"}, False),
    ("5 >= a", {"a": "5"}, True),
    ("a <> 5", {"a": "6"}, True),
    ("a <> 5", {}, None),
    ("NOT a = 5", {"a": "6"}, False),
    ("a = 'x'", {"a": "x"}, True),
    ("'x' = a", {}, False),
    ("a = ''", {}, None),
    ("a = TRUE", {"a": "tRuE"}, True),
    ("a = FALSE", {"a": "yes"}, True),
    ("TRUE = a", {"a": "true"}, "error"),
    ("5 = TRUE", {}, False),
    ("'true' = TRUE", {}, True),
    ("'5' = 5", {}, True),
    ("'x' = 5", {}, "error"),
    ("1 = 1.0", {}, True),
    ("9007199254740993 = 9007199254740992.0", {}, True),
    ("(a = 5) = b", {}, True),
    ("(a = 5) = b", {"a": "5", "b": "true"}, "error"),
    ("b = (a = 5)", {"a": "5", "b": "true"}, True),
    ("(a = 5) = TRUE", {"a": "5"}, True),
    ("(a = 5) = 5", {"a": "5"}, False),
    ("a", {}, None),
    ("a", {"a": "true"}, False),
    ("NOT a", {"a": "true"}, True),
    ("NOT a", {}, None),
    ("-a IS NULL", {"a": "5"}, True),
    ("a > -b", {"a": "5", "b": "5"}, None),
    ("-a > b", {"b": "x"}, None),
    ("a > -(b = 5)", {"b": "x"}, None),
    ("a > -(b = 5)", {"a": "5", "b": "x"}, "error"),
    ("a > -(-(5))", {"a": "6"}, True),
    ("5 IS NULL", {}, False),
    ("a IS NULL", {}, True),
    ("a IS NOT NULL", {}, False),
    ("a BETWEEN 1 AND 5", {"a": "5"}, True),
    ("a BETWEEN 1 AND 5", {}, None),
    ("a NOT BETWEEN 1 AND 5", {"a": "6"}, True),
    ("5 BETWEEN 1 AND a", {"a": "5"}, True),
    ("a IN ('5', 'x')", {"a": "x"}, True),
    ("a IN ('5', 'x')", {"a": "y"}, False),
    ("a NOT IN ('x')", {}, None),
    ("a NOT IN ('x')", {"a": "y"}, True),
    ("a CONTAINS 'ell'", {"a": "hello"}, True),
    ("a NOT CONTAINS 'ell'", {"a": "hello"}, False),
    ("a NOT CONTAINS 'x'", {}, False),
    ("a NOT CONTAINS ''", {"a": "hello"}, False),
    ("a STARTSWITH 'he'", {"a": "hello"}, True),
    ("a NOT ENDSWITH 'lo'", {"a": "hello"}, False),
    ("5 CONTAINS '5'", {}, False),
    ("a = 1 AND b = 1", {"b": "2"}, False),
    ("a = 1 AND b = 1", {"b": "1"}, None),
    ("a = 1 AND b = 1", {"a": "2", "b": "x"}, False),
    ("a = 1 AND b = 1", {"a": "1", "b": "x"}, "error"),
    ("a = 1 OR b = 1", {"b": "1"}, True),
    ("a = 1 OR b = 1", {"b": "2"}, None),
    ("a = 1 OR b = 1", {"a": "1", "b": "x"}, True),
    ("a = 1 OR b = 1 OR TRUE", {"a": "2", "b": "x"}, "error"),
    ("a = 1 AND b = 1 AND FALSE", {"a": "1"}, False),
    ("a = 1 AND b = 1 AND TRUE", {"a": "1"}, None),
    ("1 < 2", {}, True),
    ("2147483648 > 1.5", {}, True),
    ("NULL", {}, None),
    ("NOT NULL", {}, None),
    ("TRUE", {}, True),
]


@pytest.mark.parametrize(("text", "properties", "value"), CASES)
def test_an_expression_has_its_value(text, properties, value):
    compiled = compile_filter(text)
    try:
        found: bool | str | None = compiled._evaluate(properties.get)
    except NotANumber:
        found = "error"
    assert found is value or found == value == "error"
    assert compiled.matches(properties) is (value is True)


def test_a_filter_asks_only_for_what_it_needs():
    asked: list[str] = []

    def no(name: str) -> str:
        asked.append(name)
        return "no"

    compiled = compile_filter("a = 'x' AND b = 'y'")
    assert not compiled.selects(asked.append)
    assert asked == ["a", "b"]
    asked.clear()
    assert not compiled.selects(no)
    assert asked == ["a"]
    assert compiled.names == {"a", "b"}
