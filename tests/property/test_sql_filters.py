"""SQL92 filters against an evaluator that knows nothing of ours, and against any text at all.

The other evaluator walks a tree that is made here, by the rules of docs/spec/broker.md 7.2 and nothing else; what a
string is as a number stands in a table, so that no two programs parse it.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyromq.broker.filters.consumer_filters import selection_of_expression
from pyromq.errors import InvalidFilter
from pyromq.filter import compile_filter
from pyromq.protocol import properties as props
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, MessageRecord, encode_record

# What a property may be, and what it is as an integer and as a double; None is an error.
VALUES: dict[str, tuple[int | None, float | None]] = {
    "5": (5, 5.0),
    "6": (6, 6.0),
    "+7": (7, 7.0),
    "-1": (-1, -1.0),
    "007": (7, 7.0),
    "2147483647": (2**31 - 1, 2147483647.0),
    "2147483648": (2**31, 2147483648.0),
    "-2147483649": (-(2**31) - 1, -2147483649.0),
    "9223372036854775808": (None, 9223372036854775808.0),
    "5.0": (None, 5.0),
    "10.5": (None, 10.5),
    " 5": (None, 5.0),
    "5d": (None, 5.0),
    "1e1": (None, 10.0),
    "0x1p2": (None, 4.0),
    "NaN": (None, math.nan),
    "Infinity": (None, math.inf),
    "-0.0": (None, -0.0),
    "0.0": (None, 0.0),
    "x": (None, None),
    "it's": (None, None),
    "true": (None, None),
    "TRUE": (None, None),
    "1_0": (None, None),
    "inf": (None, None),
    "nan": (None, None),
    "é": (None, None),
}

# Trees: tuples of a word and what belongs to it.
names = st.sampled_from("abc").map(lambda name: ("property", name))
numbers = st.sampled_from(["0", "5", "6", "7L", "10", "2147483647", "2147483648", "1.5", "5.", "10.5", "4e0"]).flatmap(
    lambda digits: st.tuples(st.just("number"), st.sampled_from(["", "-", "--"]), st.just(digits))
)
strings = st.sampled_from([*VALUES, ""]).map(lambda text: ("string", text))
booleans = st.sampled_from([("boolean", True), ("boolean", False), ("boolean", None)])
orders = st.sampled_from(["<", "<=", ">", ">="])
flags = st.booleans()


def _bigger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=4)),
        st.tuples(st.just("equal"), flags, inner, names | inner),
        st.tuples(st.just("null"), flags, inner),
    )


simple = st.one_of(
    names,
    booleans,
    st.tuples(st.just("order"), orders, names, names | numbers),
    st.tuples(st.just("order"), orders, numbers, names | numbers),
    st.tuples(st.just("equal"), flags, names, names | numbers | strings | booleans),
    st.tuples(st.just("equal"), flags, numbers | strings, names | numbers | strings),
    st.tuples(st.just("null"), flags, names | numbers | strings),
    st.tuples(st.just("in"), flags, names, st.lists(strings, min_size=1, max_size=6)),
    st.tuples(st.just("between"), flags, names, names, names | numbers),
    st.tuples(st.just("part"), flags, st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]), names, strings),
)  # fmt: skip
trees = st.recursive(simple, _bigger, max_leaves=12)
messages = st.dictionaries(st.sampled_from("abc"), st.sampled_from(list(VALUES)))


def text_of(tree: Any) -> str:
    match tree:
        case "property", str(name):
            return name
        case "number", signs, digits:
            return f"{' '.join(signs)} {digits}"
        case "string", str(text):
            return "'" + text.replace("'", "''") + "'"
        case "boolean", value:
            return "NULL" if value is None else str(value)
        case "not", operand:
            return f"NOT ({text_of(operand)})"
        case (("and" | "or" as word), parts):
            return f" {word.upper()} ".join(f"({text_of(part)})" for part in parts)
        case "order", order, left, right:
            return f"{text_of(left)}{order}{text_of(right)}"
        case "equal", negated, left, right:
            # NULL itself cannot be compared, and a boolean must not meet another constant; in an expression they can.
            left, right = (
                f"(NOT NOT {text_of(side)})" if side[0] == "boolean" else f"({text_of(side)})" for side in (left, right)
            )
            return f"{left} {'<>' if negated else '='} {right}"
        case "null", negated, operand:
            return f"({text_of(operand)}) IS {'NOT ' if negated else ''}NULL"
        case "in", negated, name, values:
            return f"{text_of(name)} {'not ' if negated else ''}in ({','.join(map(text_of, values))})"
        case "between", negated, name, low, high:
            return f"{text_of(name)} {'NOT ' if negated else ''}BETWEEN {text_of(low)} AND {text_of(high)}"
        case "part", negated, word, name, text:
            return f"{text_of(name)} {'NOT ' if negated else ''}{word} {text_of(text)}"
    raise AssertionError(tree)


def side_of(tree: Any) -> str:
    """A side of an equation. NULL itself cannot be compared, and a boolean not with a constant; expressions can."""
    return f"({'NOT NOT ' if tree[0] == 'boolean' else ''}{text_of(tree)})"


class Failed(Exception):
    """An evaluation that ends in an error."""


def number_of(signs: str, digits: str) -> tuple[str, int | float]:
    kind = "double" if any(letter in digits for letter in ".e") else "integer"
    size = float(digits) if kind == "double" else int(digits.rstrip("L"))
    if kind == "integer" and size > 2**31 - 1:
        kind = "long"
    return kind, -size if signs == "-" else size


def converted(text: str, kind: str) -> int | float:
    """A string as a number of a kind."""
    integer, double = VALUES.get(text, (None, None))
    value = double if kind == "double" else integer
    if value is None or (kind == "integer" and not -(2**31) <= value < 2**31):
        raise Failed
    return value


def value_of(tree: Any, message: dict[str, str]) -> tuple[str, Any]:
    """A kind (null, string, boolean, integer, long, double) and a value."""
    match tree:
        case "property", name:
            return ("string", message[name]) if name in message else ("null", None)
        case "number", signs, digits:
            return number_of(signs, digits)
        case "string", text:
            return "string", text
    truth = truth_of(tree, message)
    return ("null", None) if truth is None else ("boolean", truth)


def compared(left: tuple[str, Any], right: tuple[str, Any]) -> int:
    """-1, 0 or 1, as Java's compareTo after conversion; neither is null."""
    (left_kind, one), (right_kind, other) = left, right
    if left_kind != right_kind:
        if left_kind == "boolean":
            if right_kind == "string":
                raise Failed
            return -1
        if right_kind == "boolean":
            if left_kind != "string":
                return -1
            one = one in ("true", "TRUE")
        elif left_kind == "string":
            one, left_kind = converted(one, right_kind), right_kind
        elif right_kind == "string":
            other, right_kind = converted(other, left_kind), left_kind
    if "double" in (left_kind, right_kind):
        one, other = (position(float(value)) for value in (one, other))
    return int(one > other) - int(one < other)


