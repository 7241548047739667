"""The ancestors of an event type, in SQL.

A type is a kind of every prefix of its path: `quote.stock` of `quote`. Beyond that it has the
parents that were declared for it or for one of these prefixes. So the rows that are a kind of T are
those whose type is, or lies below, T itself or a declared type that has T among its ancestors; and
the ancestors of a row's type are the prefixes of its path, and for each declared type that it is or
lies below, what that one has beside its own prefixes.

The registry is read where the filter is compiled, in the driver: executors need not know the
declarations.
"""

from __future__ import annotations

from stentor.model.event_types import event_types
from stentor.pipeline.filters.sql import Sql, any_of, string_sql


def descends_sql(event_type: str, ancestor: str) -> Sql:
    """Whether a type is a kind of another one."""
    kinds = [name for name in event_types.known() if ancestor in event_types.ancestors(name)]
    roots: list[str] = []
    for name in sorted({ancestor, *kinds}):  # a path comes after its prefixes
        if not any(name.startswith(root + ".") for root in roots):
            roots.append(name)
    return any_of([_at_or_below(event_type, root) for root in roots])


def ancestors_sql(event_type: str) -> str:
    """The array of a type's ancestors, itself among them; null where the type is."""
    path = f"split({event_type}, '[.]')"
    prefixes = f"transform(sequence(1, size({path})), i -> array_join(slice({path}, 1, i), '.'))"
    parts = [prefixes]
    for name in sorted(event_types.known()):
        more = sorted(event_types.ancestors(name) - _prefixes(name))
        if more:
            listed = ", ".join(map(string_sql, more))
            below = _at_or_below(event_type, name)
            parts.append(f"CASE WHEN {below} THEN array({listed}) ELSE {_NONE} END")
    if len(parts) == 1:
        return f"CASE WHEN {event_type} IS NOT NULL THEN {prefixes} END"
    return f"CASE WHEN {event_type} IS NOT NULL THEN concat({', '.join(parts)}) END"


_NONE = "CAST(array() AS ARRAY<STRING>)"


def _at_or_below(event_type: str, name: str) -> str:
    here, below = string_sql(name), string_sql(name + ".")
    return f"({event_type} = {here} OR startswith({event_type}, {below}))"


def _prefixes(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:size]) for size in range(1, len(parts) + 1)}
