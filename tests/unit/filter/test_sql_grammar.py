"""SQL92 expressions: what is one, what is none and where it goes wrong."""

from __future__ import annotations

import contextlib

import pytest

from pyromq.errors import InvalidFilter
from pyromq.filter import compile_filter
from pyromq.filter.cache import _compiled
from pyromq.filter.grammar import MAX_LENGTH, MAX_NESTING, MAX_NODES, parse
from pyromq.filter.nodes import (
    And,
    Equal,
    HasPart,
    In,
    IsNull,
    Literal,
    Negate,
    Not,
    Or,
    Order,
    Ordered,
    Part,
    Property,
)

A, B = Property("a"), Property("b")
FIVE = Literal(5)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("a > 5 AND b = 'x'", And((Ordered(Order.GREATER, A, FIVE), Equal(B, Literal("x"))))),
        ("a OR b AND a", Or((A, And((B, A))))),
        ("(a OR b) AND a", And((Or((A, B)), A))),
        ("a OR b OR a", Or((A, B, A))),
        ("NOT a = 5", Equal(Not(A), FIVE)),
        ("NOT (a = 5)", Not(Equal(A, FIVE))),
        ("a <> 5", Not(Equal(A, FIVE))),
        ("a is not null", Not(IsNull(A))),
        ("a IS NULL IS NULL", IsNull(IsNull(A))),
        ("a = --5", Equal(A, Negate(Negate(FIVE)))),
        ("a = + + 5", Equal(A, FIVE)),
        ("a BETWEEN 5 AND b", And((Ordered(Order.GREATER_OR_EQUAL, A, FIVE), Ordered(Order.LESS_OR_EQUAL, A, B)))),
        ("a NOT BETWEEN 5 AND 1", Or((Ordered(Order.LESS, A, FIVE), Ordered(Order.GREATER, A, Literal(1))))),
        ("(a) IN ('x', 'y')", In(A, frozenset("xy"))),
        ("a not in('x')", In(A, frozenset("x"), negated=True)),
        ("a = 'it''s'", Equal(A, Literal("it's"))),
        ("a = 9223372036854775807", Equal(A, Literal(2**63 - 1, is_long=True))),
        ("a = 5L", Equal(A, FIVE)),
        ("a = 2147483648", Equal(A, Literal(2**31, is_long=True))),
        ("a = 5.", Equal(A, Literal(5.0))),
        ("a = .5e1", Equal(A, Literal(5.0))),
        ("a = 5e-1", Equal(A, Literal(0.5))),
        ("TRUE", Literal(True)),
        ("NULL", Literal(None)),
        ("$a_1 = false", Equal(Property("$a_1"), Literal(False))),
        ("-- why\na /* b */ = -- because\r5", Equal(A, FIVE)),
        ("a CONTAINS 'x'", HasPart(Part.CONTAINS, A, "x")),
        ("a not startswith 'x'", HasPart(Part.STARTSWITH, A, "x", negated=True)),
        ("a EndsWith ''", HasPart(Part.ENDSWITH, A, "")),
    ],
)  # fmt: skip
def test_an_expression_is_read_as_rocketmq_reads_it(text, node):
    assert parse(text) == node


@pytest.mark.parametrize("text", ["a = 5 and so on", "a = 5)", "a = 007", "a = 5x", "a = 5 -- b", "a = 5 b #", "a.5"])
def test_what_follows_a_complete_selector_is_ignored(text):
    parse(text)


