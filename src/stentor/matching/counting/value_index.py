"""The three-level index: from the value of an attribute to the constraints it satisfies (R-02.62).

The first level, attribute names, is the caller's: there is one `ValueIndex` for each name. The
second is the type of the value and the kind of test; the third is the value structure:

    = in                 hash table
    < <= > >=            two arrays of cuts, searched by bisection
    between              interval tree
    not between, !=      pieces of the above: a value lies in at most one of them
    prefix, suffix       tries
    contains             grams
    like, regex          within the interval of their prefix, or by a gram they require; then tested
    sets of elements     element → constraints, see `cells`
    exists, is           lists
    registered tests     each one asked, and so is a set of very many intervals

A constraint accepts values of several types through several parts, which meet nowhere; what is
found is found once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Generic

from stentor.filters.collection import CollectionSet
from stentor.filters.constraint import Constraint, Part
from stentor.filters.domains import BYTES, END, STRING
from stentor.filters.numbers import SplitNumbers
from stentor.filters.patterns import Pattern
from stentor.filters.ranges import Ranges
from stentor.filters.records import Records
from stentor.filters.tested import Tested, prefix_ranges
from stentor.matching.counting.cells import Cells
from stentor.matching.counting.interval_tree import IntervalTree
from stentor.matching.counting.structure import (
    Affixes,
    Everything,
    HalfLines,
    Points,
    Questions,
    Structure,
    Substrings,
    T,
)

#: The kind of a structure, and the key in it.
Entry = tuple[str, Any]

#: A set of more intervals than this, such as all but a long list, is asked as a whole: that takes a
#: single bisection, and to file all of them would take long.
MOST_INTERVALS: Final = 64

# Numbers are looked up among the tests for all numbers, and among those for their own kind.
INTS: Final = "number/int"
FLOATS: Final = "number/float"


class ValueIndex(Generic[T]):
    """Items under constraints on one attribute.

    >>> from stentor import Filter
    >>> index: ValueIndex[str] = ValueIndex()
    >>> index.add("low", Filter("x < 5").conjuncts[0].constraints["x"])
    >>> index.find("number", 4), index.find("number", 5), index.find("string", "4")
    (['low'], [], [])
    """

    __slots__ = ("rest", "structures")

    def __init__(self) -> None:
        #: For each type, kind of test → structure.
        self.structures: dict[str, dict[str, Structure[T]]] = {}
        #: Items that take every value of the types that they do not mention, with those they do.
        self.rest: dict[T, frozenset[str]] = {}

    def add(self, item: T, constraint: Constraint) -> None:
        added: list[tuple[str, Entry]] = []
        try:
            for place in _entries(constraint):
                self._add(item, *place)
                added.append(place)
        except BaseException:  # values of a registered type may fail to compare
            for place in added:
                self._remove(item, *place)
            raise
        if constraint.rest:
            self.rest[item] = frozenset(name for name, _ in constraint.parts)

    def remove(self, item: T, constraint: Constraint) -> None:
        for place in _entries(constraint):
            self._remove(item, *place)
        if constraint.rest:
            del self.rest[item]

    def _add(self, item: T, type_name: str, entry: Entry) -> None:
        kind, key = entry
        structure = self.structures.get(type_name, {}).get(kind) or _MAKE[kind]()
        structure.add(item, key)
        self.structures.setdefault(type_name, {})[kind] = structure

    def _remove(self, item: T, type_name: str, entry: Entry) -> None:
        kind, key = entry
        structures = self.structures[type_name]
        structures[kind].remove(item, key)
        if not structures[kind]:
            del structures[kind]
            if not structures:
                del self.structures[type_name]

    def find(self, type_name: str, value: Any) -> list[T]:
        """The items that accept the value, which is given as `comparable` gives it."""
        found = [item for item, mentioned in self.rest.items() if type_name not in mentioned]
        structures = self.structures.get(type_name)
        if structures is not None:
            for structure in structures.values():
                structure.find(value, found)
        if type_name == "number":
            structures = self.structures.get(INTS if type(value) is int else FLOATS)
            if structures is not None:
                for structure in structures.values():
                    structure.find(value, found)
        return found

    @property
    def sizes(self) -> dict[str, int]:
        """How much stands in each structure, by type and kind of test."""
        sizes = {
            f"{type_name} {kind}": len(structure)
            for type_name, structures in self.structures.items()
            for kind, structure in structures.items()
        }
        return {**sizes, "rest": len(self.rest)} if self.rest else sizes

    def __bool__(self) -> bool:
        return bool(self.structures or self.rest)


class Checked(Generic[T]):
    """Sets that are looked up by a larger set around them, and asked themselves if it is met.

    The key is the set. What is around it is an interval, or the strings that contain a text.
    """

    __slots__ = ("around",)

    def __init__(self) -> None:
        self.around: dict[str, Structure[tuple[T, Part]]] = {}

    def add(self, item: T, key: Tested) -> None:
        added: list[Entry] = []
        try:
            for kind, outer in _around(key):
                structure = self.around.get(kind) or _MAKE[kind]()
                structure.add((item, key), outer)
                self.around[kind] = structure
                added.append((kind, outer))
        except BaseException:
            for entry in added:
                self._remove((item, key), entry)
            raise

    def remove(self, item: T, key: Tested) -> None:
        for entry in _around(key):
            self._remove((item, key), entry)

    def _remove(self, pair: tuple[T, Part], entry: Entry) -> None:
        kind, outer = entry
        self.around[kind].remove(pair, outer)
        if not self.around[kind]:
            del self.around[kind]

    def find(self, value: Any, found: list[T]) -> None:
        near: list[tuple[T, Part]] = []
        for structure in self.around.values():
            structure.find(value, near)
        found.extend([item for item, part in near if part.contains(value)])

    def __len__(self) -> int:
        return sum(map(len, self.around.values()))


_MAKE: Final[dict[str, Callable[[], Structure[Any]]]] = {
    "any": Everything,
    "point": Points,
    "below": partial(HalfLines, below=True),
    "above": partial(HalfLines, below=False),
    "interval": IntervalTree,
    "prefix": partial(Affixes, at_end=False),
    "suffix": partial(Affixes, at_end=True),
    "contains": Substrings,
    "checked": Checked,
    "test": Questions,
    "elements": partial(Cells, ValueIndex),
}


def _entries(constraint: Constraint) -> Iterator[tuple[str, Entry]]:
    """All places at which a constraint stands: type, and entry."""
    for type_name, part in constraint.parts:
        if isinstance(part, SplitNumbers):
            yield from ((FLOATS, entry) for entry in _range_entries(part.floats))
            yield from ((INTS, entry) for entry in _range_entries(part.ints))
        else:
            yield from ((type_name, entry) for entry in _part_entries(part))


def _part_entries(part: Ranges | Tested | CollectionSet | Records) -> Iterator[Entry]:
    if isinstance(part, Ranges):
        yield from _range_entries(part)
    elif isinstance(part, CollectionSet):
        if part.is_all:
            yield "any", None
        elif not part.is_none:
            yield "elements", part
    elif isinstance(part, Records):
        yield "test", part
    elif is_plain(part, "suffix") or is_plain(part, "contains"):
        yield part.test.kind, part.test.text
    else:
        yield ("checked" if next(_around(part), None) else "test"), part


def is_plain(part: Part, kind: str) -> bool:
    """Whether the set is that of one string pattern of this kind."""
    return (
        isinstance(part, Tested)
        and part.operator == "leaf"
        and part.domain is STRING
        and type(part.test) is Pattern
        and part.test.kind == kind
    )


def _around(part: Tested) -> Iterator[Entry]:
    """Entries for a larger set that a structure can hold; none if there is no such set."""
    bounds = part.bounds
    if not bounds.is_all:
        yield from _range_entries(bounds)
    elif part.operator == "leaf" and part.domain is STRING and type(part.test) is Pattern:
        required = part.test.required
        if required:
            yield "contains", required[0]


def _range_entries(ranges: Ranges) -> Iterator[Entry]:
    """One entry for each piece of the set, or one for all of very many intervals."""
    if ranges.is_all:
        yield "any", None
        return
    if len(ranges.cuts) > 2 * MOST_INTERVALS and ranges.values is None:
        yield "test", ranges
        return
    normal = ranges.domain.normal
    for low, high in ranges.pieces:
        if low is not None and not low[1] and normal((low[0], 1)) == (high or END):
            yield "point", low[0]
        elif low is None:
            yield "below", high
        elif high is None:
            yield "above", low
        elif ranges.domain in (STRING, BYTES) and _is_prefix(ranges, low[0], (low, high)):
            yield "prefix", low[0]
        else:
            yield "interval", (low, high)


def _is_prefix(ranges: Ranges, text: Any, piece: Any) -> bool:
    return bool(text) and prefix_ranges(ranges.domain, text).cuts == piece
