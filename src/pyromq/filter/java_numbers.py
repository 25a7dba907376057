"""Numbers in strings, as Java reads and orders them. What Python takes besides (`1_0`, ` 7`, `inf`) is none here."""

from __future__ import annotations

import math
import re

_INTEGER = re.compile(r"([+-]?)(\d+)")  # digits of any script
_BLANKS = "".join(map(chr, range(33)))  # what Java trims
_DOUBLE = re.compile(
    r"""[+-]? (?: NaN | Infinity
                | (?: [0-9]+\.?[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? [fFdD]? )""",
    re.VERBOSE,
)
_HEX_DOUBLE = re.compile(
    r"""([+-]?) 0[xX] ( [0-9A-Fa-f]+\.? | [0-9A-Fa-f]*\.[0-9A-Fa-f]+ ) [pP] ([+-]?) 0*([0-9]+) [fFdD]?""",
    re.VERBOSE,
)
# No string of digits is so long that a larger exponent leaves anything but zero or infinity.
_ENOUGH = 10_000_000


class NotANumber(Exception):
    """A string that cannot be converted to what it is compared with. Never leaves this package."""


def parse_int(text: str) -> int:
    """As Integer.valueOf: 32 bits."""
    return _integer(text, 31)


def parse_long(text: str) -> int:
    """As Long.valueOf: 64 bits."""
    return _integer(text, 63)


def _integer(text: str, bits: int) -> int:
    found = _INTEGER.fullmatch(text)
    # Java looks at UTF-16 units, so a digit that takes two of them is none.
    if found is None or max(text) > "\uffff":
        raise NotANumber
    sign, digits = found.groups()
    if len(digits) > 19:
        # Making a number of very many digits takes very long.
        digits = digits.lstrip("0") or "0"
        if len(digits) > 19:
            raise NotANumber
    value = -int(digits) if sign == "-" else int(digits)
    if not -(1 << bits) <= value < 1 << bits:
        raise NotANumber
    return value


def parse_double(text: str) -> float:
    """As Double.valueOf: blanks around it, a suffix, `NaN`, `Infinity` and hexadecimal digits are allowed."""
    text = text.strip(_BLANKS)
    if _DOUBLE.fullmatch(text) is not None:
        return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    return _hex_double(text)


def _hex_double(text: str) -> float:
    found = _HEX_DOUBLE.fullmatch(text)
    if found is None:
        raise NotANumber
    sign, digits, exponent_sign, exponent = found.groups()
    power = min(int(exponent[:9]), _ENOUGH) if len(exponent) < 10 else _ENOUGH
    try:
        value = float.fromhex(f"0x{digits}p{exponent_sign}{power}")
    except OverflowError:
        value = math.inf
    return -value if sign == "-" else value


def compare_doubles(one: float, other: float) -> int:
    """As Double.compare: NaN is equal to itself and greater than all others, and -0.0 is less than 0.0."""
    if one < other:
        return -1
    if one > other:
        return 1
    if one == other:
        return 0 if one else int(math.copysign(1, one) - math.copysign(1, other))
    return (one != one) - (other != other)
