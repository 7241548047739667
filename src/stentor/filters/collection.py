"""Sets of collections: what a filter can say about a multi-valued attribute.

All operators on collections say one of two things about the elements of X, for some set S of
values: *some* element lies in S, or *all* elements lie in S.

    X has a          some {a}               X lacks a            all but {a}
    X overlaps M     some M                 X disjoint from M    all but M
    X superset of M  some {m}, for each m   X subset of M        all M

So a conjunction is a `Cell(universe, hits)`: every element lies in the universe, and each hit
contains some element. Negation turns some into all, and a set of collections is a union of cells.
Between two cells every relation is exact:

  - C includes D  iff  D's universe is inside C's, and each hit of C includes some hit of D
    (otherwise pick one element outside it from every hit of D: that X is in D, not in C);
  - C meets D     iff  every hit of either keeps an element inside both universes.

A union includes a cell if one of its cells does, or if nothing is left of the cell after each of
them has been taken out of it. The *hull* of a union is the smallest cell around it: all elements
that occur, and one hit for each choice of a hit from every cell. If the union includes its hull,
it is that one cell: so `overlaps` and `disjoint from` add up to everything, and `has 1 or has 2`
to `overlaps (1, 2)`. A union that stays several cells, such as `lacks 1 or lacks 2`, has no perfect
merger (the printed rule of the book is wrong there; 02/T5).

Sets are put together cell by cell, as they are written. `settled` works out what they mean: empty
cells go, and cells are joined where their union is one. A settled union may still have several
forms; two of them are equal if each includes the other, and their hash depends on what they mean
only. Unsettled ones are equal if they are written alike.

The empty collection may be published; it is in every cell without hits. An element is never a
collection itself, so the constraints on elements do not speak of collections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from stentor.errors import FilterTooComplex
from stentor.filters.effort import TooCostly, afresh, spend

if TYPE_CHECKING:
    from stentor.filters.constraint import Constraint

#: A set of collections may have this many cells at most.
CELL_LIMIT: Final = 1_024
#: More cells than this are not searched for pairs with one cell as their union.
MERGE_LIMIT: Final = 16
#: Hits that the hull of a union may have.
HULL_LIMIT: Final = 16
#: Parts of a cell that a test for inclusion may look at before it answers "no".
INCLUDE_PARTS: Final = 256
#: Steps that a comparison of two unions may take before it answers "not equal".
EQUALITY_STEPS: Final = 5_000


class Cell:
    """Collections whose elements all lie in `universe` and that meet every one of `hits`."""

    __slots__ = ("_key", "hits", "is_settled", "universe")

    def __init__(self, universe: Constraint, hits: frozenset[Constraint]) -> None:
        self.universe = universe
        self.hits = hits
        self._key: tuple[Constraint, frozenset[Constraint]] | None = None
        self.is_settled = False

    @property
    def key(self) -> tuple[Constraint, frozenset[Constraint]]:
        """The one form: hits inside the universe, none implied by another."""
        spend(1 + len(self.hits) ** 2)
        if self._key is None:
            inside = self.hits
            if not self.universe.is_all_values:
                inside = frozenset(
                    [hit.intersection(self.universe).settled() for hit in _ordered(inside)]
                )
            self._key = (self.universe, frozenset(_smallest(inside)))
        return self._key

    @property
    def is_none(self) -> bool:
        return any(hit.is_none for hit in self.key[1])

    def settled(self) -> Cell:
        """The same with all sets of elements in their plainest form."""
        if self.is_settled:
            return self
        hits = frozenset([hit.settled() for hit in _ordered(self.hits)])
        made = Cell(self.universe.settled(), hits)
        made.is_settled = True
        return made

    @property
    def is_written(self) -> bool:
        if self.is_settled or not self.universe.is_written:
            return False
        for hit in self.hits:  # noqa: SIM110 (as in `Filter.matches`)
            if not hit.is_written:
                return False
        return True

    def as_written(self) -> Cell:
        hits = frozenset([hit.as_written() for hit in self.hits])
        return Cell(self.universe.as_written(), hits)

    def contains(self, collection: Iterable[Any]) -> bool:
        elements = list(collection)
        return all(self.universe.accepts(e) for e in elements) and all(
            any(hit.accepts(e) for e in elements) for hit in self.hits
        )

    def includes(self, other: Cell) -> bool:
        universe, hits = other.key
        spend(1 + len(hits) * len(self.hits))
        return self.universe.includes(universe) and all(
            hit in hits or any(hit.includes(theirs) for theirs in hits) for hit in self.hits
        )

    def intersection(self, other: Cell) -> Cell:
        return Cell(self.universe.intersection(other.universe), self.hits | other.hits)

    def complement(self) -> list[Cell]:
        """One cell for each way to fail."""
        cells = [Cell(hit.complement(), frozenset()) for hit in self.hits]
        outside = self.universe.complement()
        if not outside.is_none:
            anything = self.universe.union(outside)
            cells.append(Cell(anything, frozenset((outside,))))
        return cells

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cell):
            return NotImplemented
        if self.is_settled and other.is_settled:
            return self.key == other.key
        return self.universe == other.universe and self.hits == other.hits

    def __hash__(self) -> int:
        return hash(self.key if self.is_settled else (self.universe, self.hits))

    def __repr__(self) -> str:
        return f"Cell({self.universe!r}, {sorted(map(repr, self.hits))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Cell, (self.universe, self.hits)


class CollectionSet:
    """An immutable union of cells."""

    __slots__ = ("_hash", "cells", "is_settled")

    def __init__(self, cells: tuple[Cell, ...]) -> None:
        """None of the cells may be empty at first sight; see `of` for any others."""
        self.cells = cells
        self._hash = 0
        self.is_settled = False

    @staticmethod
    def of(cells: Iterable[Cell]) -> CollectionSet:
        kept: dict[Cell, None] = {}
        single: list[Constraint] = []
        anything = None
        for cell in cells:
            spend(24 + 8 * len(cell.hits))
            if len(cell.hits) == 1 and cell.universe.is_all_values:
                single += cell.hits
                anything = cell.universe
            elif not any(hit.is_none for hit in cell.hits):
                kept[cell] = None
        if anything is not None:  # some element in A, or some in B: some in either
            hit = single[0].union_of(list(dict.fromkeys(single)))
            if not hit.is_none:
                kept[Cell(anything, frozenset((hit,)))] = None
        if len(kept) > CELL_LIMIT:
            raise FilterTooComplex(
                f"what the filter says of a collection has {len(kept):,} alternatives, and "
                f"{CELL_LIMIT:,} are allowed; write it as several subscriptions"
            )
        return CollectionSet(tuple(kept))

    def settled(self) -> CollectionSet:
        """The same set in as few cells as are found, in their plainest form."""
        if self.is_settled:
            return self
        kept = list(dict.fromkeys([c.settled() for c in _ordered(self.cells)]))
        kept = [cell for cell in kept if not cell.is_none]
        if 1 < len(kept) <= MERGE_LIMIT:
            kept = _merged(_ordered(kept))
        made = CollectionSet(tuple(kept))
        made.is_settled = True
        made._hash = hash(made._traits())
        return made

    @property
    def is_written(self) -> bool:
        """Nobody has worked out yet what it means, nor what a part of it means."""
        if self.is_settled:
            return False
        for cell in self.cells:  # noqa: SIM110 (as in `Filter.matches`)
            if not cell.is_written:
                return False
        return True

    def as_written(self) -> CollectionSet:
        """The same set as if nobody had."""
        return CollectionSet(tuple([cell.as_written() for cell in self.cells]))

    def contains(self, collection: Any) -> bool:
        return any(cell.contains(collection) for cell in self.cells)

    @property
    def is_none(self) -> bool:
        return not self.cells

    @property
    def is_all(self) -> bool:
        return any(not cell.hits and cell.universe.is_all_values for cell in self.cells)

    def includes(self, other: CollectionSet) -> bool:
        return all(_includes(self.cells, theirs) for theirs in other.cells)

    def intersects(self, other: CollectionSet) -> bool:
        for mine in self.cells:
            for theirs in other.cells:
                spend(8)
                if not mine.intersection(theirs).settled().is_none:
                    return True
        return False

    def union(self, other: CollectionSet) -> CollectionSet:
        return CollectionSet.of((*self.cells, *other.cells))

    def intersection(self, other: CollectionSet) -> CollectionSet:
        return CollectionSet.of(a.intersection(b) for a in self.cells for b in other.cells)

    def complement(self) -> CollectionSet:
        from stentor.filters.constraint import EXISTS

        result = CollectionSet((Cell(EXISTS, frozenset()),))
        for cell in self.cells:
            result = result.intersection(CollectionSet.of(cell.complement()))
        return result

    def merge(self, other: CollectionSet) -> CollectionSet | None:
        union = self.union(other).settled()
        return union if union.size <= max(self.size, other.size) else None

    @property
    def hull(self) -> Cell | None:
        """A cell that includes the set, with hits in the words they were written in."""
        return None if self.is_none else _hull(self.cells, tight=False)

    @property
    def size(self) -> int:
        """How many statements it takes, about some element or about all."""
        return sum([max(1, len(c.hits) + (not c.universe.is_all_values)) for c in self.cells])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CollectionSet):
            return NotImplemented
        if self is other or self.cells == other.cells:
            return True
        if hash(self) != hash(other):
            return False
        if not self.is_settled or not other.is_settled or len(self.cells) > MERGE_LIMIT:
            return frozenset(self.cells) == frozenset(other.cells)
        if len(self.cells) == 1 == len(other.cells):
            return False  # a single cell has one form
        spend(EQUALITY_STEPS)
        try:
            with afresh(EQUALITY_STEPS):
                return self.includes(other) and other.includes(self)
        except (TooCostly, FilterTooComplex):
            return frozenset(self.cells) == frozenset(other.cells)

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash(frozenset(self.cells))
        return self._hash

    def _traits(self) -> object:
        """What does not depend on the form: a single cell; or else the elements that occur, the
        elements that suffice alone, and whether the empty collection belongs to it."""
        if len(self.cells) < 2 or len(self.cells) > MERGE_LIMIT:
            return frozenset(self.cells)
        universes: Constraint | None = None
        alone: Constraint | None = None
        for cell in self.cells:
            universe, hits = cell.key
            single = universe
            for hit in _ordered(hits):
                single = single.intersection(hit).settled()
            universes = universe if universes is None else universes.union(universe).settled()
            alone = single if alone is None else alone.union(single).settled()
        return universes, alone, any(not cell.hits for cell in self.cells)

    def __repr__(self) -> str:
        return f"CollectionSet({sorted(map(repr, self.cells))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return CollectionSet, (self.cells,)


def _smallest(hits: Iterable[Constraint]) -> list[Constraint]:
    """Without those that include another one: meeting the smaller means meeting them."""
    unique = _ordered(dict.fromkeys(hits))
    spend(len(unique) ** 2)
    return [
        hit for hit in unique if not any(hit is not less and hit.includes(less) for less in unique)
    ]


def _includes(cells: Sequence[Cell], cell: Cell) -> bool:
    if any(mine.includes(cell) for mine in cells):
        return True
    return len(cells) > 1 and _nothing_left(cell, cells, [INCLUDE_PARTS])


def _nothing_left(cell: Cell, cells: Sequence[Cell], steps: list[int]) -> bool:
    """Whether taking the other cells out of the cell one after the other exhausts it."""
    for i, other in enumerate(cells):
        spend(8)
        if cell.intersection(other).settled().is_none:
            continue
        for outside in other.complement():
            spend(8)
            left = cell.intersection(outside).settled()
            if left.is_none:
                continue
            steps[0] -= 1
            if steps[0] < 0 or not _nothing_left(left, cells[i + 1 :], steps):
                return False
        return True
    return False


def _merged(cells: list[Cell]) -> list[Cell]:
    """The same union with as few cells as can be found by joining pairs, or all at once."""
    kept: list[Cell] = []
    for cell in cells:
        joined = True
        while joined:
            joined = False
            for i, other in enumerate(kept):
                one = _joined((cell, other))
                if one is not None:
                    del kept[i]
                    cell, joined = one, True
                    break
        kept.append(cell)
    if len(kept) > 2:
        one = _joined(kept)
        return [one] if one is not None else _without_covered(kept)
    return kept


def _without_covered(cells: list[Cell]) -> list[Cell]:
    """Without those that the others cover together."""
    kept = list(cells)
    for cell in cells:
        others = [c for c in kept if c is not cell]
        if _includes(others, cell):
            kept = others
    return kept


def _joined(cells: Sequence[Cell]) -> Cell | None:
    """The union of the cells, if it is one cell."""
    for cell in cells:
        if all(cell.includes(other) for other in cells):
            return cell
    # A collection with an element of every kind is in one cell only if that has room for all.
    widest = [c for c in cells if all(c.universe.includes(o.universe) for o in cells)]
    if not widest:
        return None
    for tight in (False, True):
        hull = _hull(cells, tight)
        if hull is not None and _includes(cells, hull):
            return hull
    return None


def _hull(cells: Sequence[Cell], tight: bool) -> Cell | None:
    """The smallest cell around the cells; None if it has too many hits.

    Hits as they were written have plainer words than those cut down to the universe (`tight`).
    """
    universe = cells[0].universe
    for cell in cells[1:]:
        universe = universe.union(cell.universe).settled()
    hits = [cell.key[1] if tight else cell.hits for cell in cells]
    common = frozenset.intersection(*hits)
    others = [h - common for h in hits]
    if prod(map(len, others)) > HULL_LIMIT:
        return None
    found = set(common)
    for choice in product(*map(_ordered, others)):
        spend(len(choice))
        hit = choice[0]
        for other in choice[1:]:
            hit = hit.union(other).settled()
        found.add(hit)
    return Cell(universe, frozenset(_smallest(found))).settled()


def _ordered(parts: Iterable[Any]) -> list[Any]:
    """In an order that depends on the parts alone, so that work on them takes the same steps."""
    kept = list(parts)
    spend(8 * len(kept))
    return sorted(kept, key=repr) if len(kept) > 1 else kept
