"""How the columns of a DataFrame become the values of attributes.

Errors about one value name its row; `RowFault.row` counts from the beginning of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from stentor.errors import InvalidNotification, StentorError, UnsupportedColumn
from stentor.model.names import shown
from stentor.model.notification import MAX_PAYLOAD_BYTES, MAX_VALUE_BYTES, check_size
from stentor.model.values import INT_MAX, INT_MIN
from stentor.pipeline.columns.types import TIME, is_instant, is_list, no_value, sql_name

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: How a column becomes values; called with the column, and what raises an error about a row of it.
Values = Callable[[pa.Array, Callable[[int, str], NoReturn]], list[Any]]


@dataclass(frozen=True)
class Source:
    """Where an attribute comes from: fields inside of fields, and how they become values."""

    attribute: str
    path: tuple[int, ...]
    values: Values


class RowFault(InvalidNotification):
    """A row that cannot be published; counted from the beginning of its batch."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


def row_of(error: StentorError) -> int | None:
    """The row of the batch that an error is about."""
    return error.row if isinstance(error, RowFault) else None


def objection(name: str) -> Callable[[int, str], NoReturn]:
    def object_to(row: int, text: str) -> NoReturn:
        raise RowFault(row, f"column {shown(name)}: {text}")

    return object_to


def sources_of(name: str, kind: pa.DataType, path: tuple[int, ...]) -> Iterator[Source]:
    if pa.types.is_struct(kind):
        for index, field in enumerate(kind):
            yield from sources_of(f"{name}.{field.name}", field.type, (*path, index))
    elif not pa.types.is_null(kind):
        yield Source(name, path, values_of(name, kind))


def values_of(name: str, kind: pa.DataType) -> Values:
    if is_list(kind):
        if is_list(kind.value_type) or pa.types.is_struct(kind.value_type):
            raise UnsupportedColumn(
                f"column {name!r} is an {sql_name(kind)}; a collection has plain elements"
            )
        element = values_of(name, kind.value_type)
        return lambda array, wrong: _collections(array, element, wrong)
    for is_such, values in _SIMPLE:
        if is_such(kind):
            return values
    raise no_value(name, kind)


def _plain(array: pa.Array, wrong: Callable[[int, str], NoReturn]) -> list[Any]:
    return array.to_pylist()  # type: ignore[no-any-return]


def _floats(array: pa.Array, wrong: Callable[[int, str], NoReturn]) -> list[Any]:
    return [None if v is None or v != v else v for v in array.to_pylist()]


def _sized(array: pa.Array, wrong: Callable[[int, str], NoReturn]) -> list[Any]:
    _check_longest(array, MAX_VALUE_BYTES, wrong)
    return array.to_pylist()  # type: ignore[no-any-return]


def payload_values(array: pa.Array, wrong: Callable[[int, str], NoReturn]) -> list[Any]:
    _check_longest(array, MAX_PAYLOAD_BYTES, wrong)
    return array.to_pylist()  # type: ignore[no-any-return]


def _check_longest(array: pa.Array, limit: int, wrong: Callable[[int, str], NoReturn]) -> None:
    sizes = pc.binary_length(array)
    longest = pc.max(sizes).as_py()
    if longest is not None and longest > limit:
        wrong(pc.index(sizes, longest).as_py(), f"{longest} bytes; at most {limit} are allowed")


def _times(array: pa.Array, wrong: Callable[[int, str], NoReturn]) -> list[Any]:
    instants = array.cast(TIME)
    try:  # Arrow would take eight times as long
        return [
            None if micros is None else _EPOCH + timedelta(0, 0, micros)
            for micros in instants.cast(pa.int64()).to_pylist()
        ]
    except OverflowError:
        for row in range(len(instants)):
            try:
                instants[row].as_py()
            except (ValueError, OverflowError):
                wrong(row, "a time outside of the years 1 to 9999")
        raise


def _decimals(array: pa.Array, wrong: Callable[[int, str], NoReturn]) -> list[Any]:
    """Whole numbers as integers; others as the float whose shortest form is the same."""
    found: list[Any] = []
    for row, value in enumerate(array.to_pylist()):
        if value is None:
            found.append(None)
        elif array.type.scale <= 0 and INT_MIN <= value <= INT_MAX:
            found.append(int(value))
        elif math.isfinite(number := float(value)) and Decimal(repr(number)) == value:
            found.append(number)
        else:
            wrong(row, f"no number has exactly the value {value}; cast it to double or string")
    return found


def _collections(
    array: pa.Array, element: Values, wrong: Callable[[int, str], NoReturn]
) -> list[Any]:
    found: list[Any] = []
    for row in range(len(array)):
        scalar = array[row]
        if not scalar.is_valid:
            found.append(None)
            continue
        values = element(scalar.values, lambda _, text, row=row: wrong(row, text))  # type: ignore[misc]
        value = tuple([v for v in values if v is not None])
        try:
            check_size(value)
        except InvalidNotification as error:
            wrong(row, str(error))
        found.append(value)
    return found


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


_SIMPLE: Final[tuple[tuple[Callable[[pa.DataType], bool], Values], ...]] = (
    (pa.types.is_boolean, _plain),
    (pa.types.is_integer, _plain),
    (pa.types.is_floating, _floats),
    (_is_text, _sized),
    (is_instant, _times),
    (pa.types.is_decimal, _decimals),
)
