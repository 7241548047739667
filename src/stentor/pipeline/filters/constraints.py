"""What a filter says about one attribute, as SQL.

A `Constraint` accepts certain values of each value type, and perhaps absence. A column has one
Spark type, so for each place of the attribute only the part for that type's values is left, and
everything that it says of other types is settled: `x > 5` is false for a string column, `x is int`
true for a bigint column wherever there is a value.

Conditions here are never null. Those on a value are asked together with its presence, and
`false AND null` is false.

For collections there is one question only: whether *some* element is accepted by a constraint. All
elements lie in a set if no element lies outside of it.
"""

from __future__ import annotations

from stentor.filters.collection import CollectionSet
from stentor.filters.constraint import Constraint, Part
from stentor.filters.patterns import CONTAINS, SUFFIX, Pattern
from stentor.filters.ranges import Ranges
from stentor.filters.records import Records
from stentor.filters.tested import Tested
from stentor.model.values import COLLECTION
from stentor.pipeline.filters.attributes import Place, descends_sql
from stentor.pipeline.filters.intervals import ranges_sql
from stentor.pipeline.filters.kinds import DOUBLE, LONG, WIDE, Kind
from stentor.pipeline.filters.regexes import java_regex
from stentor.pipeline.filters.sql import (
    Sql,
    all_of,
    any_of,
    bytes_sql,
    literal_sql,
    negation,
    string_sql,
)


def is_native(constraint: Constraint, places: tuple[Place, ...]) -> bool:
    """Whether `constraint_sql` can say it."""
    return all(
        _is_native_part(constraint.part(place.kind.value_type), place.kind)
        for place in places
        if place.kind is not None
    )


def _is_native_part(part: Part, kind: Kind) -> bool:
    if isinstance(part, Tested):
        return all(
            isinstance(leaf.test, Pattern)
            and (leaf.test.kind in (SUFFIX, CONTAINS) or java_regex(leaf.test) is not None)
            for leaf in part.leaves
        )
    if isinstance(part, Records):  # what is inside of records is left to Python
        return part.is_all or part.is_none
    if isinstance(part, CollectionSet) and kind.element is not None:
        element = kind.element
        return all(
            _is_native_part(said.part(element.value_type), element)
            for cell in part.cells
            for said in (cell.universe, *cell.hits)
        )
    return True


def outline(constraint: Constraint) -> Constraint:
    """A constraint that has a native form and accepts whatever this one does."""
    parts: list[tuple[str, Part]] = []
    for name, part in constraint.parts:
        if isinstance(part, Tested):
            bounds = part.bounds
            if not (bounds.is_all and constraint.rest):
                parts.append((name, bounds))
        elif name == COLLECTION:
            if not constraint.rest:
                parts.append((name, Constraint(rest=True).part(COLLECTION)))
        else:
            parts.append((name, part))
    return Constraint(tuple(parts), rest=constraint.rest, absent=constraint.absent)


def constraint_sql(constraint: Constraint, places: tuple[Place, ...]) -> Sql:
    """Whether the attribute is as the constraint wants it. Never null."""
    if not places:
        return constraint.absent
    if len(places) > 1 or places[0].kind is None:
        cases = [f"WHEN {place.present} THEN {_case(constraint, place)}" for place in places]
        return f"CASE {' '.join(cases)} ELSE {_sql(constraint.absent)} END"
    place = places[0]
    test = _value_sql(constraint, place)
    if not constraint.absent:
        return all_of([place.present, test])
    return any_of([place.absent, test])


def _case(constraint: Constraint, place: Place) -> str:
    if place.kind is None:  # a record in the place of a value
        return _sql(constraint.absent)
    return _sql(_value_sql(constraint, place))


def _sql(condition: Sql) -> str:
    return condition if isinstance(condition, str) else literal_sql(condition, "boolean")


def _value_sql(constraint: Constraint, place: Place) -> Sql:
    """Whether the value at the place, which must be there, is accepted."""
    assert place.kind is not None
    part = constraint.part(place.kind.value_type)
    if isinstance(part, CollectionSet):
        return any_of(
            [
                all_of(
                    [
                        negation(_some_sql(cell.universe.complement(), place)),
                        *[_some_sql(hit, place) for hit in sorted(cell.hits, key=repr)],
                    ]
                )
                for cell in part.cells
            ]
        )
    return _part_sql(part, place.kind, place.sql)


def _part_sql(part: Part, kind: Kind, sql: str) -> Sql:
    if kind is WIDE:
        whole = LONG.read(sql)
        as_long, as_double = _part_sql(part, LONG, whole), _part_sql(part, DOUBLE, DOUBLE.read(sql))
        if isinstance(as_long, bool) and as_long is as_double:
            return as_long
        return f"CASE WHEN {whole} IS NOT NULL THEN {_sql(as_long)} ELSE {_sql(as_double)} END"
    if isinstance(part, Tested):
        return _tested_sql(part, kind, sql)
    if isinstance(part, Records):
        return part.is_all
    assert not isinstance(part, CollectionSet)
    return ranges_sql(part, kind, sql)


def _tested_sql(tested: Tested, kind: Kind, sql: str) -> Sql:
    if tested.operator in ("and", "or"):
        join = all_of if tested.operator == "and" else any_of
        return join([_part_sql(part, kind, sql) for part in sorted(tested.parts, key=repr)])
    condition = _pattern_sql(tested.test, kind, sql)
    return condition if tested.operator == "leaf" else negation(condition)


def _pattern_sql(pattern: Pattern, kind: Kind, sql: str) -> str:
    if pattern.kind in (SUFFIX, CONTAINS):
        if kind.form == "binary":
            text = bytes_sql(pattern.text.encode("latin-1"))
        else:
            text = string_sql(pattern.text)
        return f"{'endswith' if pattern.kind == SUFFIX else 'contains'}({sql}, {text})"
    regex = java_regex(pattern)
    assert regex is not None
    return f"{sql} RLIKE {string_sql(regex)}"


def _some_sql(wanted: Constraint, place: Place) -> Sql:
    """Whether some element of a collection is accepted. Null elements and NaN are none."""
    assert place.kind is not None
    element = place.kind.element
    assert element is not None
    part = wanted.part(element.value_type)
    values = part.values if isinstance(part, Ranges) else None
    if values is not None and place.event_type is not None:
        return any_of([descends_sql(place.event_type, name) for name in values])
    test = _part_sql(part, element, "e")
    if test is False:
        return False
    if values is not None and len(values) == 1 and element is not WIDE:
        literal = literal_sql(values[0], element.form)
        if test == f"e = {literal}":
            return f"coalesce(array_contains({place.sql}, {literal}), false)"
    return f"exists({place.sql}, e -> {all_of([element.present('e'), test])})"