def position(double: float) -> tuple[int, float, float]:
    """Where a double stands among all of them."""
    return (1, 0, 0) if math.isnan(double) else (0, double, math.copysign(1, double))


def truth_of(tree: Any, message: dict[str, str]) -> bool | None:
    match tree:
        case "property", name:
            return False if name in message else None
        case "boolean", (bool() | None) as value:
            return value
        case "not", operand:
            return negation(truth_of(operand, message))
        case "and", parts:
            return conjunction(parts, message, False)
        case "or", parts:
            return conjunction(parts, message, True)
        case "order", order, left, right:
            return in_order(order, left, right, message)
        case "equal", negated, left, right:
            found = equal(value_of(left, message), value_of(right, message))
            return negation(found) if negated else found
        case "null", bool(negated), operand:
            return (value_of(operand, message)[0] == "null") != negated
        case "in", negated, (_, name), values:
            return None if name not in message else (("string", message[name]) in values) != negated
        case "between", negated, name, low, high:
            if negated:
                parts = [("order", "<", name, low), ("order", ">", name, high)]
                return conjunction(parts, message, True)
            return conjunction([("order", ">=", name, low), ("order", "<=", name, high)], message, False)
        case "part", bool(negated), word, (_, name), (_, text):
            if not text or name not in message:
                return False
            whole = message[name]
            hits = {"CONTAINS": text in whole, "STARTSWITH": whole.startswith(text), "ENDSWITH": whole.endswith(text)}
            return hits[word] != negated
    raise AssertionError(tree)


def negation(value: bool | None) -> bool | None:
    return {True: False, False: True, None: None}[value]


