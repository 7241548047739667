"""From a filter to a column of a DataFrame that is true where the filter matches.

Two planes, one meaning: for every row the column gives the answer that a broker gives for the
notification that the row stands for, and it is never null. So `where(to_column(f, schema))` keeps
what a subscriber with this filter would have got, and `where(~to_column(f, schema))` all the rest.

The filter comes as a union of conjuncts, each with one constraint for each attribute. What the
schema knows of an attribute's type settles much of a constraint before anything runs, and the rest
becomes plain SQL that Spark optimizes, compiles and pushes down as if a user had written it. The
parts:

    sql          pieces of SQL text: names, literals, logic
    kinds        which attribute values the types of Spark hold
    attributes   where a row keeps an attribute, and the ancestors of its event type
    intervals    sets of values as comparisons, exact for the column's type
    regexes      string patterns as regular expressions of Java
    constraints  what a filter says about one attribute
    residuals    comparisons between attributes
    fallback     what has no native form: the filter's own code in an Arrow function

Where a conjunct needs the fallback, its other conditions stay native. So does an outline of what
falls back (the interval in which an operator is asked, the prefix of a regular expression): Spark
evaluates such conditions first, and sends only the rows that are left to Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from stentor.errors import FilterSyntaxError, InvalidConfiguration
from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.residual import Residual
from stentor.pipeline.filters import constraints
from stentor.pipeline.filters.attributes import Place, places
from stentor.pipeline.filters.fallback import fallback
from stentor.pipeline.filters.residuals import residual_sql
from stentor.pipeline.filters.sql import Sql, all_of, any_of, literal_sql


def to_column(filter: Filter | str, schema: StructType) -> Column:
    """A Boolean column, never null: whether the filter matches a row of an event table.

    Nulls and NaN are absent attributes, struct fields have dotted names, arrays are collections.
    Columns of other types than attributes have are an error if the filter names them.

        quotes.where(to_column("symbol = 'IBM' and price > 100", quotes.schema))
    """
    alternatives = alternatives_of(filter, schema)
    native = any_of([a.condition for a in alternatives if a.rest is None])
    if native is True:
        return F.lit(True)
    columns = [a.column() for a in alternatives if a.rest is not None]
    if not columns or native is not False:
        columns.append(_column(native))
    return _balanced(columns)


def is_native(filter: Filter | str, schema: StructType) -> bool:
    """Whether Spark alone evaluates the filter on tables of that schema, without Python.

    >>> from pyspark.sql.types import StructType
    >>> is_native("price > 100", StructType().add("price", "double"))
    True
    """
    return all(alternative.rest is None for alternative in alternatives_of(filter, schema))


def are_native(filters: Sequence[Filter], schema: StructType, conditions: int) -> bool:
    """The same of several, if they have no more conditions than that together."""
    conjuncts = [conjunct for filter in filters for conjunct in filter.conjuncts]
    count = sum(len(each.constraints) + len(each.residuals) for each in conjuncts)
    return count <= conditions and all(is_native(filter, schema) for filter in filters)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A conjunct: a native condition and, if that does not say all of it, the rest."""

    condition: Sql
    rest: Conjunct | None
    attributes: dict[str, tuple[Place, ...]]

    def column(self) -> Column:
        assert self.rest is not None
        needed = {name: self.attributes[name] for name in _names(self.rest)}
        decided = fallback(self.rest, needed)
        return decided if self.condition is True else _column(self.condition) & decided


def alternatives_of(filter: Filter | str, schema: StructType) -> list[Alternative]:
    """The filter's conjuncts on tables of that schema, without those that cannot match."""
    if not isinstance(filter, Filter):
        filter = Filter(filter)
    attributes = {name: places(schema, name) for name in filter.names}
    alternatives = [_alternative(conjunct, attributes) for conjunct in filter.conjuncts]
    return [a for a in alternatives if a.condition is not False]


def _alternative(conjunct: Conjunct, attributes: dict[str, tuple[Place, ...]]) -> Alternative:
    conditions: list[Sql] = []
    rest: dict[str, Constraint] = {}
    for name, constraint in conjunct.constraints.items():
        found = attributes[name]
        if not constraints.is_native(constraint, found):
            rest[name] = _pruned(constraint, found)
            constraint = constraints.outline(constraint)
        conditions.append(constraints.constraint_sql(constraint, found))
    residuals: list[Residual] = []
    for residual in sorted(conjunct.residuals, key=repr):
        test = residual_sql(residual, attributes.__getitem__)
        if test is None:
            residuals.append(residual)
        else:
            conditions.append(test)
    left = Conjunct(rest, frozenset(residuals)) if rest or residuals else None
    return Alternative(all_of(conditions), left, attributes)


def _pruned(constraint: Constraint, found: tuple[Place, ...]) -> Constraint:
    """Without the parts for types that no place holds, which a worker may not even know."""
    types = {place.kind.value_type for place in found if place.kind is not None}
    parts = tuple([(name, part) for name, part in constraint.parts if name in types])
    return Constraint(parts, rest=constraint.rest, absent=constraint.absent)


def _names(conjunct: Conjunct) -> frozenset[str]:
    return frozenset(conjunct.constraints).union(*[r.names for r in conjunct.residuals])


def _column(condition: Sql) -> Column:
    return F.expr(condition if isinstance(condition, str) else literal_sql(condition, "boolean"))


def _balanced(columns: list[Column]) -> Column:
    """The disjunction, as a tree of little depth."""
    while len(columns) > 1:
        columns = [reduce(or_, columns[i : i + 2]) for i in range(0, len(columns), 2)]
    return columns[0]


def given_filter(given: object, in_sql: str) -> Filter:
    """The filter that is meant; a mistake is told with how to write a condition in SQL instead."""
    if isinstance(given, Filter):
        return given
    if not isinstance(given, str):
        raise InvalidConfiguration(f"a filter is text or a Filter, not {given!r}")
    try:
        return Filter(given)
    except FilterSyntaxError as error:
        raise FilterSyntaxError(
            f"{error}\nfilters have a language of their own; for a condition in SQL write {in_sql}",
            line=error.line,
            column=error.column,
            expected=error.expected,
        ) from None
