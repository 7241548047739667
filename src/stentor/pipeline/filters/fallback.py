"""What has no native form, decided by the filter's own code in Python workers.

The rest of a conjunct (constraints and comparisons that `to_column` could not write as SQL) becomes
one Arrow function of the columns it looks at. Workers read these columns as the index does and ask
the conjunct itself, so the answer is the broker's by construction.

A worker has to have the `stentor` package, and nothing else: operators that were registered in the
driver travel with the function. If a conjunct looks at one column, it is asked once for each
distinct value of a batch.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql import Column
from pyspark.sql import functions as F

from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.custom import CustomTest, Operator
from stentor.filters.operators import register_operator
from stentor.filters.tested import Tested
from stentor.matching.index.columns import ArrowSource
from stentor.model.values import INT_MAX, INT_MIN
from stentor.pipeline.filters.attributes import Place
from stentor.pipeline.filters.sql import all_of
from stentor.pipeline.spark_features import arrow_function


def fallback(conjunct: Conjunct, attributes: dict[str, tuple[Place, ...]]) -> Column:
    """Whether the conjunct accepts a row; never null. Each attribute must have a place."""
    arguments: list[str] = []
    layout: list[tuple[str, tuple[int, ...]]] = []
    for name, places in sorted(attributes.items()):
        columns = []
        for i, place in enumerate(places):
            if place.kind is not None:
                earlier = all_of([before.absent for before in places[:i]])
                masked = f"CASE WHEN {earlier} THEN {place.sql} END" if i else place.sql
                columns.append(len(arguments))
                arguments.append(masked)
        layout.append((name, tuple(columns)))
    evaluation = Evaluation(conjunct, tuple(layout))

    def stentor_filter(*columns: pa.Array) -> pa.Array:
        return evaluation(columns)

    function = arrow_function(stentor_filter, "boolean")
    return function(*[F.expr(sql) for sql in arguments])


@dataclass(frozen=True)
class Evaluation:
    """A conjunct over Arrow columns. For each attribute, `layout` has the columns of its places."""

    conjunct: Conjunct
    layout: tuple[tuple[str, tuple[int, ...]], ...]

    def __call__(self, columns: Sequence[pa.Array]) -> pa.Array:
        if len(columns) == 1 and not pa.types.is_nested(columns[0].type):
            coded = columns[0].dictionary_encode("encode")
            answers = self._answers([coded.dictionary])
            return pc.take(answers, coded.indices)
        return self._answers(columns)

    def _answers(self, columns: Sequence[pa.Array]) -> pa.Array:
        names = [str(i) for i in range(len(columns))]
        source = ArrowSource(pa.RecordBatch.from_arrays(list(map(told_apart, columns)), names))
        absent = [None] * source.count
        values: list[Sequence[Any]] = []
        for _, numbers in self.layout:
            found: Sequence[Any] = absent
            for number in reversed(numbers):
                nearer = source.values(str(number)) or absent
                found = [a if a is not None else b for a, b in zip(nearer, found, strict=True)]
            values.append(found)
        attributes = [name for name, _ in self.layout]
        matches = self.conjunct.matches
        rows = zip(*values, strict=True)
        return pa.array(
            [matches(dict(zip(attributes, row, strict=True))) for row in rows], pa.bool_()
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Two steps: a conjunct is restored by the names of its operators, so these come first.
        operators = tuple(dict.fromkeys(_operators(self.conjunct.constraints.values())))
        return _restore, (operators, pickle.dumps((self.conjunct, self.layout)))


def _restore(operators: Iterable[Operator], state: bytes) -> Evaluation:
    for operator in operators:
        register_operator(operator)
    return Evaluation(*pickle.loads(state))


def _operators(constraints: Iterable[Constraint]) -> Iterable[Operator]:
    for constraint in constraints:
        for _, part in constraint.parts:
            if isinstance(part, Tested):
                tests = [leaf.test for leaf in part.leaves]
                yield from [test.operator for test in tests if isinstance(test, CustomTest)]
            for cell in getattr(part, "cells", ()):
                yield from _operators((cell.universe, *cell.hits))


# -- collections of wide decimals

# A decimal with more digits than a 64-bit integer has is that integer, if it is one, and else the
# nearest float. A column of such decimals has two places for that (see `attributes`), but elements
# of one array may be of either kind. So arrays stay as they are until they come to a worker.


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
