"""Generated filters and notifications that meet often enough to be worth comparing.

Names and constants come from small pools, with the traps of the value model among them: 1, 1.0 and
True, the empty string and the empty collection, attributes that are absent, one attribute (`m`)
that may have any type, and one (`n`) whose numbers are where doubles run out, several side by side.
`ENGINES` lists the engines that are held against brute force.

The directory of this file is on the path of every test, because of the `conftest.py` beside it.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import combinations
from math import inf
from typing import Any

from hypothesis import strategies as st

from stentor.filters import Filter, Operator, register_operator
from stentor.matching import Index
from stentor.matching.brute import BruteForce
from stentor.matching.counting import Counting
from stentor.matching.protocol import Matcher

ENGINES: list[Callable[[], Matcher[Any]]] = [BruteForce, Counting, Index]

register_operator(Operator("multiple_of", "number", lambda value, of: value % of == 0))

NUMBERS = (0, 1, 1.0, 2, 2.5, 3, -1, 2**53 + 1)
#: A double for several of them, at both ends of the integers, at both ends of the doubles.
EDGES = (
    *(2**53 - 1, 2**53, 2.0**53, 2**53 + 1, 2.0**53 + 2, -(2**53) - 1),
    *(1767225600123456788, 1767225600123456789, float(1767225600123456789)),
    *(2**63 - 1, 2.0**63, 2.0**64, -(2**63), -(2.0**64)),
    *(inf, -inf, 1.7976931348623157e308, 5e-324, -0.0, 3),
)
TEXTS = ("", "a", "b", "ab", "ba", "abc", "abab", "c")
TIMES = (
    *(f"time '2024-01-0{day}'" for day in (1, 2, 3)),
    "time '9999-12-31T23:59:59.999998Z'",
    "time '9999-12-31T23:59:59.999999Z'",
)
TYPES = ("number", "int", "float", "string", "bool", "collection", "time")


def _ordered(name: str, constants: tuple[str, ...]) -> Iterator[str]:
    """Everything that can be asked of values with an order."""
    for constant in constants:
        for operator in ("=", "!=", "<", "<=", ">", ">="):
            yield f"{name} {operator} {constant}"
    for low, high in combinations(constants, 2):
        yield f"{name} between {low} and {high}"
        yield f"{name} not between {low} and {high}"
        yield f"{name} in ({low}, {high})"
        yield f"{name} not in ({low}, {high})"


def _matched(name: str) -> Iterator[str]:
    """Everything that can be asked of texts in addition."""
    for text in ("a", "b", "ab", "ba", "abc", "abab"):
        for word in ("prefix", "suffix", "contains", "not prefix", "not suffix", "not contains"):
            yield f"{name} {word} '{text}'"
    for text in ("a%b", "_b%", "%a%b%", "%ab_", "__"):
        yield f"{name} like '{text}'"
    for text in ("^a+$", "(ab)+", "a.c|b", "[^a]$"):
        yield f"{name} regex '{text}'"
        yield f"{name} not regex '{text}'"


def _collected(name: str) -> Iterator[str]:
    """Everything that can be asked of collections."""
    elements = ("'a'", "'b'", "1", "2", "true")
    for element in elements:
        yield f"{name} has {element}"
        yield f"{name} lacks {element}"
    for values in combinations(elements, 2):
        for words in ("overlaps", "disjoint from", "superset of", "subset of"):
            yield f"{name} {words} ({', '.join(values)})"
            yield f"{name} not {words} ({', '.join(values)})"
    yield f"{name} subset of ()"
    yield f"some {name} > 1"
    yield f"not some {name} prefix 'a'"
    yield f"some {name} != 1"


def _stated(name: str) -> Iterator[str]:
    """Presence and type."""
    yield f"exists {name}"
    yield f"{name} is missing"
    for type_name in TYPES:
        yield f"{name} is {type_name}"
        yield f"{name} is not {type_name}"


def _scattered(name: str, constants: tuple[str, ...]) -> Iterator[str]:
    """Sets of several pieces, whose ends lie close to each other or far apart."""
    for i in range(len(constants)):
        for step in (1, 2, 7):
            listed = ", ".join((constants * 3)[i : i + 3 * step : step])
            yield f"{name} in ({listed})"
            yield f"{name} not in ({listed})"


_numbers = tuple(repr(number) for number in NUMBERS)
_edges = tuple(f"number '{n!r}'" if isinstance(n, float) else repr(n) for n in EDGES)
_texts = tuple(f"'{text}'" for text in TEXTS)
#: Conditions by kind: each kind is as likely as any other, however many conditions it has.
_KINDS: tuple[tuple[str, ...], ...] = (
    tuple(_ordered("x", _numbers)),
    tuple(_ordered("y", _numbers)),
    (*_ordered("n", _edges), *_scattered("n", _edges), "n is int", "n is float", "x = (n)"),
    tuple(_ordered("s", _texts)),
    tuple(_matched("s")),
    tuple(_collected("tags")),
    tuple(_ordered("at", TIMES)),
    ("b = true", "b = false", "b != true", "b in (true, false)"),
    ("x multiple_of 2", "not x multiple_of 3", "x multiple_of 2 and x > 0"),
    (*_ordered("m", _numbers[:4]), *_ordered("m", _texts[:4]), *_matched("m"), *_collected("m")),
    tuple(text for name in ("x", "s", "tags", "m") for text in _stated(name)),
    ("x < y", "x + y = 3", "s = (m)"),
)

#: All of them.
CONDITIONS: tuple[str, ...] = tuple(dict.fromkeys(text for kind in _KINDS for text in kind))

#: One condition on one attribute, or one between several.
conditions: st.SearchStrategy[str] = st.sampled_from(_KINDS).flatmap(st.sampled_from)


@st.composite
def conjunctions(draw: st.DrawFn, least: int = 0) -> str:
    """Conjunctions, the empty one among them."""
    return " and ".join(draw(st.lists(conditions, min_size=least, max_size=4)))


@st.composite
def filter_texts(draw: st.DrawFn) -> str:
    """Texts of the language: also disjunctions, negations and contradictions."""
    shape = draw(st.sampled_from(("and", "and", "and", "or", "not", "never")))
    if shape == "or":
        parts = draw(st.lists(conjunctions(1), min_size=2, max_size=3))
        return " or ".join(f"({part})" for part in parts)
    if shape == "not":
        return f"not ({draw(conjunctions(1))})"
    return "x = 1 and x = 2" if shape == "never" else draw(conjunctions())


@lru_cache(maxsize=4096)
def filter_of(text: str) -> Filter:
    return Filter(text)


@st.composite
def _filters(draw: st.DrawFn) -> Filter:
    return filter_of(draw(filter_texts()))


filters: st.SearchStrategy[Filter] = _filters()

_MISSING = object()
_COLLECTIONS: tuple[Any, ...] = (
    [],
    ["a"],
    {"a", "b"},
    [1, "b"],
    [1.0],
    [True],
    [1, True, 2],
    ("c", "ab"),
)
#: For each attribute, the values that it takes.
VALUES: dict[str, tuple[Any, ...]] = {
    "x": NUMBERS,
    "y": NUMBERS,
    "s": TEXTS,
    "b": (False, True),
    "tags": _COLLECTIONS,
    "n": EDGES,
    "at": (
        *(datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)),
        *(datetime.max.replace(microsecond=999_999 - i, tzinfo=UTC) for i in range(3)),
        datetime.min.replace(tzinfo=UTC),
    ),
}
VALUES["m"] = (None, *NUMBERS, *EDGES[:4], *TEXTS, True, *_COLLECTIONS, *VALUES["at"])
VALUES["other"] = ("unread",)


@st.composite
def _events(draw: st.DrawFn) -> dict[str, Any]:
    states = {
        name: draw(st.sampled_from((_MISSING, *values, *values))) for name, values in VALUES.items()
    }
    return {name: value for name, value in states.items() if value is not _MISSING}


#: Attributes, some absent or None, some of a type that a filter does not expect.
events: st.SearchStrategy[dict[str, Any]] = _events()


def engine_name(make: Callable[[], Matcher[Any]]) -> str:
    """For the names of parametrized tests."""
    return getattr(make, "__name__", repr(make))
