"""A broker's own filters, reduced to what it tells the others.

Simple routing announces each filter by itself, identity-based routing equal ones once. The other
two strategies form *groups*. A group announces one filter; its members are the filters that need
not be announced because of it, and its roots are those members whose union the announced filter is.
Under covering there is one root, which is the announced filter. Under merging there are more: a new
group is merged perfectly with groups that differ from it in one attribute, until none is left.

A new filter joins a group that covers it, or else founds one, which absorbs the groups it covers.
When a member that is not a root goes, nothing changes. When a root goes, the group is dissolved and
its other members are placed anew. So a merger is undone exactly, and a change costs a few searches
of the announced filters, plus some for each member of a dissolved group; what hides below others
is never looked at. Nothing rests on covering being transitive as far as `covers` can tell: a member
of an absorbed group is covered by the new one because the announced filter between them was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from itertools import count
from typing import Final, NamedTuple, Protocol

from stentor.errors import UnknownStrategy
from stentor.filters import Filter
from stentor.matching import FilterTable
from stentor.routing.graph.messages import Entry
from stentor.routing.protocol import FilterId

#: Roots of a group, at most: so many filters at most are merged anew when one of them goes.
MAX_ROOTS: Final = 32


class Delta(NamedTuple):
    """Entries to announce and numbers of entries to withdraw, in one step."""

    add: tuple[Entry, ...]
    remove: tuple[int, ...]


class LocalSet:
    """The filters of a broker's clients, and the reduced set that is announced for them.

    >>> subscriptions = LocalSet("covering")
    >>> subscriptions.add(FilterId("ann", 1), Filter("x > 5"))
    Delta(add=((0, Filter('x > 5')),), remove=())
    >>> subscriptions.add(FilterId("bob", 1), Filter("x > 1"))
    Delta(add=((1, Filter('x > 1')),), remove=(0,))
    >>> subscriptions.remove(FilterId("bob", 1))
    Delta(add=((2, Filter('x > 5')),), remove=(1,))
    """

    def __init__(self, strategy: str) -> None:
        """`UnknownStrategy` unless it is simple, identity, covering or merging."""
        if strategy not in STRATEGIES:
            raise UnknownStrategy(
                f"there is no routing strategy {strategy!r}; choose one of {', '.join(STRATEGIES)}"
            )
        #: All filters, by id.
        self.filters: dict[FilterId, Filter] = {}
        self._each = strategy == "simple"
        self._copies: Counter[Hashable] = Counter()
        self._changes = _Changes()
        self._reduction: _Reduction = (
            _Groups(self._changes, merge=strategy == "merging")
            if strategy in ("covering", "merging")
            else self._changes
        )

    def add(self, id: FilterId, filter: Filter) -> Delta:
        """Hold a filter under an id that is not in use."""
        self.filters[id] = filter
        key = self._key(id, filter)
        self._copies[key] += 1
        if self._copies[key] == 1 and (self._each or not filter.is_never):
            self._reduction.add(key, filter)
        return self._changes.take()

    def remove(self, id: FilterId) -> Delta:
        """Forget the filter under an id that is in use."""
        filter = self.filters.pop(id)
        key = self._key(id, filter)
        self._copies[key] -= 1
        if not self._copies[key]:
            del self._copies[key]
            if self._each or not filter.is_never:
                self._reduction.remove(key, filter)
        return self._changes.take()

    def _key(self, id: FilterId, filter: Filter) -> Hashable:
        return id if self._each else filter


#: The strategies that a `LocalSet` knows.
STRATEGIES: Final = ("simple", "identity", "covering", "merging")


class _Reduction(Protocol):
    def add(self, key: Hashable, filter: Filter) -> None: ...

    def remove(self, key: Hashable, filter: Filter) -> None: ...


class _Changes:
    """What is announced, and how that differs from what was last taken.

    A key that is withdrawn and announced again in between keeps its number.
    """

    def __init__(self) -> None:
        self._announced: dict[Hashable, Filter] = {}
        self._numbers: dict[Hashable, int] = {}
        self._touched: dict[Hashable, None] = {}
        self._next = count()

    def add(self, key: Hashable, filter: Filter) -> None:
        self._announced[key] = filter
        self._touched[key] = None

    def remove(self, key: Hashable, filter: Filter) -> None:
        del self._announced[key]
        self._touched[key] = None

    def take(self) -> Delta:
        add: list[Entry] = []
        remove: list[int] = []
        for key in self._touched:
            filter = self._announced.get(key)
            if filter is None:
                number = self._numbers.pop(key, None)
                if number is not None:
                    remove.append(number)
            elif key not in self._numbers:
                number = self._numbers[key] = next(self._next)
                add.append((number, filter))
        self._touched = {}
        return Delta(tuple(add), tuple(remove))


class _Group:
    """An announced filter, the members it stands for, and those whose union it is."""

    __slots__ = ("filter", "members", "roots")

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.members: dict[Filter, None] = {filter: None}
        self.roots: dict[Filter, None] = {filter: None}


class _Groups:
    """Covering, with or without merging, of distinct filters. Groups go by numbers."""

    def __init__(self, changes: _Changes, *, merge: bool) -> None:
        self._changes = changes
        self._merge = merge
        self._groups: dict[int, _Group] = {}
        self._group_of: dict[Filter, int] = {}
        self._announced: FilterTable[int] = FilterTable()
        self._next = count()

    def add(self, key: Hashable, filter: Filter) -> None:
        coverers = self._announced.coverers(filter)
        if coverers:
            number = min(coverers)
            self._groups[number].members[filter] = None
            self._group_of[filter] = number
            return
        group = _Group(filter)
        self._absorb_covered(group)
        while self._merge and self._merge_one(group):
            self._absorb_covered(group)
        number = next(self._next)
        self._groups[number] = group
        self._group_of.update(dict.fromkeys(group.members, number))
        self._announced.add(number, group.filter)
        self._changes.add(group.filter, group.filter)

    def _absorb_covered(self, group: _Group) -> None:
        for number in sorted(self._announced.covered(group.filter)):
            group.members.update(self._take_out(number).members)

    def _merge_one(self, group: _Group) -> bool:
        """Merge with the first candidate that allows it; False if none does."""
        for number in sorted({key for key, _ in self._announced.merge_candidates(group.filter)}):
            other = self._groups[number]
            if len(group.roots) + len(other.roots) > MAX_ROOTS:
                continue
            merger = group.filter.merge(other.filter)
            if merger is not None:
                self._take_out(number)
                group.filter = merger
                group.members.update(other.members)
                group.roots.update(other.roots)
                return True
        return False

    def _take_out(self, number: int) -> _Group:
        group = self._groups.pop(number)
        self._announced.remove(number)
        self._changes.remove(group.filter, group.filter)
        return group

    def remove(self, key: Hashable, filter: Filter) -> None:
        number = self._group_of.pop(filter)
        group = self._groups[number]
        del group.members[filter]
        if filter in group.roots:
            self._take_out(number)
            # Those that say less cover more: placed first, they save placing others twice.
            for member in sorted(group.members, key=_mentions):
                self.add(member, member)


def _mentions(filter: Filter) -> int:
    return sum(len(conjunct.constraints) for conjunct in filter.conjuncts)
