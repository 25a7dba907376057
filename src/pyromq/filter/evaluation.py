"""Evaluation: nodes become closures once, and the closures answer for each message (docs/spec/broker.md 7.2).

Values are None (null), str, bool, int and float; properties are strings, and what they are compared with decides what
they are converted to. Null is not false: only what is TRUE matches. A conversion that fails ends the whole evaluation,
whatever else the expression says, and the message does not match.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from .java_numbers import NotANumber, compare_doubles, parse_double, parse_int, parse_long
from .nodes import (
    And,
    Equal,
    HasPart,
    In,
    IsNull,
    Literal,
    Negate,
    Node,
    Not,
    Or,
    Order,
    Ordered,
    Part,
    Property,
    names_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Value: TypeAlias = str | int | float | bool | None
    Number: TypeAlias = int | float
    # Gives a property of a message by its name, None if it does not have it. It may do so lazily.
    Get: TypeAlias = Callable[[str], str | None]
    Evaluate: TypeAlias = Callable[[Get], Value]
    Truth: TypeAlias = Callable[[Get], bool | None]
    Parse: TypeAlias = Callable[[str], Number]

_TESTS: dict[Order, Callable[[Number, Number], bool]] = {
    Order.LESS: operator.lt,
    Order.LESS_OR_EQUAL: operator.le,
    Order.GREATER: operator.gt,
    Order.GREATER_OR_EQUAL: operator.ge,
}
_MIRRORED = {
    Order.LESS: Order.GREATER,
    Order.LESS_OR_EQUAL: Order.GREATER_OR_EQUAL,
    Order.GREATER: Order.LESS,
    Order.GREATER_OR_EQUAL: Order.LESS_OR_EQUAL,
}


class Filter:
    """A compiled expression. It keeps nothing of a message, so any number of threads may use it.

    `names` are the properties that it may ask for.
    """

    __slots__ = ("_evaluate", "names", "text")

    def __init__(self, text: str, node: Node) -> None:
        self.text = text
        self.names = names_in(node)
        self._evaluate = _truth(node)

    def __repr__(self) -> str:
        return f"<Filter {self.text!r}>"

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is selected."""
        return self.selects(properties.get)

    def selects(self, get: Get) -> bool:
        """As `matches`, for properties that are looked for only when they are asked for."""
        try:
            return self._evaluate(get) is True
        except NotANumber:
            return False


# Truths: closures that give True, False or None


def _truth(node: Node) -> Truth:
    match node:
        case Property(name):
            # A string is never true; but a missing property is null, and NOT null is null.
            return lambda get: None if get(name) is None else False
        case Literal(value):
            constant = value if isinstance(value, bool) else None
            return lambda get: constant
        case Not(operand):
            return _not(_truth(operand))
        case And(parts):
            return _all([_truth(part) for part in parts])
        case Or(parts):
            return _any([_truth(part) for part in parts])
        case Equal(left, right):
            return _equal(left, right)
        case Ordered(order, left, right):
            return _ordered(order, left, right)
        case IsNull(operand):
            evaluate = _value(operand)
            return lambda get: evaluate(get) is None
        case In(Property(name), values, negated):
            return _in(name, values, negated)
        case HasPart(part, operand, text, negated):
            return _has_part(part, _value(operand), text, negated)
        case Negate():
            raise TypeError("a number is no truth; the grammar does not let it through")


def _not(operand: Truth) -> Truth:
    def evaluate(get: Get) -> bool | None:
        value = operand(get)
        return None if value is None else not value

    return evaluate


def _all(parts: list[Truth]) -> Truth:
    if len(parts) == 2:
        first, second = parts

        def both(get: Get) -> bool | None:
            one = first(get)
            if one is False:
                return False
            other = second(get)
            if other is False:
                return False
            return None if one is None or other is None else True

        return both

    def every(get: Get) -> bool | None:
        result: bool | None = True
        for part in parts:
            value = part(get)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return every


def _any(parts: list[Truth]) -> Truth:
    def evaluate(get: Get) -> bool | None:
        result: bool | None = False
        for part in parts:
            value = part(get)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def _in(name: str, values: frozenset[str], negated: bool) -> Truth:
    def evaluate(get: Get) -> bool | None:
        text = get(name)
        return None if text is None else (text in values) is not negated

    return evaluate


_HAS_PART: dict[Part, Callable[[str, str], bool]] = {
    Part.CONTAINS: operator.contains,
    Part.STARTSWITH: str.startswith,
    Part.ENDSWITH: str.endswith,
}


def _has_part(part: Part, operand: Evaluate, text: str, negated: bool) -> Truth:
    if not text:
        return lambda get: False
    test = _HAS_PART[part]

    def evaluate(get: Get) -> bool:
        value = operand(get)
        return isinstance(value, str) and test(value, text) is not negated

    return evaluate


# Comparisons by size


