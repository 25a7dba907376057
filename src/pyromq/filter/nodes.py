"""What a SQL92 expression says, as a tree of values. How it is evaluated is in `evaluation`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `is_long` is a fact of how an integer is written: -2147483648 is a long, as its digits alone are."""

    value: str | int | float | bool | None
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message: a string, or null if the message does not have it."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """Minus. Null for whatever is no number, and a property is none."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Not:
    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of two parts or more, from the left. One level for a whole chain, or a long one could not be evaluated."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    left: Node
    right: Node


class Order(Enum):
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@dataclass(frozen=True, slots=True)
class Ordered:
    """A comparison by size. The grammar lets through only what can be a number: no strings, no booleans."""

    order: Order
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Node


@dataclass(frozen=True, slots=True)
class In:
    operand: Property
    values: frozenset[str]
    negated: bool = False


class Part(Enum):
    """Where in a string another one is looked for (5.x)."""

    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class HasPart:
    """Whether a string has another one in it. False, negated or not, for what is no string, and if `text` is empty."""

    part: Part
    operand: Node
    text: str
    negated: bool = False


Node: TypeAlias = Literal | Property | Negate | Not | And | Or | Equal | Ordered | IsNull | In | HasPart


def is_boolean(node: Node) -> bool:
    """Whether a node stands for TRUE, FALSE or null, rather than for a number, a string or a property."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negate)


def depth_of(node: Node) -> int:
    """How many levels a tree has. Without recursion: whether that can be afforded is the question."""
    deepest = 0
    left = [(node, 1)]
    while left:
        each, depth = left.pop()
        deepest = max(deepest, depth)
        left.extend((child, depth + 1) for child in _children(each))
    return deepest


def names_in(node: Node) -> frozenset[str]:
    """The properties that a tree asks for."""
    names = set()
    left = [node]
    while left:
        each = left.pop()
        if isinstance(each, Property):
            names.add(each.name)
        left.extend(_children(each))
    return frozenset(names)


def _children(node: Node) -> Iterator[Node]:
    match node:
        case And(parts) | Or(parts):
            yield from parts
        case Equal(left, right) | Ordered(_, left, right):
            yield left
            yield right
        case Negate(operand) | Not(operand) | IsNull(operand) | HasPart(_, operand) | In(operand):
            yield operand
