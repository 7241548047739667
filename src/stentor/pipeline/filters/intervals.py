"""Sets of values as comparisons of a column.

A set is a sequence of cuts in an ordered domain (see `stentor.filters.ranges`). The column's type
can hold only some of that domain, and this is what makes comparisons exact: every cut is moved to
where it falls among the values that the type can hold. An integer column is compared with integers
of its own width and a double column with doubles, so Spark has nothing to convert. `x > 2.5` is
`x >= 3` for integers; `x < 9007199254740993` is `x < 9007199254740994` for doubles, between which
and the double below there is no other; `x > 200` is false for a tinyint.

What is left is written as single values (one equality or one IN list) and intervals, or as the
negation of what the set leaves out, if that is shorter. NaN, which Spark puts above all numbers, is
not looked at: the caller asks for a value that is present.

Zero of a float column is written as an interval, from -0.0 to 0.0. The two are equal, and Spark
knows that, but what it passes over in Parquet files is decided by Parquet, where -0.0 is less.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Any

import numpy as np

from stentor.filters.domains import END, INTEGER, STRING, Cut, Domain, first_above, last_below
from stentor.filters.numbers import SplitNumbers, integers_of
from stentor.filters.ranges import Piece, Ranges
from stentor.filters.tested import prefix_ranges
from stentor.pipeline.filters.kinds import BITS, Kind
from stentor.pipeline.filters.sql import Sql, all_of, any_of, literal_sql, negation


def ranges_sql(values: Ranges | SplitNumbers, kind: Kind, sql: str) -> Sql:
    """Whether a value of that kind, which must be there, lies in the set."""
    found = _held(values, kind)
    if found.is_all or found.is_none:
        return found.is_all
    others = found.complement()
    points, intervals = _sorted(found)
    other_points, other_intervals = _sorted(others)
    if len(other_intervals) + bool(other_points) < len(intervals) + bool(points):
        return negation(_any_sql(others.domain, other_points, other_intervals, kind, sql))
    return _any_sql(found.domain, points, intervals, kind, sql)


def _held(values: Ranges | SplitNumbers, kind: Kind) -> Ranges:
    """What the column's type can hold of the set."""
    if kind.is_integer:
        ints = values.ints if isinstance(values, SplitNumbers) else integers_of(values)
        limit = 2 ** (BITS[kind.form] - 1)
        starts, cuts = ints.starts, []
        for cut in ints.cuts:
            if cut[0] <= -limit:
                starts = not starts
            elif cut[0] < limit:
                cuts.append(cut)
        return Ranges(INTEGER, starts, tuple(cuts))
    if isinstance(values, SplitNumbers):
        values = values.floats
    if kind.is_float:
        cuts = [_float_cut(cut, kind.form) for cut in values.cuts]
        return Ranges.of_cuts(values.domain, values.starts, cuts)
    return values


def _float_cut(cut: Cut, form: str) -> Cut:
    """The same place among the floats of that width."""
    value, side = cut
    nearest = rounded_up(value, form)
    return (nearest, side if nearest == value else 0)


def rounded_up(value: float, form: str) -> float:
    """The least float of that width that is not less, by exact comparison.

    >>> rounded_up(2**53 + 1, "double"), rounded_up(1e300, "float")
    (9007199254740994.0, inf)
    """
    nearest = float(value)
    if nearest < value:
        nearest = nextafter(nearest, inf)
    if form == "float":
        with np.errstate(over="ignore"):
            single = np.float32(nearest)
            if float(single) < nearest:
                single = np.nextafter(single, np.float32(inf))
        nearest = float(single)
    return nearest


def _sorted(values: Ranges) -> tuple[list[Any], list[Piece]]:
    """Single values, and the other pieces."""
    points: list[Any] = []
    intervals: list[Piece] = []
    for piece in values.pieces:
        low, high = piece
        value = first_above(values.domain, low)
        if value is not None and values.domain.normal((value, 1)) == (high or END):
            points.append(value)
        else:
            intervals.append(piece)
    return points, intervals


def _any_sql(
    domain: Domain, points: list[Any], intervals: list[Piece], kind: Kind, sql: str
) -> Sql:
    if kind.is_float and 0.0 in points:
        intervals = [*intervals, ((0.0, 0), (0.0, 1))]
    conditions = [_interval_sql(domain, piece, kind, sql) for piece in intervals]
    literals = [literal_sql(v, kind.form) for v in points if not (kind.is_float and v == 0.0)]
    if len(literals) == 1:
        conditions.append(f"{sql} = {literals[0]}")
    elif literals:
        conditions.append(f"{sql} IN ({', '.join(literals)})")
    return any_of(conditions)


def _interval_sql(domain: Domain, piece: Piece, kind: Kind, sql: str) -> Sql:
    low, high = piece
    if domain is STRING and low is not None and not low[1]:
        cuts = tuple([cut for cut in piece if cut is not None])
        if prefix_ranges(domain, low[0]).cuts == cuts:
            return f"startswith({sql}, {literal_sql(low[0], kind.form)})"
    conditions: list[Sql] = []
    if low is not None:
        operator = ">" if low[1] else ">="
        least = -0.0 if kind.is_float and low == (0, 0) else low[0]
        conditions.append(f"{sql} {operator} {literal_sql(least, kind.form)}")
    if high is not None:
        last = last_below(domain, high) if domain is INTEGER else None
        if last is not None:  # rather `x <= 5` than `x < 6`
            conditions.append(f"{sql} <= {literal_sql(last, kind.form)}")
        else:
            operator = "<=" if high[1] else "<"
            most = 0.0 if kind.is_float and high == (0, 1) else high[0]
            conditions.append(f"{sql} {operator} {literal_sql(most, kind.form)}")
    return all_of(conditions)
