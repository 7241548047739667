"""Covering-based routing: only what nothing else covers is announced (R-03.19, 08/A2 to A5).

For each neighbor the announced filters are the maximal ones of those wanted there. One structure
serves all neighbors, because the questions are the same for all of them: a filter is a node that
knows at which neighbors it is wanted and at which it is announced, both as bit masks. Wanted but
not announced means hidden: another filter that is wanted there covers it.

The announced filters, those that are announced somewhere, are in a `FilterTable`. So a change is
decided by two searches, for the announced filters that cover the new one and for those that it
covers, and neither looks at what is hidden. That is enough: if any wanted filter covers
another, then so does one that is announced.

A hidden node hangs below others that cover it, its parents: wherever it is hidden, one of them is
wanted. When a node is no longer wanted somewhere, only its children can have lost what
hid them there; each is looked up again, and then either hangs elsewhere or is announced. When an
announced node is hidden by a larger one, its children stay where they are, since the larger one
covers them too. Children never hang below themselves: a node is hung below one that is
announced at that moment, so for each neighbor the way up leads to nodes hidden ever later.

The table is no full diagram of the order, and a node hangs only where it must: that makes a change
cheap, whatever the number of filters held.

A filter that covers very many hides them when it comes and frees them when it goes, and each costs
a search. With `at_once` that is done a few at a time, by `work`, and even fewer where searches take
long (`EFFORT`). It is gapless: what is to be hidden stays announced until its turn comes, and what
is withdrawn stays announced, though it hides nothing any more, until all that it hid have been
placed. In between neighbors are asked for more than is wanted, never for less.

The first slot is no neighbor but a reference: everything wanted anywhere is wanted there, so what
is announced there is covered by nothing. A link that comes up finds its announcements ready.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, Protocol, TypeVar

from stentor.filters import Filter
from stentor.filters.effort import effort
from stentor.matching import FilterTable
from stentor.routing.reducers.announcements import Announcements
from stentor.routing.reducers.slots import REFERENCE

#: How many of the last ones that were placed may hide the next one.
LOOK_BACK: Final = 8
#: Elementary steps (see `effort`) after which no more nodes are placed in one step.
EFFORT: Final = 10_000

#: For whose sake nodes wait for their turn.
Cause = TypeVar("Cause")


class Visible(Protocol):
    """Filters by themselves, and their relations: a `FilterTable`, or one that others share.

    It may hold filters that others have written there. Those that a filter covers come in an order
    that is the same in every run.
    """

    def add(self, key: Filter, filter: Filter) -> None: ...

    def remove(self, key: Filter) -> None: ...

    def covering(self, filter: Filter) -> Iterable[Filter]: ...

    def covered(self, filter: Filter) -> Collection[Filter]: ...


class _Node:
    """A filter, where it is wanted, where it is announced, and what hides it elsewhere."""

    __slots__ = ("_children", "_parents", "announced", "filter", "wanted")

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.wanted = 0
        self.announced = 0
        # There are very many nodes, and most have neither.
        self._parents: dict[_Node, None] | None = None
        self._children: dict[_Node, None] | None = None

    @property
    def hidden(self) -> int:
        return self.wanted & ~self.announced

    @property
    def parents(self) -> list[_Node]:
        return list(self._parents or ())

    @property
    def children(self) -> list[_Node]:
        return list(self._children or ())

    def hang(self, parent: _Node) -> None:
        """Below another one."""
        if self._parents is None:
            self._parents = {}
        if parent._children is None:
            parent._children = {}
        self._parents[parent] = None
        parent._children[self] = None

    def unhang(self, parent: _Node) -> None:
        """No longer below that one."""
        for those, one in ((self._parents, parent), (parent._children, self)):
            assert those is not None
            del those[one]
        self._parents = self._parents or None
        parent._children = parent._children or None


class _Parting:
    """A filter is no longer wanted somewhere, and still announced at some of these neighbors."""

    __slots__ = ("announced", "filter", "unwanted")

    def __init__(self, filter: Filter, unwanted: int, announced: int) -> None:
        self.filter = filter
        self.unwanted = unwanted
        self.announced = announced


class CoveringReducer:
    """Announces the maximal ones of the wanted filters.

    >>> reducer = CoveringReducer()
    >>> small, large = Filter("x > 5"), Filter("x > 1")
    >>> reducer.want(small, small, REFERENCE | 0b10)
    >>> reducer.want(large, large, REFERENCE | 0b10)
    >>> list(reducer.announced(1))
    [Filter('x > 1')]
    >>> reducer.want(large, large, 0)
    >>> list(reducer.announced(1))
    [Filter('x > 5')]
    """

    def __init__(self, at_once: int | None = None, visible: Visible | None = None) -> None:
        """`at_once` is how many are hidden, or placed anew, in one step; None is all.

        `visible` is where announced filters are searched, if that is not its own.
        """
        self.announcements = Announcements()
        self._at_once = at_once
        #: Those that may have lost what hid them.
        self._freed: deque[tuple[_Parting, Iterator[_Node]]] = deque()
        #: The last parting of each filter that has not gone yet.
        self._parting: dict[Filter, _Parting] = {}
        #: Announced ones that another one covers.
        self._outdone: deque[tuple[_Node, Iterator[_Node]]] = deque()
        self._nodes: dict[Filter, _Node] = {}
        self._visible: Visible = FilterTable() if visible is None else visible
        #: Those that are announced somewhere, but not at the reference slot.
        self._apart: dict[_Node, None] = {}

    def want(self, key: Hashable, filter: Filter, wanted: int) -> None:
        self.want_all([(key, filter, wanted)])

    def want_all(self, changes: Iterable[tuple[Hashable, Filter, int]]) -> None:
        """First all that is wanted less, then all that is wanted more, then who lost what hid it.

        So of many filters that go together, none comes up just because another went first.
        """
        growing: list[tuple[_Node, int]] = []
        for _, filter, wanted in changes:
            node = self._nodes.get(filter)
            if node is None:
                if not wanted or filter.is_never:  # nothing matches it, everything covers it
                    continue
                node = self._nodes[filter] = _Node(filter)
            more, less = wanted & ~node.wanted, node.wanted & ~wanted
            if less:
                self._want_less(node, less)
            if more:
                node.wanted |= more
                growing.append((node, more))
            if not node.wanted:
                del self._nodes[filter]
        for node, more in growing:
            self._place(node, more & node.hidden)
        self.work()

    @property
    def has_work(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._freed or self._outdone)

    def work(self) -> None:
        """Go on with what the last changes have left to do."""
        if self._outdone:
            for larger, covered in self._next(self._outdone)[0]:
                self._hide(covered, larger)
        if self._freed:
            nodes, over = self._next(self._freed)
            freed: dict[_Node, int] = {}
            for parting, child in nodes:
                freed[child] = freed.get(child, 0) | parting.unwanted
            late = self._place_freed(freed)
            waiting: dict[_Parting, list[_Node]] = {}
            for parting, child in nodes:
                if child in late:
                    waiting.setdefault(parting, []).append(child)
            for parting in reversed(waiting):
                rest: Iterator[_Node] = iter(waiting[parting])
                if parting not in over:
                    rest = chain(rest, self._freed.popleft()[1])
                self._freed.appendleft((parting, rest))
            for parting in over:
                if parting not in waiting:
                    self._part(parting)

    def _next(
        self, waiting: deque[tuple[Cause, Iterator[_Node]]]
    ) -> tuple[list[tuple[Cause, _Node]], list[Cause]]:
        """The nodes whose turn it is, and those for whose sake no more wait."""
        nodes: list[tuple[Cause, _Node]] = []
        over: list[Cause] = []
        while waiting:
            cause, rest = waiting[0]
            room = None if self._at_once is None else self._at_once - len(nodes)
            nodes += [(cause, node) for node in islice(rest, room)]
            if len(nodes) == self._at_once:
                break
            over.append(cause)
            waiting.popleft()
        return nodes, over

    def _part(self, parting: _Parting) -> None:
        """All that the filter hid have been placed."""
        if self._parting.get(parting.filter) is parting:  # it has not come and gone again
            del self._parting[parting.filter]
            if parting.announced:
                self.announcements.withdraw(parting.announced, parting.filter, parting.filter)

    def _place_freed(self, freed: dict[_Node, int]) -> set[_Node]:
        """Place many that have lost what hid them; those for which there was no time.

        Those that say less cover more, so they come first. A node that one of the last ones covers
        is hung below that one and not where they hang: filters that are nested in each other
        form a chain then, and the next withdrawal frees one of them instead of all.
        """
        placed: deque[tuple[_Node, int]] = deque(maxlen=LOOK_BACK)
        enough = effort.left - EFFORT
        nodes = sorted(freed, key=_mentions)
        for i, node in enumerate(nodes):
            if i and self._at_once is not None and effort.left < enough:
                return set(nodes[i:])
            for parent in node.parents:
                if not parent.wanted:
                    node.unhang(parent)
            where = freed[node] & node.hidden
            if where:
                for other, there in reversed(placed):
                    if not where & ~there and other.filter.covers(node.filter):
                        node.hang(other)
                        break
                else:
                    self._place(node, where)
                placed.append((node, where))
        return set()

    def _want_less(self, node: _Node, less: int) -> None:
        node.wanted &= ~less
        parting = _Parting(node.filter, less, node.announced & less)
        if parting.announced:
            self._no_longer(node, less)
        if not node.hidden:
            self._detach(node)
        last = self._parting.get(node.filter)
        if last is not None:
            parting.announced |= last.announced
        self._parting[node.filter] = parting
        self._freed.append((parting, iter(node.children)))

    def _place(self, node: _Node, where: int) -> None:
        """Decide anew for these neighbors, where the node is wanted and not announced."""
        if not where:
            return
        open_ = where
        parents: list[_Node] = []
        for filter in self._visible.covering(node.filter):
            if filter is node.filter:
                continue
            coverer = self._nodes.get(filter)
            if coverer is not None and coverer is not node and coverer.announced & open_:
                open_ &= ~coverer.announced
                parents.append(coverer)
                if not open_:
                    break
        for parent in parents:
            node.hang(parent)
        if open_:
            self._announce(node, open_)

    def _announce(self, node: _Node, where: int) -> None:
        filters = [each for each in self._visible.covered(node.filter) if each is not node.filter]
        found = map(self._nodes.get, filters)
        covered = [n for n in found if n is not None and n is not node and n.announced]
        self._announced_at(node, node.announced | where)
        new = where
        if self._parting and node.filter in self._parting:  # it has not gone yet
            parting = self._parting[node.filter]
            new &= ~parting.announced
            parting.announced &= ~where
        if new:
            self.announcements.announce(new, node.filter, node.filter)
        if not node.hidden:
            self._detach(node)
        if self._at_once is None or len(covered) <= self._at_once:
            for each in covered:
                self._hide(each, node)
        else:
            self._outdone.append((node, iter(covered)))

    def _hide(self, node: _Node, larger: _Node) -> None:
        """Wherever the larger one is announced, it covers the other."""
        hidden = node.announced & larger.announced
        if hidden:
            self._no_longer(node, hidden)
            self.announcements.withdraw(hidden, node.filter, node.filter)
            node.hang(larger)

    def _no_longer(self, node: _Node, where: int) -> None:
        """It is not announced there, as far as others are concerned."""
        self._announced_at(node, node.announced & ~where)

    def _announced_at(self, node: _Node, where: int) -> None:
        """From now on the node is announced at exactly these."""
        if where and not node.announced:
            self._visible.add(node.filter, node.filter)
        elif node.announced and not where:
            self._visible.remove(node.filter)
        node.announced = where
        if where and not where & REFERENCE:
            self._apart[node] = None
        elif self._apart:
            self._apart.pop(node, None)

    def _detach(self, node: _Node) -> None:
        """It is hidden nowhere any more."""
        for parent in node.parents:
            node.unhang(parent)

    def fill_slot(self, slot: int, wanted: Sequence[tuple[Hashable, Filter, int]]) -> int:
        """Hardly anything of it needs a search, unless other work waits.

        What is announced at the reference slot is covered by nothing, and covers none of what is
        announced here but those that are hidden there. The rest hangs below nodes that cover it,
        and most of these are wanted at the new neighbor as well.
        """
        bit = 1 << slot
        enough = effort.left - EFFORT
        beyond = self._only_at(slot)
        for i, (key, filter, where) in enumerate(wanted):
            if i and self._at_once is not None and effort.left < enough:
                return i
            node = self._nodes.get(filter)
            if not where & bit or (node is not None and node.wanted & bit):
                continue
            if node is None or self.has_work or len(beyond) > LOOK_BACK:
                self.want(key, filter, where)
                beyond = self._only_at(slot)
                continue
            node.wanted |= bit
            if node.announced & REFERENCE:
                self._announced_at(node, node.announced | bit)
                self.announcements.announce(bit, filter, filter)
                for other in beyond:
                    if filter.covers(other.filter):
                        self._hide(other, node)
            elif not any(parent.wanted & bit for parent in node.parents):
                self._place(node, bit)
                beyond = self._only_at(slot)
        return len(wanted)

    def _only_at(self, slot: int) -> list[_Node]:
        """Those that are announced there and hidden at the reference slot."""
        bit = 1 << slot
        return [node for node in self._apart if node.announced & bit]

    def drop_slot(self, slot: int) -> None:
        self.announcements.forget(slot)
        bit = 1 << slot
        for parting in self._parting.values():
            parting.announced &= ~bit
        for filter, node in list(self._nodes.items()):
            node.wanted &= ~bit
            if node.announced & bit:
                self._announced_at(node, node.announced & ~bit)
            if not node.hidden:
                self._detach(node)
            if not node.wanted:
                for child in node.children:
                    child.unhang(node)
                del self._nodes[filter]

    def announced(self, slot: int) -> dict[Hashable, Filter]:
        bit = 1 << slot
        found = [node.filter for node in self._nodes.values() if node.announced & bit]
        found += [parting.filter for parting in self._parting.values() if parting.announced & bit]
        return {filter: filter for filter in found}

    def __len__(self) -> int:
        return len(self._nodes)


def _mentions(node: _Node) -> int:
    """How much the filter says."""
    return sum(len(conjunct.constraints) for conjunct in node.filter.conjuncts)
