"""Filters as they are given to functions that return tables, where SQL is not far."""

from __future__ import annotations

from stentor.errors import FilterSyntaxError, InvalidConfiguration
from stentor.filters import Filter


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
