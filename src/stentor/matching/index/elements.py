"""Which of many conditions the elements of a list satisfy: an index within the index.

`any line in lines: line.sku = 'A-17' and line.quantity > 10` asks for an element that satisfies a
condition, which is a filter over the fields of that element. So the conditions on the elements of
one attribute are filters of an index of their own, and the elements of a list are its
notifications. What they match there are *tokens* of the list, as its plain elements are: a
condition that some element satisfies leads to the boxes that need it. A list of records in a
record is matched one level deeper in the same way.

An element is seen as the fields that it has, and under the empty name as what it is itself. The
empty list satisfies no condition, but is a token, too (`EMPTY`): `all line in lines: …` is true of
it, and otherwise only where some element satisfies what all must satisfy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import NO_VALUE, Constraint, everything, nothing
from stentor.filters.constraint import Part as ValueSet
from stentor.filters.records import Records
from stentor.matching.index.axes import Axis
from stentor.matching.index.columns import Column, ObjectColumn, RowSource
from stentor.matching.index.distinct import distinct
from stentor.matching.index.plan import Box, boxes_of
from stentor.matching.index.recent import CAPACITY, Recent, searchable
from stentor.matching.index.search import Part, search_one, search_parts
from stentor.matching.index.segment import Segment
from stentor.matching.index.table import GrowingTable, joined
from stentor.model.record import Record
from stentor.model.values import COLLECTION, RECORD, value_type_of

Int64s = NDArray[np.int64]

#: The condition that stands for "the list is empty"; no element could satisfy it.
EMPTY: Final = NO_VALUE
#: Up to this many elements are searched for one by one.
_FEW: Final = 4
_ITSELF: Final = ""
_RECORDS: Final = {Record}
_LISTS: Final = frozenset({tuple, frozenset})
_fields: Final = attrgetter("fields")


class Conditions:
    """Conditions on the elements of one attribute, each known by its number."""

    def __init__(self) -> None:
        self._alive = np.ones(0, np.uint8)
        self._empty: int | None = None
        #: Whether some condition asks for more than fields.
        self._asks_itself = False
        #: Whether an element may be found in several boxes of one condition.
        self._several = False

    @property
    def parts(self) -> Sequence[Part]:
        """What is searched."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts if isinstance(part, Segment))

    def _enter(self, number: int, condition: Constraint) -> list[tuple[Box, Conjunct]]:
        if condition == EMPTY:
            self._empty = number
            return []
        found: list[tuple[Box, Conjunct]] = []
        for conjunct in _conjuncts(condition):
            self._several = self._several or bool(found)
            self._asks_itself = self._asks_itself or _ITSELF in conjunct.constraints
            boxes, shared = boxes_of(conjunct, _first)
            self._several = self._several or shared
            found += [(box, conjunct) for box in boxes]
        return found

    def of_value(self, value: Any) -> list[int]:
        """The numbers of the conditions that the elements of one value satisfy."""
        if value_type_of(value) != COLLECTION:
            return []
        if not value:
            return [] if self._empty is None else [self._empty]
        parts = self.parts
        if len(value) > _FEW:
            numbers: list[int] = distinct(self._search(parts, list(value))[1]).tolist()
            return numbers
        found: set[int] = set()
        for element in value:
            facts = self._facts(element)
            for part in parts:
                found.update(search_one(part, facts, self._alive))
        return list(found)

    def of_column(self, column: Column) -> tuple[Int64s, Int64s]:
        """For all values of a column: rows and numbers in parallel, no pair twice, by row."""
        values = column.values()
        lists = values
        if not (isinstance(column, ObjectColumn) and column.kinds <= _LISTS):
            lists = [v if type(v) in _LISTS else () for v in values]
        elements = list(chain.from_iterable(lists))
        pairs: list[Int64s] = []
        numbers = len(self._alive)
        if elements:
            sizes = np.fromiter(map(len, lists), np.int64, len(lists))
            places, found = self._search(self.parts, elements)
            rows = np.repeat(np.arange(len(lists)), sizes)[places]
            if self._empty is None and not self._several and sizes.max() < 2:
                return rows, found
            pairs.append(rows * numbers + found)
        if self._empty is not None:
            empty = [i for i, v in enumerate(values) if v == () or v == frozenset()]
            pairs.append(np.array(empty, np.int64) * numbers + self._empty)
        if not pairs:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        every = distinct(pairs[0] if len(pairs) == 1 else np.concatenate(pairs))
        return np.divmod(every, numbers)

    def _search(self, parts: Sequence[Part], elements: list[Any]) -> tuple[Int64s, Int64s]:
        if not self._asks_itself and set(map(type, elements)) == _RECORDS:
            facts = list(map(_fields, elements))  # nearly always
        else:
            facts = [self._facts(element) for element in elements]
        places, found = search_parts(parts, RowSource.of_facts(facts), self._alive, None)
        return places, found.astype(np.int64)

    def _facts(self, element: Any) -> dict[str, Any]:
        if type(element) is not Record:
            return {_ITSELF: element}
        fields = element.fields
        return {**fields, _ITSELF: element} if self._asks_itself else fields


class SettledConditions(Conditions):
    """Those of a segment, which no others will come to."""

    def __init__(self, conditions: Sequence[Constraint]) -> None:
        super().__init__()
        table = GrowingTable()
        for number, condition in enumerate(conditions):
            for box, _ in self._enter(number, condition):
                table.append(number, box)
        self._alive = np.ones(len(conditions), np.uint8)
        self._segment = Segment(joined([table.frozen()], self._alive)) if len(table) else None

    @property
    def parts(self) -> Sequence[Part]:
        return () if self._segment is None else (self._segment,)


class GrowingConditions(Conditions):
    """Those of recent boxes, found as soon as they are appended."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._recent: list[Recent] = []

    @property
    def parts(self) -> Sequence[Part]:
        return [recent.now() for recent in self._recent if recent.count]

    def append(self, condition: Constraint) -> None:
        if self._count == len(self._alive):
            self._alive = np.ones(max(64, 2 * self._count), np.uint8)
        for box, conjunct in self._enter(self._count, condition):
            found, wider = searchable(box, conjunct)
            self._several = self._several or wider
            self._room_for(found).append(self._count, found)
        self._count += 1

    def _room_for(self, box: Box) -> Recent:
        checked = bool(box.checks)
        for recent in reversed(self._recent):
            if recent.is_checked is checked and recent.count < CAPACITY:
                return recent
        self._recent.append(Recent(checked))
        return self._recent[-1]


def _conjuncts(condition: Constraint) -> Iterable[Conjunct]:
    """A condition on an element as conjuncts on its fields and on itself."""
    others: list[tuple[str, ValueSet]] = []
    records: Records | None = None
    for name, part in condition.parts:
        if isinstance(part, Records):
            records = part
        else:
            others.append((name, part))
    if records is not None:
        only = Constraint(((RECORD, everything(RECORD)),))
        for conjunct in records.conjuncts:
            if all(said.absent for said in conjunct.constraints.values()):
                # A plain value has none of these fields either.
                yield Conjunct({_ITSELF: only, **conjunct.constraints}, conjunct.residuals)
            else:
                yield conjunct
        if condition.rest:
            others.append((RECORD, nothing(RECORD)))
    if others or condition.rest:
        parts = tuple(sorted(others, key=lambda part: part[0]))
        itself = Constraint(parts, rest=condition.rest)
        if not itself.is_none:
            yield Conjunct({_ITSELF: itself})


def _first(tokens: Iterable[tuple[Axis, object]]) -> tuple[Axis, object]:
    return next(iter(tokens))
