"""The grammar of SQL92 expressions: from text to nodes, and what is refused on the way (docs/spec/broker.md 7.1).

    selector   := or                     what follows a complete selector is ignored, if it begins with a legal token
    or         := and { OR and }
    and        := equality { AND equality }
    equality   := comparison { = comparison | <> comparison | IS [NOT] NULL }
    comparison := unary { > unary | >= unary | < unary | <= unary | [NOT] BETWEEN unary AND unary
                        | [NOT] IN ( 'string' {, 'string'} ) | [NOT] CONTAINS | STARTSWITH | ENDSWITH 'string' }
    unary      := + unary | - unary | NOT unary | literal | property | ( or )

NOT binds closer than comparisons do: `NOT a = 5` is `(NOT a) = 5`. The words of 5.x (CONTAINS and its like) are
operators where an operator can stand and names of properties elsewhere, as 4.9 has them.

An expression is bounded: in length, in nodes, and in depth, since both parsing and evaluating it recurse.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from pyromq.errors import InvalidFilter

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
    depth_of,
    is_boolean,
)
from .tokens import Kind, Lexer, Token

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LENGTH = 32_768  # characters; lists of strings may be long
MAX_NODES = 2000  # each is evaluated for each message, up to 800 messages in one turn of a broker; a list is one
MAX_NESTING = 50  # parentheses within parentheses, and signs and NOTs in a row; each takes up to five calls
MAX_DEPTH = 200  # levels of the tree; each is a call when it is evaluated

_KEYWORDS = frozenset(["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"])
_ORDERS = {order.value: order for order in Order}
_PARTS = {part.value: part for part in Part}
_CONSTANTS = {"TRUE": Literal(True), "FALSE": Literal(False), "NULL": Literal(None)}
_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1


def parse(text: str) -> Node:
    """The tree of an expression, which stands for TRUE, FALSE or null. InvalidFilter says what is wrong and where."""
    if len(text) > MAX_LENGTH:
        raise InvalidFilter(f"more than {MAX_LENGTH} characters", MAX_LENGTH + 1)
    return _Parser(text).selector()


class _Parser:
    """Reads one expression. `_token` is the next one that nobody has taken, and there is always one."""

    def __init__(self, text: str) -> None:
        self._lexer = Lexer(text)
        self._nesting = 0
        self._nodes = 0
        self._token = self._lexer.next()
        self._word = _keyword(self._token)

    def selector(self) -> Node:
        begin = self._token
        node = self._boolean(self._or(), begin)
        if depth_of(node) > MAX_DEPTH:
            raise InvalidFilter(f"more than {MAX_DEPTH} levels", begin.at + 1)
        return node

    # Tokens

    def _take(self) -> Token:
        taken = self._token
        self._token = self._lexer.next()
        self._word = _keyword(self._token)
        return taken

    def _takes(self, word: str) -> bool:
        """Take the next token if it is this keyword or symbol."""
        if self._word != word:
            return False
        self._take()
        return True

    def _expect(self, *words: str) -> str:
        found = self._word
        if found not in words:
            self._refuse(" or ".join(words))
        self._take()
        return found

    def _string(self) -> str:
        if self._token.kind is not Kind.STRING:
            self._refuse("a string")
        return self._take().text[1:-1].replace("''", "'")

    def _refuse(self, expected: str) -> NoReturn:
        token = self._token
        found = "the end" if token.kind is Kind.END else _cut(token.text)
        raise InvalidFilter(f"expected {expected}, found {found}", token.at + 1)

    # Rules

    def _or(self) -> Node:
        return self._chain("OR", self._and, Or)

    def _and(self) -> Node:
        return self._chain("AND", self._equality, And)

    def _chain(self, word: str, rule: Callable[[], Node], made: type[And | Or]) -> Node:
        begin = self._token
        first = rule()
        if self._word != word:
            return first
        parts = [self._boolean(first, begin)]
        while self._takes(word):
            begin = self._token
            parts.append(self._boolean(rule(), begin))
        return self._counted(made(tuple(parts)), begin)

    def _equality(self) -> Node:
        begin = self._token
        node = self._comparison()
        while True:
            operator = self._token
            match self._word:
                case "=" | "<>" as sign:
                    self._take()
                    right_begin = self._token
                    right = self._comparison()
                    for operand, at in ((node, begin), (right, right_begin)):
                        if operand == _CONSTANTS["NULL"]:
                            raise InvalidFilter("NULL cannot be compared; use IS NULL", at.at + 1)
                    if _is_constant(node, bool) and isinstance(right, Literal) and not is_boolean(right):
                        raise InvalidFilter("a boolean cannot be compared with that", right_begin.at + 1)
                    node = Equal(node, right) if sign == "=" else Not(Equal(node, right))
                case "IS":
                    self._take()
                    negated = self._expect("NULL", "NOT") == "NOT"
                    if negated:
                        self._expect("NULL")
                    node = Not(IsNull(node)) if negated else IsNull(node)
                case _:
                    return node
            self._counted(node, operator)

    def _comparison(self) -> Node:
        begin = self._token
        node = self._unary()
        while True:
            operator = self._token
            if order := _ORDERS.get(self._word):
                self._take()
                right_begin = self._token
                node = self._ordered(order, node, begin, self._unary(), right_begin)
            elif (negated := self._takes("NOT")) or self._word in ("BETWEEN", "IN") or self._part is not None:
                node = self._special(node, begin, negated)
            else:
                return node
            self._counted(node, operator)

    def _special(self, node: Node, begin: Token, negated: bool) -> Node:
        """BETWEEN, IN and the words of 5.x. Behind NOT it must be one of them."""
        if part := self._part:
            self._take()
            return HasPart(part, node, self._string(), negated)
        if self._expect("BETWEEN", "IN", *_PARTS) == "BETWEEN":
            return self._between(node, begin, negated)
        if not isinstance(node, Property):
            raise InvalidFilter("IN needs a property on its left", begin.at + 1)
        self._expect("(")
        values = [self._string()]
        while self._expect(",", ")") == ",":
            values.append(self._string())
        return In(node, frozenset(values), negated)

    def _between(self, node: Node, begin: Token, negated: bool) -> Node:
        low_begin = self._token
        low = self._unary()
        self._expect("AND")
        high_begin = self._token
        high = self._unary()
        if negated:
            below = self._ordered(Order.LESS, node, begin, low, low_begin)
            above = self._ordered(Order.GREATER, node, begin, high, high_begin)
            return Or((below, above))
        from_low = self._ordered(Order.GREATER_OR_EQUAL, node, begin, low, low_begin)
        to_high = self._ordered(Order.LESS_OR_EQUAL, node, begin, high, high_begin)
        match low, high:
            # Mixed ones are compared as floats, as they will be when the expression is evaluated.
            case Literal(int() as least), Literal(int() as most):
                in_order = least <= most
            case Literal(int() | float() as least), Literal(int() | float() as most):
                in_order = float(least) <= float(most)
            case _:
                in_order = True
        if not in_order:
            raise InvalidFilter("BETWEEN needs the lower value first", low_begin.at + 1)
        return And((from_low, to_high))

    def _ordered(self, order: Order, left: Node, left_begin: Token, right: Node, right_begin: Token) -> Node:
        for operand, begin in ((left, left_begin), (right, right_begin)):
            if is_boolean(operand) or _is_constant(operand, str):
                raise InvalidFilter(f"{order.value} compares numbers and properties only", begin.at + 1)
        return self._counted(Ordered(order, left, right), left_begin)

    def _unary(self) -> Node:
        signs: list[str] = []
        while self._word in ("+", "-", "NOT"):
            signs.append(self._word)
            if len(signs) > MAX_NESTING:
                raise InvalidFilter(f"more than {MAX_NESTING} signs in a row", self._token.at + 1)
            self._take()
        begin = self._token
        node = self._primary()
        for sign in reversed(signs):
            if sign == "NOT":
                node = self._counted(Not(self._boolean(node, begin)), begin)
            elif sign == "-":
                node = self._counted(Negate(node), begin)
        return node

    def _primary(self) -> Node:
        token = self._token
        if token.kind is Kind.STRING:
            return self._counted(Literal(self._string()), token)
        if token.kind is Kind.INTEGER:
            self._take()
            return self._counted(_integer(token), token)
        if token.kind is Kind.FLOAT:
            self._take()
            return self._counted(_float(token), token)
        if token.kind is Kind.WORD and self._word not in _KEYWORDS:
            self._take()
            # One object for a name however often it stands there: getters look it up faster.
            return self._counted(Property(sys.intern(token.text)), token)
        if constant := _CONSTANTS.get(self._word):
            self._take()
            return self._counted(constant, token)
        if not self._takes("("):
            self._refuse("a value")
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise InvalidFilter(f"more than {MAX_NESTING} parentheses within each other", token.at + 1)
        node = self._or()
        self._expect(")")
        self._nesting -= 1
        return node

    @property
    def _part(self) -> Part | None:
        return _PARTS.get(self._token.text.upper()) if self._token.kind is Kind.WORD else None

    def _boolean(self, node: Node, begin: Token) -> Node:
        """`node` where only TRUE, FALSE or null may stand. A property may, too, and is never TRUE."""
        if is_boolean(node) or isinstance(node, Property):
            return node
        raise InvalidFilter("this is neither true nor false", begin.at + 1)

    def _counted(self, node: Node, token: Token) -> Node:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise InvalidFilter(f"more than {MAX_NODES} conditions and values", token.at + 1)
        return node


def _keyword(token: Token) -> str:
    """What the grammar goes by: a symbol, a keyword in capitals, or "" for anything else."""
    if token.kind is Kind.SYMBOL:
        return token.text
    if token.kind is Kind.WORD and len(token.text) <= 7 and (word := token.text.upper()) in _KEYWORDS:
        return word
    return ""


def _is_constant(node: Node, kind: type) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, kind)


def _integer(token: Token) -> Literal:
    digits = token.text.rstrip("lL")
    # By length first: making a number of very many digits takes very long.
    if len(digits) > 19 or (value := int(digits)) > _MAX_LONG:
        raise InvalidFilter(f"{_cut(digits)} does not fit 64 bits", token.at + 1)
    return Literal(value, is_long=value > _MAX_INT)


def _float(token: Token) -> Literal:
    value = float(token.text)
    if not 0 < value < float("inf"):
        raise InvalidFilter(f"{_cut(token.text)} is too {'large' if value else 'small'} a number", token.at + 1)
    return Literal(value)


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
