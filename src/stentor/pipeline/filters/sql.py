r"""Pieces of SQL text: names, literals, and the logic that joins conditions.

Filters become SQL text because Spark reads a whole text in one go, where each operator of the
`Column` API is a call into the JVM of its own: a text is made about twenty times as fast.

A literal means the same under every session setting. A string that is not plainly printable, or
holds what some setting could interpret (a backslash, a quote, a variable `${...}`), is written as
its UTF-8 bytes; Spark folds that into an ordinary literal. So it is with instants, which are
written as microseconds and never as local time.

A condition is SQL text, or True or False where it is settled already. Texts that are joined here
stay flat, and Spark builds a balanced tree of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final

#: A condition that may be settled already.
Sql = str | bool

NAN: Final = "CAST('NaN' AS DOUBLE)"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SUFFIXES: Final = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}


def quoted(name: str) -> str:
    """A column of that very name, dots and all.

    >>> quoted("pos.x")
    '`pos.x`'
    """
    return "`" + name.replace("`", "``") + "`"


def field_sql(record: str, name: str) -> str:
    """A field of a struct. In brackets, since `a.b` could also be the column b of a table a.

    >>> field_sql("`pos`", "x")
    "`pos`['x']"
    """
    return f"{record}['{name}']" if _is_plain(name) else f"{record}.{quoted(name)}"


def string_sql(text: str) -> str:
    """A string literal.

    >>> string_sql("IBM"), string_sql("it's")
    ("'IBM'", "CAST(X'69742773' AS STRING)")
    """
    return f"'{text}'" if _is_plain(text) else f"CAST({bytes_sql(text.encode())} AS STRING)"


def _is_plain(text: str) -> bool:
    return text.isprintable() and not any(c in text for c in "'\\$")


def bytes_sql(value: bytes) -> str:
    return f"X'{value.hex()}'"


def literal_sql(value: Any, form: str) -> str:
    """A literal of a Spark type.

    >>> literal_sql(5, "bigint"), literal_sql(5, "double"), literal_sql(True, "boolean")
    ('5L', '5.0D', 'true')
    """
    match form:
        case "boolean":
            return "true" if value else "false"
        case "string":
            return string_sql(value)
        case "binary":
            return bytes_sql(value)
        case "double":
            return _double_sql(float(value))
        case "float":
            return f"CAST({_double_sql(float(value))} AS FLOAT)"
        case "timestamp":
            return f"timestamp_micros({(value - _EPOCH) // timedelta(microseconds=1)}L)"
        case "timestamp_ntz":
            return f"TIMESTAMP_NTZ'{value.replace(tzinfo=None).isoformat(' ')}'"
        case _:
            return f"{value}{_SUFFIXES[form]}"


def _double_sql(value: float) -> str:
    if value in (inf, -inf):
        return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    return f"{value!r}D"


def all_of(conditions: Iterable[Sql]) -> Sql:
    """The conjunction, each condition once."""
    return _joined(conditions, " AND ", True)


def any_of(conditions: Iterable[Sql]) -> Sql:
    """The disjunction, each condition once."""
    return _joined(conditions, " OR ", False)


def _joined(conditions: Iterable[Sql], operator: str, neutral: bool) -> Sql:
    texts: dict[str, None] = {}
    for condition in conditions:
        if isinstance(condition, str):
            texts[condition] = None
        elif condition is not neutral:
            return not neutral
    if not texts:
        return neutral
    return f"({operator.join(texts)})" if len(texts) > 1 else next(iter(texts))


def negation(condition: Sql) -> Sql:
    return f"NOT ({condition})" if isinstance(condition, str) else not condition
