"""The ordered domains over which value sets are built.

A *cut* divides an ordered domain in two: `(v, 0)` lies just below the value v, `(v, 1)` just above
it. A domain knows which cuts are one and the same (above 3 and below 4 among the integers, above
"a" and below "a\\0" among the strings) and which lie at the very beginning or end (below "", above
True). `Domain.normal` picks one cut of each such family, and that makes sets of values over the
domain canonical: equal sets have equal cuts.

Reals are treated as dense, although doubles are not. The difference shows only between neighboring
doubles, and there on the safe side: an interval with no double in it counts as not empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from stentor.model.values import INT_MAX, INT_MIN

#: A place between values: (value, 0) just below the value, (value, 1) just above it.
Cut = tuple[Any, int]


class _Edge:
    """A cut at the beginning or at the end of a domain; it divides nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


BEGIN: Final = _Edge("BEGIN")
END: Final = _Edge("END")


def _same(cut: Cut) -> Cut | _Edge:
    return cut


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """An ordered domain: its name and the rule that normalizes its cuts."""

    name: str
    normal: Callable[[Cut], Cut | _Edge] = field(default=_same)
    #: Every value has a next one, so all normal cuts have side 0.
    discrete: bool = False
    #: The first value of the domain, if it has one: no cut lies below it.
    least: Any = None

    def __repr__(self) -> str:
        return f"<domain {self.name}>"

    def __reduce__(self) -> tuple[Callable[[str], Domain], tuple[str]]:
        return domain, (self.name,)


def _real(cut: Cut) -> Cut | _Edge:
    value, side = cut
    if value == _INF:
        return END if side else cut
    if value == -_INF:
        return cut if side else BEGIN
    return cut


def _integer(cut: Cut) -> Cut | _Edge:
    value = cut[0] + cut[1]
    if value <= INT_MIN:
        return BEGIN
    if value > INT_MAX:
        return END
    return (value, 0)


def _bool(cut: Cut) -> Cut | _Edge:
    place = int(cut[0]) + cut[1]
    return (BEGIN, (True, 0), END)[place]


def _string(cut: Cut) -> Cut | _Edge:
    value, side = cut
    if not side:
        if not value:
            return BEGIN
        if value[-1] == "\0":
            return (value[:-1], 1)
    return cut


def _bytes(cut: Cut) -> Cut | _Edge:
    value, side = cut
    if not side:
        if not value:
            return BEGIN
        if value[-1] == 0:
            return (value[:-1], 1)
    return cut


def _time(cut: Cut) -> Cut | _Edge:
    value, side = cut
    if side:
        if value == _LAST_TIME:
            return END
        return (value + _MICROSECOND, 0)
    return BEGIN if value == _FIRST_TIME else cut


_INF = float("inf")
_MICROSECOND = timedelta(microseconds=1)
_FIRST_TIME = datetime.min.replace(tzinfo=UTC)
_LAST_TIME = datetime.max.replace(tzinfo=UTC)

REAL: Final = Domain("number", _real, least=-_INF)
INTEGER: Final = Domain("integer", _integer, discrete=True, least=INT_MIN)
BOOL: Final = Domain("bool", _bool, discrete=True, least=False)
STRING: Final = Domain("string", _string, least="")
BYTES: Final = Domain("bytes", _bytes, least=b"")
TIME: Final = Domain("time", _time, discrete=True, least=_FIRST_TIME)

_GREATEST: Final = {
    REAL.name: _INF,
    INTEGER.name: INT_MAX,
    BOOL.name: True,
    TIME.name: _LAST_TIME,
}
_domains: dict[str, Domain] = {d.name: d for d in (REAL, INTEGER, BOOL, STRING, BYTES, TIME)}


def first_above(dom: Domain, cut: Cut | None) -> Any:
    """The least value above a cut (None: of the whole domain); None if it cannot be named.

    >>> first_above(STRING, ("a", 1)), first_above(REAL, (1, 1))
    ('a\\x00', None)
    """
    if cut is None:
        return dom.least
    value, side = cut
    if not side:
        return value
    if dom is STRING:
        return value + "\0"
    return value + b"\0" if dom is BYTES else None


def last_below(dom: Domain, cut: Cut | None) -> Any:
    """The greatest value below a cut (None: of the whole domain); None if it cannot be named.

    >>> last_below(INTEGER, (4, 0)), last_below(REAL, (4, 0)), last_below(BOOL, None)
    (3, None, True)
    """
    if cut is None:
        return _GREATEST.get(dom.name)
    value, side = cut
    if side:
        return value
    if dom is INTEGER:
        return value - 1
    if dom is TIME:
        return value - _MICROSECOND
    return False if dom is BOOL else None


def domain(name: str) -> Domain:
    """The domain of a value type. Registered types are dense and without end."""
    found = _domains.get(name)
    if found is None:
        found = _domains[name] = Domain(name)
    return found