def conjunction(parts: list[Any], message: dict[str, str], decisive: bool) -> bool | None:
    result: bool | None = not decisive
    for part in parts:
        value = truth_of(part, message)
        if value is decisive:
            return decisive
        if value is None:
            result = None
    return result


def in_order(order: str, left: Any, right: Any, message: dict[str, str]) -> bool | None:
    one = value_of(left, message)
    if one[0] == "null":
        return None
    other = value_of(right, message)
    if other[0] == "null":
        return None
    if one[0] == other[0] == "string":
        one, other = ("double", converted(one[1], "double")), ("double", converted(other[1], "double"))
    result = compared(one, other)
    return {"<": result < 0, "<=": result <= 0, ">": result > 0, ">=": result >= 0}[order]


def equal(one: tuple[str, Any], other: tuple[str, Any]) -> bool | None:
    if one[0] == "null":
        return True if other[0] == "null" else None
    if other[0] == "null":
        return False
    return compared(one, other) == 0


@settings(max_examples=250)
@given(trees, st.lists(messages, min_size=1, max_size=4))
@example(("order", ">", ("property", "a"), ("number", "", "1.5")), [{"a": "NaN"}])
@example(("order", "<", ("property", "a"), ("property", "b")), [{"a": "-0.0", "b": "0.0"}])
@example(("equal", False, ("boolean", True), ("property", "a")), [{"a": "true"}, {}])
def test_a_filter_selects_what_another_evaluator_selects(tree, each):
    compiled = compile_filter(text_of(tree))
    for message in each:
        try:
            expected = truth_of(tree, message) is True
        except Failed:
            expected = False
        assert compiled.matches(message) is expected


WORDS = "a b 5 1.5 'x' ( ) , = <> < > <= >= + - NOT AND OR BETWEEN IN IS NULL TRUE -- /* */ ' # 0 . 1e9 CONTAINS"
soup = st.lists(st.sampled_from([*WORDS.split(), "\n", " "]), max_size=40).flatmap(
    lambda words: st.sampled_from(["", " "]).map(lambda between: between.join(words))
)


@settings(max_examples=250)
@given(soup | st.text(max_size=60), messages)
def test_any_text_ends_in_a_filter_or_in_a_refusal_that_names_a_column(text, message):
    try:
        compiled = compile_filter(text)
    except InvalidFilter as refusal:
        assert 1 <= refusal.column <= len(text) + 1  # noqa: PT017
    else:
        assert compiled.matches(message) in (True, False)


# Properties as they are stored, with what no writer should write.
pieces = st.sampled_from([b"a", b"b", b"ab", b"TAGS", b"\x01", b"\x02", b"5", b"6", b"x", b"\xff", b"\xc3\xa9"])
stored = st.lists(pieces, max_size=20).map(b"".join)
expressions = st.sampled_from(
    [
        "a = 5",
        "a IS NULL",
        "a = '6' OR b = 'x'",
        "ab IS NOT NULL AND a <> 'x'",
        "a CONTAINS 'é' OR b CONTAINS '\ufffd'",
        "TRUE",
        " OR ".join(f"{name} = '5'" for name in ("a", "b", "ab", "TAGS", "d", "e", "f", "g", "h", "i")),
    ]
)
heads = st.fixed_dictionaries(
    {
        "born_host": st.sampled_from([bytes(8), bytes(20)]),
        "store_host": st.sampled_from([bytes(8), bytes(20)]),
        "magic": st.sampled_from([MAGIC_V1, MAGIC_V2]),
    }
)


@settings(max_examples=150)
@given(expressions, st.lists(stored, min_size=1, max_size=3), st.binary(max_size=20), heads)
def test_a_stored_message_is_tested_as_its_properties_are(text, each, body, head):
    compiled = compile_filter(text)
    _, match, _ = selection_of_expression("SQL92", text)
    assert match is not None
    for raw in each:
        record = memoryview(encode_record(MessageRecord("topic", body, raw, **head)))
        assert match(record) is compiled.matches(props.parse(props.decode(raw)))


@given(expressions, st.binary(max_size=120))
def test_what_is_no_record_matches_or_does_not(text, data):
    _, match, _ = selection_of_expression("SQL92", text)
    assert match is not None
    assert match(memoryview(data)) in (True, False)
