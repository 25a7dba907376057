"""The fast way to read FastJSON's dialect: rewrite it as plain JSON, step by step, and let msgspec read that.

Each step splits the text, with one pattern, into what stays and the things between that one kind of quirk is about;
these are written anew, and all is joined again. A pattern meets each character once. Whatever the steps do not know
stays as it is, so that msgspec refuses it and nothing is accepted that the general reader (`fastjson_reader`) refuses.
A `$ref`, and an object key with containers inside, are left to that one.

A match steps over a thousand tokens at most: a pattern that ran through a megabyte would keep the interpreter to
itself for a tenth of a second, also in a thread.
"""

from __future__ import annotations

import re
import secrets
from itertools import chain, count
from json.encoder import encode_basestring
from typing import Final

import msgspec

from .fastjson_reader import ESCAPES, I64_MAX, I64_MIN, MAX_DEPTH, MAX_NUMBER_LENGTH, ObjectKey, joined_surrogates

_decode = msgspec.json.Decoder().decode

_BLANKS = r"[ \t\n\r\f\x08]*+"
_IN_WORD = r"[+\-.0-9A-Za-z_$]"
_NOT_IN_WORD = r'[^"+\-.0-9A-Za-z_$]'
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ESCAPED_PLAINLY = r'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'  # no surrogates: they may be single ones
_PLAIN_STRING = rf'"[^"\\\x00-\x1f]*+(?:{_ESCAPED_PLAINLY}[^"\\\x00-\x1f]*+)*+"'


def _step(stays: str, quirk: str) -> re.Pattern[str]:
    """Matches what stays, and the quirk behind it if there is one. Where it can do neither the text is wrong."""
    return re.compile(rf"((?:{stays}){{0,1000}}+)({quirk}|)", re.DOTALL)


# Strings that are not plain, comments, and blanks that JSON does not have.
_STRINGS = _step(
    rf"""[^"'/\f\x08]++|{_PLAIN_STRING}|/(?![*/])""",
    rf"""(?!{_PLAIN_STRING}){_STRING}|'[^'\\]*+(?:\\.[^'\\]*+)*+'|/\*.*?\*/|//[^\n]*+|[\f\x08]++""",
)
_HAS_ODD_STRINGS = re.compile(r"['/\\\x00-\x1f]")

# From here on there are plain strings and blanks only. First the objects that stand as keys …
_FLAT_OBJECT = rf'\{{(?:[^"{{}}\[\]]++|{_STRING})*+\}}(?={_BLANKS}:)'
_OBJECT_KEYS = _step(rf'[^"{{]++|{_STRING}|"|(?!{_FLAT_OBJECT})\{{', _FLAT_OBJECT)
_HAS_OBJECT_KEYS = re.compile(rf"\}}{_BLANKS}:")

# … then integers and names that do …
_BARE_KEY = rf"(?:-?[0-9]++|[A-Za-z_$][A-Za-z0-9_$]*+)(?={_BLANKS}:)"
_BARE_KEYS = _step(rf'{_NOT_IN_WORD}++|{_STRING}|"|(?!{_BARE_KEY}){_IN_WORD}++', _BARE_KEY)

# … and commas with nothing behind, plus signs, zeros in front. `[,]` and `[1,,]` stay and are refused.
_EXTRA = rf",(?={_BLANKS}[\]}}])|(?<!{_IN_WORD})(?:\+0*|-?0+)(?=[0-9])"
_EXTRAS = _step(
    rf'[\[{{,]{_BLANKS},|[^"+\-.0-9A-Za-z_$,\[{{]++|{_STRING}|["\[{{]|(?!{_EXTRA})(?:{_IN_WORD}++|,)', _EXTRA
)

