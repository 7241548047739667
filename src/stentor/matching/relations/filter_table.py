"""Which of many filters cover a filter, are covered by it, or overlap it.

These are the relatives of counting in figures 3.7 to 3.9 of the book: a routing table asks them on
each change, so they must not look at every filter. `FilterTable` answers them in two steps. A
search finds candidates, at least all that belong to the answer; then each candidate is tested with
the relation itself, so that the answer is that of testing every pair (02/P8), whatever the
search lets through. All tests of one search share one budget (`Questions`): where filters are so
costly to compare that it runs out, those that are left count as not covering.

The search rests on one fact: if S covers F, then S accepts every witness of F (see `witness`).

  - For the filters that cover F, a witness of F is *matched* against the table.
  - For the filters that F covers, the table keeps a witness of each filter, and those are
    searched that lie inside of F.

Conjuncts are filed by the attributes they mention. A conjunct that covers another mentions none
but attributes of the other, so whole groups are passed over. Within a group, those that fix the
same attributes to the same values (`symbol = 'IBM'`) are together in a bucket, which a witness
finds by hash. A bucket that has grown large has indexes on its other attributes: by constraint, to
find what accepts a witness, and by witness, to find what lies inside a constraint.

A filter of several conjuncts covers F only if it accepts a witness of each conjunct of F, but it
may do so with all of its conjuncts together, where none alone covers anything. So the conjuncts of
such filters are matched by counting, with no regard to the attributes they mention. The other
way round, F covers a filter only if it covers each of its conjuncts, so one of them will do to find
it; and if F itself has several conjuncts, the witness lies in one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import Any, Generic

from stentor.errors import FilterTooComplex
from stentor.filters.conjunct import Conjunct
from stentor.filters.effort import TooCostly, afresh
from stentor.filters.filter import Filter, Questions
from stentor.filters.witness import Absent
from stentor.matching.counting.conjunct_index import ConjunctIndex, State
from stentor.matching.protocol import K, check_known, check_new
from stentor.matching.relations.buckets import Group, Row, Shape


class _Entry(Generic[K]):
    """A distinct filter and its keys."""

    __slots__ = ("filter", "keys", "number")

    def __init__(self, filter: Filter, number: int) -> None:
        self.filter = filter
        self.number = number
        self.keys: dict[K, None] = {}


class FilterTable(Generic[K]):
    """Filters under keys, and their relations to any filter.

    >>> table: FilterTable[str] = FilterTable()
    >>> table.add("any", Filter("symbol = 'IBM'"))
    >>> table.add("high", Filter("symbol = 'IBM' and price > 100"))
    >>> sorted(table.coverers(Filter("symbol = 'IBM' and price > 150")))
    ['any', 'high']
    >>> list(table.covered(Filter("price > 50")))
    ['high']
    """

    def __init__(self) -> None:
        self._filters: dict[K, Filter] = {}
        self._entries: dict[tuple[Conjunct, ...], _Entry[K]] = {}
        self._identical: dict[Filter, set[_Entry[K]]] = {}
        self._never: set[_Entry[K]] = set()
        self._rows: dict[Conjunct, Row] = {}
        self._unions: ConjunctIndex[_Entry[K]] = ConjunctIndex()
        self._groups: dict[Shape, Group] = {}
        # A group is found by each of its attributes, and by the first of them; "" if it has none.
        self._groups_with: dict[str, set[Group]] = {}
        self._groups_from: dict[str, dict[Group, None]] = {}
        #: Of rows and entries, so that what is found comes in the same order in every run.
        self._number = 0

    # -- changes

    def add(self, key: K, filter: Filter) -> None:
        """Hold the filter under the key; `DuplicateKey` if the key is taken."""
        check_new(key, self._filters)
        self._filters[key] = filter
        entry = self._entries.get(filter.conjuncts)
        if entry is None:
            entry = self._entries[filter.conjuncts] = _Entry(filter, self._next())
            self._file(entry)
        entry.keys[key] = None

    def remove(self, key: K) -> None:
        """Forget the key's filter; `UnknownKey` if there is none."""
        check_known(key, self._filters)
        filter = self._filters.pop(key)
        entry = self._entries[filter.conjuncts]
        del entry.keys[key]
        if not entry.keys:
            del self._entries[filter.conjuncts]
            self._unfile(entry)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _file(self, entry: _Entry[K]) -> None:
        filter = entry.filter
        self._identical.setdefault(filter, set()).add(entry)
        if filter.is_never:
            self._never.add(entry)
        for conjunct in filter.conjuncts:
            if len(filter.conjuncts) > 1:
                self._unions.add(conjunct, entry)
            row = self._rows.get(conjunct)
            if row is None:
                row = self._rows[conjunct] = Row(conjunct, self._next())
                self._group(row).add(row)
            row.owners[entry] = None
        for conjunct in filter.conjuncts[:1]:
            self._rows[conjunct].leads.add(entry)

    def _unfile(self, entry: _Entry[K]) -> None:
        filter = entry.filter
        _discard(self._identical, filter, entry)
        self._never.discard(entry)
        for conjunct in filter.conjuncts:
            if len(filter.conjuncts) > 1:
                self._unions.remove(conjunct, entry)
            row = self._rows[conjunct]
            row.owners.pop(entry, None)
            row.leads.discard(entry)
            if not row.owners:
                del self._rows[conjunct]
                self._groups[row.shape].remove(row)
                self._drop_if_empty(self._groups[row.shape])

    def _group(self, row: Row) -> Group:
        group = self._groups.get(row.shape)
        if group is None:
            group = self._groups[row.shape] = Group(row.shape)
            for name in group.names:
                self._groups_with.setdefault(name, set()).add(group)
            self._groups_from.setdefault(min(group.names, default=""), {})[group] = None
        return group

    def _drop_if_empty(self, group: Group) -> None:
        if not group.buckets:
            del self._groups[group.names, group.points]
            for name in group.names:
                _discard(self._groups_with, name, group)
            first = min(group.names, default="")
            del self._groups_from[first][group]
            if not self._groups_from[first]:
                del self._groups_from[first]

    # -- questions

    def coverers(self, filter: Filter) -> set[K]:
        """The filters that cover it (figure 3.7); the empty filter is always one of them.

        A filter that nothing can match is covered by all.
        """
        return set(self.covering(filter))

    def covering(self, filter: Filter) -> Iterator[K]:
        """The filters that cover it, one by one and in no special order, for who needs only some.

        The table must not change before the iterator is exhausted or dropped.
        """
        if filter.is_never:
            yield from self._filters
            return
        questions = Questions()
        probe = Row(filter.conjuncts[0])
        for group in self._within_names(probe):
            for row in group.around(probe):
                for entry in row.owners:
                    if len(entry.filter.conjuncts) == 1 and questions.covers(entry.filter, filter):
                        yield from entry.keys
        if self._unions.conjuncts:
            for entry in sorted(self._accepting_unions(filter), key=_number):
                if questions.covers(entry.filter, filter):
                    yield from entry.keys

    def covered(self, filter: Filter) -> KeysView[K]:
        """The filters that it covers (figure 3.8), in the order in which they came.

        The empty filter covers all.
        """
        if filter.is_always:
            return dict.fromkeys(self._filters).keys()
        alone = len(filter.conjuncts) == 1
        candidates: set[_Entry[K]] = set(self._never)
        for conjunct in filter.conjuncts:
            probe = Row(conjunct)
            for group in self._beyond_names(probe, alone=alone):
                for row in group.within(probe, alone=alone):
                    # One conjunct of a filter is enough to find it by.
                    if not candidates >= row.leads and row.may_lie_within(probe):
                        candidates |= row.leads
        questions = Questions()
        found = [each for each in candidates if questions.covers(filter, each.filter)]
        found.sort(key=_number)
        return dict.fromkeys(key for each in found for key in each.keys).keys()

    def identical(self, filter: Filter) -> set[K]:
        """The filters that are equal to it, found by their hash."""
        return _keys(self._identical.get(filter, ()))

    def overlapping(self, filter: Filter) -> set[K]:
        """The filters that some notification could match together with it.

        Conjuncts that have no attribute in common overlap, so the answer is often most of the
        table. Those that fix an attribute to a value which the filter rejects are passed over.
        """
        found: set[_Entry[K]] = set()
        overlap = Conjunct.overlaps if filter.is_light else _may_overlap
        for conjunct in filter.conjuncts:
            probe = Row(conjunct)
            for group in self._groups.values():
                if group.names.isdisjoint(probe.names):
                    for row in group.rows:
                        found.update(row.owners)
                    continue
                for bucket in group.meeting(probe, exact=False):
                    for row in bucket.rows:
                        if not row.owners.keys() <= found and overlap(conjunct, row.conjunct):
                            found.update(row.owners)
        return _keys(found)

    def may_overlap(self, filter: Filter) -> Iterator[K]:
        """Those of `overlapping` and others, one by one; some may come twice.

        None of them was compared, for who has little time. The table may change meanwhile: what has
        come since may be missing, and what has gone may be among them.
        """
        for conjunct in filter.conjuncts:
            probe = Row(conjunct)
            for group in list(self._groups.values()):
                for bucket in list(group.meeting(probe, exact=False)):
                    for row in list(bucket.rows):
                        for entry in list(row.owners):
                            yield from list(entry.keys)

    # -- candidates

    def _within_names(self, probe: Row) -> Iterator[Group]:
        """Groups that mention no other attributes."""
        for first in ("", *probe.constraints):
            for group in self._groups_from.get(first, ()):
                if group.names <= probe.names:
                    yield group

    def _beyond_names(self, probe: Row, *, alone: bool) -> Iterable[Group]:
        """Groups with conjuncts that the probe may cover, alone or together with others.

        What it covers alone mentions all of its attributes. Otherwise an attribute may be missing
        if the probe accepts that it is absent.
        """
        needed = [n for n, c in probe.constraints.items() if alone or not c.absent]
        if not needed:
            return self._groups.values()
        groups = [self._groups_with.get(name, set()) for name in needed]
        return set.intersection(*sorted(groups, key=len))

    def _accepting_unions(self, filter: Filter) -> set[_Entry[K]]:
        """Filters of several conjuncts that accept a witness of each conjunct of this one."""
        found: set[_Entry[K]] | None = None
        for conjunct in filter.conjuncts:
            probe = Row(conjunct)
            states: dict[str, State] = {}
            for name in probe.names:
                sample = probe.sample(name)
                if not isinstance(sample, Absent):
                    states[name] = sample
            accepting: set[_Entry[K]] = set()
            for counted in self._unions.matching(states):
                accepting |= counted.keys
            found = accepting if found is None else found & accepting
        return found or set()

    def get(self, key: K) -> Filter | None:
        """The filter that is held under the key, if any."""
        return self._filters.get(key)

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, key: object) -> bool:
        return key in self._filters


#: Steps that one pair of conjuncts may take before they count as overlapping. A pair is answered
#: in the same way whenever it is asked: what came because of an answer goes because of it.
PAIR_STEPS = 2_000


def _may_overlap(one: Conjunct, other: Conjunct) -> bool:
    try:
        with afresh(PAIR_STEPS):
            return one.overlaps(other)
    except (TooCostly, FilterTooComplex):
        return True


def _number(entry: _Entry[Any]) -> int:
    return entry.number


def _keys(entries: Iterable[_Entry[K]]) -> set[K]:
    return {key for entry in entries for key in entry.keys}


def _discard(sets: dict[Any, set[Any]], key: Any, item: Any) -> None:
    sets[key].discard(item)
    if not sets[key]:
        del sets[key]
