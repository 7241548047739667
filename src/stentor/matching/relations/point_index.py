"""The dual of a value index: items at single values, found by a constraint that accepts these.

Values are kept sorted for each type, so that an interval is a slice; elements of collections are
hashed. `count` says at most how many items a search would give, cheaply enough to choose among
several attributes. `find` gives all items whose value the constraint accepts, and possibly others:
those without a known value, and those of sets that only an automaton or a registered operator
could tell. What is found has to be checked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, Generic

from stentor.filters.collection import CollectionSet
from stentor.filters.constraint import Constraint, Part
from stentor.filters.domains import Cut
from stentor.filters.numbers import SplitNumbers
from stentor.filters.ranges import Piece, Ranges
from stentor.filters.records import Records
from stentor.filters.unordered import comparable
from stentor.filters.witness import Absent, Sample
from stentor.matching.counting.structure import T
from stentor.model.values import COLLECTION, value_type_of

_ANY: Final[list[Piece]] = [(None, None)]


class _Sorted(Generic[T]):
    """Items under values of one type, in the order of the values."""

    __slots__ = ("items", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        #: What is found comes in the order in which it was added, so a run can be repeated.
        self.items: dict[Any, dict[T, None]] = {}

    def add(self, item: T, value: Any) -> None:
        items = self.items.get(value)
        if items is None:
            self.values.insert(bisect_left(self.values, value), value)
            items = self.items[value] = {}
        items[item] = None

    def remove(self, item: T, value: Any) -> None:
        items = self.items[value]
        items.pop(item, None)
        if not items:
            del self.items[value]
            del self.values[bisect_left(self.values, value)]

    def slice(self, piece: Piece) -> tuple[int, int]:
        low, high = piece
        first = 0 if low is None else self._place(low)
        return first, len(self.values) if high is None else self._place(high)

    def _place(self, cut: Cut) -> int:
        """How many values lie below the cut."""
        value, side = cut
        place = bisect_left(self.values, value)
        if side and place < len(self.values) and self.values[place] == value:
            place += 1
        return place


class PointIndex(Generic[T]):
    """Items, each at one state of an attribute."""

    __slots__ = ("absent", "by_element", "by_type", "collections", "unknown")

    def __init__(self) -> None:
        self.by_type: dict[str, _Sorted[T]] = {}
        self.collections: dict[T, tuple[Any, ...]] = {}
        self.by_element: dict[tuple[str, Any], dict[T, None]] = {}
        self.absent: dict[T, None] = {}
        self.unknown: dict[T, None] = {}

    def add(self, item: T, state: Sample) -> None:
        if state is None:
            self.unknown[item] = None
        elif isinstance(state, Absent):
            self.absent[item] = None
        elif state[0] == COLLECTION:
            self.collections[item] = state[1]
            for element in _elements(state[1]):
                self.by_element.setdefault(element, {})[item] = None
        else:
            if state[0] not in self.by_type:
                self.by_type[state[0]] = _Sorted()
            self.by_type[state[0]].add(item, state[1])

    def remove(self, item: T, state: Sample) -> None:
        if state is None:
            self.unknown.pop(item, None)
        elif isinstance(state, Absent):
            self.absent.pop(item, None)
        elif state[0] == COLLECTION:
            del self.collections[item]
            for element in _elements(state[1]):
                self.by_element[element].pop(item, None)
                if not self.by_element[element]:
                    del self.by_element[element]
        else:
            known = self.by_type[state[0]]
            known.remove(item, state[1])
            if not known.values:
                del self.by_type[state[0]]

    def count(self, constraint: Constraint) -> int:
        """Roughly how many items `find` would give."""
        count = len(self.unknown) + (len(self.absent) if constraint.absent else 0)
        for known, pieces in self._searched(constraint):
            for piece in pieces:
                first, last = known.slice(piece)
                count += last - first
        if self.collections:
            found = self._collections(constraint)
            count += len(self.collections) if found is None else len(found)
        return count

    def find(self, constraint: Constraint) -> Iterator[T]:
        """The items whose state the constraint accepts, and those that cannot be told.

        An item may come twice. The index must not change before the iterator is exhausted.
        """
        found: list[Iterable[T]] = [self.unknown]
        if constraint.absent:
            found.append(self.absent)
        for known, pieces in self._searched(constraint):
            for piece in pieces:
                first, last = known.slice(piece)
                items = map(known.items.__getitem__, known.values[first:last])
                found.append(chain.from_iterable(items))
        if self.collections:
            near = self._collections(constraint)
            found.append(self.collections if near is None else near)
        return chain.from_iterable(found)

    def _searched(self, constraint: Constraint) -> Iterator[tuple[_Sorted[T], list[Piece]]]:
        """Where to look: sorted values, and the pieces of them."""
        parts = dict(constraint.parts)
        for type_name, known in self.by_type.items():
            part = parts.get(type_name)
            if part is None:
                if constraint.rest:
                    yield known, _ANY
            elif isinstance(part, Ranges):
                yield known, part.pieces
            elif isinstance(part, SplitNumbers):
                # 1 and 1.0 stand at one place, whichever of them it is
                yield known, [*part.floats.pieces, *part.ints.pieces]
            elif not isinstance(part, CollectionSet | Records):
                yield known, part.bounds.pieces

    def _collections(self, constraint: Constraint) -> dict[T, None] | None:
        """The items at collections that may be accepted; None if that could be any of them."""
        part: Part | None = dict(constraint.parts).get(COLLECTION)
        if part is None:
            return None if constraint.rest else {}
        assert isinstance(part, CollectionSet)
        found: dict[T, None] = {}
        for cell in part.cells:
            hits = [values for hit in cell.hits if (values := _listed(hit)) is not None]
            if not hits:
                return None
            for element in min(hits, key=len):
                found |= self.by_element.get(element, {})
        return found

    def __bool__(self) -> bool:
        return bool(self.by_type or self.collections or self.absent or self.unknown)


def accepts(constraint: Constraint, state: Sample) -> bool:
    """Whether a constraint accepts a state; yes if the state is not known."""
    if state is None:
        return True
    if isinstance(state, Absent):
        return constraint.absent
    type_name, value = state
    for name, part in constraint.parts:
        if name == type_name:
            return part.contains(value)
    return constraint.rest


def _elements(collection: tuple[Any, ...]) -> set[tuple[str, Any]]:
    found = set()
    for element in collection:
        type_name = value_type_of(element)
        found.add((type_name, comparable(type_name, element)))
    return found


def _listed(constraint: Constraint) -> list[tuple[str, Any]] | None:
    """All values that a constraint accepts, if it names them."""
    if constraint.rest:
        return None
    found: list[tuple[str, Any]] = []
    for type_name, part in constraint.parts:
        values = part.values if isinstance(part, Ranges) else None
        if values is None:
            return None
        found.extend([(type_name, value) for value in values])
    return found