_LONG_NUMBERS = _step(rf'{_NOT_IN_WORD}++|{_STRING}|"|(?![+\-.0-9]*?[0-9]{{19}}){_IN_WORD}++', rf"{_IN_WORD}++")
_MANY_DIGITS = re.compile(r"[0-9]{19}")
_INTEGER = re.compile(r"-?[0-9]+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)

# Stands for an object key in the plain text, with its number behind; nobody can know it beforehand.
_MARK: Final = f"{secrets.token_hex(8)}:"


class NotRewritten(Exception):
    """The text is not of the dialect, or needs the general reader. Says why."""


def loads_rewritten(text: str) -> object:
    """The value of `text`, as the general reader would give it. Raises NotRewritten."""
    try:
        return _loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise NotRewritten(f"nested deeper than {MAX_DEPTH}") from None
    except ValueError as exc:
        raise NotRewritten(str(exc)) from None


def _loads(text: str) -> object:
    if _HAS_ODD_STRINGS.search(text):
        stays, quirks = _split(_STRINGS, text)
        text = _woven(stays, [_plain_string(quirk) if quirk else "" for quirk in quirks])
    text = text.rstrip(" \t\n\r").removesuffix(",")  # FastJSON 2 lets one comma pass after the value
    object_keys: list[ObjectKey] = []
    if _HAS_OBJECT_KEYS.search(text):
        stays, objects = _split(_OBJECT_KEYS, text)
        object_keys = _object_keys([each for each in objects if each])
        numbers = count()
        text = _woven(stays, [f'"{_MARK}{next(numbers)}"' if each else "" for each in objects])
    stays, keys = _split(_BARE_KEYS, text)
    text = _woven(stays, [f'"{key}"' if key else "" for key in keys])
    try:
        value: object = _decode(text)
    except ValueError:
        stays, quirks = _split(_EXTRAS, text)
        text = _woven(stays, ["-" if quirk[:1] == "-" else "" for quirk in quirks])
        value = _decode(text)
    if _MANY_DIGITS.search(text):
        _check_long_numbers(_split(_LONG_NUMBERS, text)[1])
    if object_keys:
        _put_back(object_keys, value)
    elif text.count("[") + text.count("{") > MAX_DEPTH and not is_shallow(value):
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    return value


def _split(step: re.Pattern[str], text: str) -> tuple[list[str], list[str]]:
    """What stays, and behind each part the quirk, or nothing."""
    stays: list[str] = []
    quirks: list[str] = []
    pos = 0
    while pos < len(text):
        match = step.match(text, pos)
        if match is None or match.end() == pos:
            raise ValueError(f"unexpected {text[pos]!r}")
        before, quirk = match.groups()
        stays.append(before)
        quirks.append(quirk)
        pos = match.end()
    return stays, quirks


def _woven(stays: list[str], written: list[str]) -> str:
    return "".join(chain.from_iterable(zip(stays, written, strict=True)))


def _plain_string(quirk: str) -> str:
    """A string as plain JSON; a blank for a comment or for blanks."""
    if quirk[0] not in "\"'":
        return " "
    inside = quirk[1:-1]
    if "\\" in inside:
        inside = _ESCAPE.sub(_unescaped, inside)
        if not inside.isascii():
            inside = joined_surrogates(inside)
    return encode_basestring(inside)


def _unescaped(escape: re.Match[str]) -> str:
    four, two, char = escape.groups()
    if char is None:
        return chr(int(four or two, 16))
    if char not in ESCAPES:
        raise ValueError(f"unknown escape \\{char}")
    return ESCAPES[char]


def _object_keys(objects: list[str]) -> list[ObjectKey]:
    members = _loads(f"[{','.join(objects)}]")
    if not isinstance(members, list) or len(members) != len(objects):  # not so, since each is one flat object
        raise ValueError("object keys")
    return [ObjectKey.of(each) for each in members]


def _check_long_numbers(numbers: list[str]) -> None:
    for number in numbers:
        is_integer = _INTEGER.fullmatch(number)
        if len(number) > MAX_NUMBER_LENGTH or (is_integer and not I64_MIN <= int(number) <= I64_MAX):
            raise ValueError("number out of range")


def is_shallow(value: object) -> bool:
    """Whether `value` nests no deeper than MAX_DEPTH."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = _containers_in(level)
        if not level:
            return True
    return False


def _put_back(object_keys: list[ObjectKey], value: object) -> None:
    """Let the object keys stand in `value` where their marks do."""
    level = [value]
    for depth in range(1, MAX_DEPTH + 1):
        for parent in level:
            if isinstance(parent, dict) and any(name.startswith(_MARK) for name in parent):
                if depth == MAX_DEPTH:
                    break  # the key would be one level more
                members = list(parent.items())
                parent.clear()
                for name, child in members:
                    parent[object_keys[int(name[len(_MARK) :])] if name.startswith(_MARK) else name] = child
        else:
            level = _containers_in(level)
            if not level:
                return
            continue
        break
    raise ValueError(f"nested deeper than {MAX_DEPTH}")


def _containers_in(level: list[object]) -> list[object]:
    found: list[object] = []
    for parent in level:
        children = parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ()
        found += [child for child in children if isinstance(child, dict | list)]
    return found
