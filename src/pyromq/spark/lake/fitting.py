"""Fits decoded values into a column: whether each has the column's type, and what is wrong if not.

Arrow's own conversion is fast and too kind: 1.5 becomes the integer 1, and a number a time. So it is used where the
types of the values leave no doubt, and elsewhere each value is looked at.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .column_types import spark_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NOTHING = type(None)
_SHOWN = 60  # characters of a value in a reason


class Misfit(ValueError):
    """A value that its column cannot have; the message follows the column's name."""


def column(values: Sequence[Any], field: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """The values as an array of the field's type, and what is wrong with those, by number, that are null instead."""
    sure = _sure(field.type)
    if sure is not None and {*map(type, values)} <= sure:
        try:
            return pa.array(values, field.type), {}
        except (pa.ArrowException, OverflowError):
            pass  # too large for the type, or text that is none: find out which
    fit = _fit(field.type)
    fitting: list[Any] = []
    wrong: dict[int, str] = {}
    for number, value in enumerate(values):
        try:
            fitting.append(None if value is None else fit(value))
        except Misfit as exc:
            fitting.append(None)
            wrong[number] = f"{field.name}: {exc}"
    return pa.array(fitting, field.type), wrong


def cast(values: pa.Array, field: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """The values as the field's type, which they may not have: what cannot be so is null, with its reason."""
    if values.type == field.type:
        return values, {}
    try:
        return values.cast(field.type), {}
    except (pa.ArrowException, OverflowError):
        pass
    parts: list[pa.Array] = []
    wrong: dict[int, str] = {}
    for number in range(len(values)):
        one = values.slice(number, 1)
        try:
            parts.append(one.cast(field.type))
        except (pa.ArrowException, OverflowError):
            parts.append(pa.nulls(1, field.type))
            wrong[number] = (
                f"{field.name}: {_shown(one[0].as_py())}, but the table's column is {spark_name(field.type)}"
            )
    return pa.concat_arrays(parts), wrong


def _sure(kind: pa.DataType) -> frozenset[type] | None:
    """The Python types whose values Arrow converts to `kind` as they are."""
    if pa.types.is_boolean(kind):
        return frozenset((bool, _NOTHING))
    if pa.types.is_integer(kind):
        return frozenset((int, _NOTHING))
    if pa.types.is_floating(kind):
        return frozenset((int, float, _NOTHING))
    if pa.types.is_string(kind):
        return frozenset((str, _NOTHING))
    if pa.types.is_binary(kind):
        return frozenset((bytes, _NOTHING))
    return None


def _fit(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_list(kind):
        return _list(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_timestamp(kind):
        return _timestamp(kind)
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_binary(kind):
        return _binary
    if pa.types.is_integer(kind):
        return _integer(kind)
    return _floating(kind) if pa.types.is_floating(kind) else _exactly(kind)


def _integer(kind: pa.DataType) -> Callable[[Any], Any]:
    most = 1 << (kind.bit_width - 1)

    def fit(value: Any) -> int:
        # 1.0 is what some writers make of 1.
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not -most <= value < most:
            raise _misfit(value, kind)
        return value

    return fit


def _floating(kind: pa.DataType) -> Callable[[Any], Any]:
    def fit(value: Any) -> float:
        if type(value) is float:
            return value
        if type(value) is not int:
            raise _misfit(value, kind)
        try:
            return float(value)
        except OverflowError:
            raise _misfit(value, kind) from None

    return fit


def _exactly(kind: pa.DataType) -> Callable[[Any], Any]:
    """Text and truth values: as they are, or not at all."""
    wanted = bool if pa.types.is_boolean(kind) else str if pa.types.is_string(kind) else None

    def fit(value: Any) -> Any:
        if type(value) is not wanted:
            raise _misfit(value, kind)
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:  # half of a surrogate pair
                raise _misfit(value, kind) from None
        return value

    return fit


def _list(kind: pa.DataType) -> Callable[[Any], Any]:
    fit = _fit(kind.value_type)

    def fit_all(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _misfit(value, kind)
        return [None if item is None else fit(item) for item in value]

    return fit_all


def _map(kind: pa.DataType) -> Callable[[Any], Any]:
    key, item = _fit(kind.key_type), _fit(kind.item_type)

    def fit_all(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _misfit(value, kind)
        return [(key(name), None if each is None else item(each)) for name, each in value.items()]

    return fit_all


def _struct(kind: pa.DataType) -> Callable[[Any], Any]:
    fits = {field.name: _fit(field.type) for field in kind}

    def fit_all(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _misfit(value, kind)
        return {name: None if value.get(name) is None else fit(value[name]) for name, fit in fits.items()}

    return fit_all


def _timestamp(kind: pa.DataType) -> Callable[[Any], Any]:
    def fit(value: Any) -> datetime:
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                raise _misfit(value, kind) from None
        if not isinstance(value, datetime):
            raise _misfit(value, kind)
        if kind.tz is None:
            return value.replace(tzinfo=None)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value

    return fit


def _date(value: Any) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise _misfit(value, pa.date32()) from None
    if isinstance(value, datetime) or not isinstance(value, date):
        raise _misfit(value, pa.date32())
    return value


def _decimal(kind: pa.DataType) -> Callable[[Any], Any]:
    def fit(value: Any) -> Decimal:
        if not isinstance(value, int | float | str | Decimal) or isinstance(value, bool):
            raise _misfit(value, kind)
        try:
            made = Decimal(str(value))
            pa.scalar(made, kind)
        except (InvalidOperation, pa.ArrowException, OverflowError):
            raise _misfit(value, kind) from None
        return made

    return fit


def _binary(value: Any) -> bytes:
    """Bytes, or their base64, since JSON has none."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(memoryview(value))
    except (binascii.Error, TypeError, ValueError):
        raise _misfit(value, pa.binary()) from None


def _misfit(value: Any, kind: pa.DataType) -> Misfit:
    return Misfit(f"{_shown(value)} is not {spark_name(kind)}")


def _shown(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}…"
