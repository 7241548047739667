"""The value structure for collections: element → constraints.

A set of collections is a union of cells (see `stentor.filters.collection`): every element lies in a
universe, and each of some hits contains an element. So the universes and hits of all cells are
constraints on single elements, and these are kept in an index of their own. For a collection X
each of its elements is looked up once. A cell with hits is satisfied if all of its hits were met,
which is a count, and if its universe then proves to contain X. A cell without hits (`subset of`) is
satisfied if its universe was met by as many elements as X has; the empty X satisfies all of these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Generic, Protocol

from stentor.filters.collection import Cell, CollectionSet
from stentor.filters.constraint import Constraint, comparable
from stentor.matching.counting.structure import T
from stentor.model.values import value_type_of


class _ElementConstraint:
    """A constraint on elements, with the cells that have it as hit or as universe."""

    __slots__ = ("as_hit", "as_universe", "constraint")

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self.as_hit: set[_CellEntry[Any]] = set()
        self.as_universe: set[_CellEntry[Any]] = set()


class _CellEntry(Generic[T]):
    __slots__ = ("cell", "items")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.items: set[T] = set()

    def inside(self, elements: list[Any]) -> bool:
        universe = self.cell.universe
        return universe.is_all_values or all(universe.accepts(e) for e in elements)


class _ElementIndex(Protocol):
    def add(self, item: _ElementConstraint, constraint: Constraint) -> None: ...
    def remove(self, item: _ElementConstraint, constraint: Constraint) -> None: ...
    def find(self, type_name: str, value: Any) -> list[_ElementConstraint]: ...


class Cells(Generic[T]):
    """Items under sets of collections."""

    __slots__ = ("_constraints", "_entries", "_index", "_without_hits")

    def __init__(self, make_index: Callable[[], _ElementIndex]) -> None:
        self._index = make_index()
        self._constraints: dict[Constraint, _ElementConstraint] = {}
        self._entries: dict[Cell, _CellEntry[T]] = {}
        self._without_hits: set[_CellEntry[T]] = set()

    def add(self, item: T, key: CollectionSet) -> None:
        added: list[Cell] = []
        try:
            for cell in key.cells:
                entry = self._entries.get(cell)
                if entry is None:
                    entry = self._file(cell)
                entry.items.add(item)
                added.append(cell)
        except BaseException:
            for cell in added:
                self._remove(item, cell)
            raise

    def remove(self, item: T, key: CollectionSet) -> None:
        for cell in key.cells:
            self._remove(item, cell)

    def find(self, value: Any, found: list[T]) -> None:
        elements = {_identity(e): e for e in value}
        met: dict[_ElementConstraint, int] = defaultdict(int)
        for type_name, _, stored in elements:
            for constraint in self._index.find(type_name, stored):
                met[constraint] += 1
        accepted: set[_CellEntry[T]] = set() if elements else set(self._without_hits)
        hits: dict[_CellEntry[T], int] = defaultdict(int)
        for constraint, count in met.items():
            for entry in constraint.as_hit:
                hits[entry] += 1
            if count == len(elements):
                accepted |= constraint.as_universe
        members = list(elements.values())
        for entry, count in hits.items():
            if count == len(entry.cell.hits) and entry.inside(members):
                accepted.add(entry)
        # An item with several cells may have been found through more than one.
        found.extend({item for entry in accepted for item in entry.items})

    def _file(self, cell: Cell) -> _CellEntry[T]:
        entry: _CellEntry[T] = _CellEntry(cell)
        filed: list[Constraint] = []
        try:
            for hit in cell.hits:
                self._constraint(hit).as_hit.add(entry)
                filed.append(hit)
            if not cell.hits:
                self._constraint(cell.universe).as_universe.add(entry)
                self._without_hits.add(entry)
        except BaseException:
            for hit in filed:
                self._leave(entry, hit)
            raise
        self._entries[cell] = entry
        return entry

    def _constraint(self, constraint: Constraint) -> _ElementConstraint:
        known = self._constraints.get(constraint)
        if known is None:
            known = _ElementConstraint(constraint)
            self._index.add(known, constraint)
            self._constraints[constraint] = known
        return known

    def _remove(self, item: T, cell: Cell) -> None:
        entry = self._entries[cell]
        entry.items.discard(item)
        if entry.items:
            return
        del self._entries[cell]
        self._without_hits.discard(entry)
        for constraint in entry.cell.hits or (entry.cell.universe,):
            self._leave(entry, constraint)

    def _leave(self, entry: _CellEntry[T], constraint: Constraint) -> None:
        known = self._constraints[constraint]
        known.as_hit.discard(entry)
        known.as_universe.discard(entry)
        if not known.as_hit and not known.as_universe:
            self._index.remove(known, known.constraint)
            del self._constraints[constraint]

    def __len__(self) -> int:
        return len(self._entries)


def _identity(element: Any) -> tuple[str, type, Any]:
    """What makes elements the same: 1 and True differ, and some filters tell 1 from 1.0."""
    type_name = value_type_of(element)
    stored = comparable(type_name, element)
    return type_name, type(stored), stored