def _ordered(order: Order, left: Node, right: Node) -> Truth:
    one, other = _constant(left), _constant(right)
    match left, right:
        case Property(name), _ if other is not None:
            return _property_and_number(order, name, *other)
        case _, Property(name) if one is not None:
            return _property_and_number(_MIRRORED[order], name, *one)
        case Property(), Property():
            return _two_properties(order, left.name, right.name)
    if one is not None and other is not None:
        a, b = one[0], other[0]
        if isinstance(a, float) or isinstance(b, float):
            a, b = float(a), float(b)
        result = _TESTS[order](a, b)
        return lambda get: result
    # One of them is a minus before something that is no number, which is null. The left one is looked at first, and
    # the right one only if the left one has a value; either may fail.
    first, second = _value(left), _value(right)

    def evaluate(get: Get) -> None:
        if first(get) is not None:
            second(get)

    return evaluate


def _property_and_number(order: Order, name: str, number: Number, parse: Parse) -> Truth:
    if isinstance(number, float):
        test = _TESTS[order]
        above = order in (Order.GREATER, Order.GREATER_OR_EQUAL)

        def evaluate_double(get: Get) -> bool | None:
            text = get(name)
            if text is None:
                return None
            value = parse(text)
            # NaN is greater than every number.
            return test(value, number) if value == value else above

        return evaluate_double

    low, high = _range(order, number)

    def evaluate(get: Get) -> bool | None:
        text = get(name)
        if text is None:
            return None
        # Most are small; a call less for these is a tenth of the whole evaluation.
        value = int(text) if text.isdecimal() and len(text) < 10 and text.isascii() else parse(text)
        return low <= value <= high

    return evaluate


def _range(order: Order, number: int) -> tuple[int, int]:
    """The integers of 64 bits that are so many."""
    least, most = -(1 << 63), (1 << 63) - 1
    match order:
        case Order.LESS:
            return least, number - 1
        case Order.LESS_OR_EQUAL:
            return least, number
        case Order.GREATER:
            return number + 1, most
        case Order.GREATER_OR_EQUAL:
            return number, most


def _two_properties(order: Order, left: str, right: str) -> Truth:
    test = _TESTS[order]

    def evaluate(get: Get) -> bool | None:
        one = get(left)
        if one is None:
            return None
        other = get(right)
        if other is None:
            return None
        return test(compare_doubles(parse_double(one), parse_double(other)), 0)

    return evaluate


# Equality


def _equal(left: Node, right: Node) -> Truth:
    for property_, other in ((left, right), (right, left)):
        if isinstance(property_, Property):
            if (constant := _constant(other)) is not None:
                return _property_equals_number(property_.name, *constant, property_ is left)
            if isinstance(other, Literal) and isinstance(other.value, str):
                return _property_equals_text(property_.name, other.value, property_ is left)
    first, second = _value(left), _value(right)
    # Of two sides that are compared with conversion, one at most is a number, and then a constant.
    constant = _constant(left) or _constant(right)
    parse = _no_number if constant is None else constant[1]

    def evaluate(get: Get) -> bool | None:
        one, other = first(get), second(get)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        return _equals(one, other, parse)

    return evaluate


def _property_equals_number(name: str, number: Number, parse: Parse, is_left: bool) -> Truth:
    missing = None if is_left else False

    def evaluate(get: Get) -> bool | None:
        text = get(name)
        return missing if text is None else parse(text) == number

    return evaluate


def _property_equals_text(name: str, wanted: str, is_left: bool) -> Truth:
    missing = None if is_left else False

    def evaluate(get: Get) -> bool | None:
        text = get(name)
        return missing if text is None else text == wanted

    return evaluate


def _equals(one: str | int | float | bool, other: str | int | float | bool, parse: Parse) -> bool:
    """Whether two values, neither of them null, are equal after conversion to the type of the other."""
    if isinstance(one, bool):
        if isinstance(other, str):
            raise NotANumber  # not converted in this direction; RocketMQ fails at it
        return one is other
    if isinstance(other, bool):
        return isinstance(one, str) and (one.lower() == "true") is other
    if isinstance(one, str):
        return one == other if isinstance(other, str) else parse(one) == other
    if isinstance(other, str):
        return one == parse(other)
    if isinstance(one, float) or isinstance(other, float):
        return float(one) == float(other)
    return one == other


def _no_number(text: str) -> NoReturn:
    raise NotANumber


# Values


def _value(node: Node) -> Evaluate:
    """A closure for whatever a node stands for."""
    match node:
        case Property(name):
            return lambda get: get(name)
        case Literal(value):
            return lambda get: value
        case Negate(operand):
            if (constant := _constant(node)) is not None:
                number = constant[0]
                return lambda get: number
            evaluate = _value(operand)

            def null(get: Get) -> None:
                evaluate(get)  # which may fail

            return null
    return _truth(node)


def _constant(node: Node) -> tuple[Number, Parse] | None:
    """The number that a node always is, and how a string is converted that is compared with it; or None."""
    is_negative = False
    while isinstance(node, Negate):
        is_negative = not is_negative
        node = node.operand
    if not isinstance(node, Literal):
        return None
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    parse: Parse = parse_double if isinstance(value, float) else parse_long if node.is_long else parse_int
    return (-value if is_negative else value), parse