def test_the_words_of_5x_are_names_of_properties_where_no_operator_can_stand():
    assert parse("contains = 'x'") == Equal(Property("contains"), Literal("x"))


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "expected a value, found the end"),
        ("a >", 4, "expected a value, found the end"),
        ("a > 'x'", 5, "> compares numbers and properties only"),
        ("TRUE < a", 1, "< compares numbers and properties only"),
        ("a > 5 > 3", 1, "> compares numbers and properties only"),
        ("a BETWEEN 'x' AND 5", 11, ">= compares numbers and properties only"),
        ("a BETWEEN 5 AND 1", 11, "BETWEEN needs the lower value first"),
        ("a BETWEEN 1.5 AND 1", 11, "BETWEEN needs the lower value first"),
        ("a BETWEEN 5", 12, "expected AND, found the end"),
        ("1", 1, "this is neither true nor false"),
        ("a OR 'x'", 6, "this is neither true nor false"),
        ("NOT 5", 5, "this is neither true nor false"),
        ("-a", 1, "this is neither true nor false"),
        ("a = NULL", 5, "NULL cannot be compared; use IS NULL"),
        ("NULL <> a", 1, "NULL cannot be compared; use IS NULL"),
        ("TRUE = 5", 8, "a boolean cannot be compared with that"),
        ("a != 6", 3, "unexpected character '!'"),
        ("a.b = 5", 2, "unexpected character '.'"),
        ("a = 5 #", 7, "unexpected character '#'"),
        ("a = 'x", 5, "a string without an end"),
        ("a = 'x'' ", 8, "a string without an end"),
        ("a /* b", 3, "a comment without an end"),
        ("a = 9223372036854775808", 5, "9223372036854775808 does not fit 64 bits"),
        ("a = 0.0", 5, "0.0 is too small a number"),
        ("a = 1e400", 5, "1e400 is too large a number"),
        ("a IN (5)", 7, "expected a string, found 5"),
        ("a IN ()", 7, "expected a string, found )"),
        ("a IN ('x' 'y')", 11, "expected , or ), found 'y'"),
        ("5 IN ('x')", 1, "IN needs a property on its left"),
        ("(a = 5", 7, "expected ), found the end"),
        ("a = 5 NOT TRUE", 11, "expected BETWEEN or IN or CONTAINS or STARTSWITH or ENDSWITH, found TRUE"),
        ("a IS 5", 6, "expected NULL or NOT, found 5"),
        ("a CONTAINS b", 12, "expected a string, found b"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_column(text, column, reason):
    with pytest.raises(InvalidFilter) as error:
        compile_filter(text)
    assert (error.value.column, error.value.reason) == (column, reason)
    assert str(error.value) == f"Invalid MessageSelector. column {column}: {reason}"


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 OR " * MAX_LENGTH,
        "a OR " * (MAX_NODES + 1) + "a",
        "(" * 20_000,
        "(" * (MAX_NESTING + 1) + "a" + ")" * (MAX_NESTING + 1),
        "NOT " * 8000 + "a",
        "-" * MAX_LENGTH,
        "a" + " IS NULL" * 300,
        "a" + " = TRUE" * 900,
        "a IN (" + "'x'," * 8000,
        "'" * MAX_LENGTH,
        "a = " + "9" * 30_000,
        "a = 1" + "0" * 30_000 + "e-30000",
        "/*" * 16_000,
        "/**/" * 8000,
        "--\n" * 10_000,
    ],
)
def test_an_expression_is_bounded_whatever_it_is(text):
    with contextlib.suppress(InvalidFilter):
        compile_filter(text).matches({"a": "1"})


def test_an_expression_within_the_bounds_leaves_room_on_the_stack():
    depth = MAX_NESTING - 1
    deep = compile_filter("(NOT (a = 1) AND " * (depth // 2) + "TRUE" + ")" * (depth // 2))
    assert deep.matches({"a": "2"})
    assert compile_filter(" OR ".join(f"a = {number}" for number in range(600))).matches({"a": "599"})


def test_compiling_is_remembered_and_so_is_failing():
    assert compile_filter("a = 1") is compile_filter("a = 1")
    _compiled.cache_clear()
    for _ in range(3):
        with pytest.raises(InvalidFilter):
            compile_filter("a = ")
    assert _compiled.cache_info().hits == 2
