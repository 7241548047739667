"""Collections of wide decimals, as Python workers see them.

A decimal with more digits than a 64-bit integer has is that integer, if it is one, and else the
nearest float: the number that is published for it. No type of Spark holds both. A column of such
decimals has two places for that (see `attributes`); but the elements of one array may be of either
kind. So arrays of them stay as they are until they come to a worker, and are told apart there.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import accumulate

import pyarrow as pa
import pyarrow.types as pt

from stentor.model.values import INT_MAX, INT_MIN


def told_apart(array: pa.Array) -> pa.Array:
    """Lists of decimals as lists of integers and floats; any other array as it is.

    >>> from decimal import Decimal
    >>> rows = [[Decimal(2**53 + 1), None, Decimal(2**64)], None]
    >>> told_apart(pa.array(rows, pa.list_(pa.decimal128(38)))).to_pylist()
    [[9007199254740993, None, 1.8446744073709552e+19], None]
    """
    if not (pt.is_list(array.type) and pt.is_decimal(array.type.value_type)):
        return array
    lists = array.to_pylist()
    numbers = [_number(value) for row in lists if row is not None for value in row]
    offsets = list(accumulate((len(row or ()) for row in lists), initial=0))
    mixed = pa.UnionArray.from_sparse(
        pa.array([int(type(n) is float) for n in numbers], pa.int8()),
        [
            pa.array([None if type(n) is float else n for n in numbers], pa.int64()),
            pa.array([n if type(n) is float else None for n in numbers], pa.float64()),
        ],
    )
    mask = pa.array([row is None for row in lists], pa.bool_())
    whole = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), mixed, mask=mask)
    # As a union of one type, since lists of unions are none of the types that the index knows.
    return pa.UnionArray.from_sparse(pa.array([0] * len(whole), pa.int8()), [whole])


def _number(value: Decimal | None) -> int | float | None:
    if value is None:
        return None
    return int(value) if INT_MIN <= value <= INT_MAX else float(value)
