"""How far a publisher's words go, found out once for all that it says.

Where a publisher meets neither mappings nor policies, which of the interfaces on its way a
notification passes decides where it is visible, and nothing else does. So a `Reach` walks through
the scopes around a publisher once, as if every interface were open, and gathers the filters that it
meets, each with a bit. Of a notification then only these bits are asked for, which an index of all
filters answers for a whole batch; notifications with the same bits share one answer, and the graph
is walked again for bits that are new. What the filters look at is mostly said again and again, as a
kind or a type is, so a reach remembers the bits of such texts. Publishers in the same places share
a reach.

A reach knows which nodes it has looked at. A change that touches none of them leaves it as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from stentor.filters import Filter
from stentor.scopes.interfaces import EVERYTHING, Half
from stentor.scopes.nodes import Edge, Node

#: Answers that a reach remembers; it forgets them all when there are more.
MAX_ANSWERS: Final = 1_024

#: Halves of interfaces that have to be passed, each with what it means if it is omitted.
_Halves: TypeAlias = tuple[tuple[Half, bool], ...]


class Answer(Struct, frozen=True):
    """Members that see it, by their ids, and the edges on its way; "" is the publisher."""

    members: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]


class Reach:
    """Where a publisher with these memberships is heard.

    `is_known` is False if that is not for filters alone to say: `Dissemination` has to be asked.
    """

    def __init__(self, edges: Iterable[Edge], own: Node, *, open_by_default: bool) -> None:
        self._edges = list(edges)
        self._own = own
        self._open = open_by_default
        #: All nodes that were looked at.
        self.seen: set[str] = set()
        self.bits: dict[Filter, int] = {}
        self._answers: dict[int, Answer] = {}
        self._said: dict[tuple[Any, ...], int] = {}
        self.is_known = not own.policies and self._gather()
        #: What its filters look at, and whether that is nothing but attributes.
        self.names = tuple(sorted({name for filter in self.bits for name in filter.names}))
        self.is_plain = not any(name.startswith("_") for name in self.names)

    @property
    def is_outside(self) -> bool:
        """Whether it is in no scope."""
        return not self._edges

    def answer(self, bits: int) -> Answer:
        """Where something is heard that the filters with these bits match."""
        found = self._answers.get(bits)
        if found is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            found = self._answers[bits] = self._walk(bits)
        return found

    def said(self, facts: Mapping[str, Any]) -> tuple[Any, ...]:
        """What somebody says of all that its filters look at."""
        return tuple(map(facts.get, self.names))

    def remembered(self, said: tuple[Any, ...]) -> int | None:
        """The bits of something that says this, if that is known."""
        try:
            return self._said.get(said)
        except TypeError:  # a list
            return None

    def remember(self, said: tuple[Any, ...], bits: int) -> None:
        """These are the bits of all that say this: of texts only, which equal nothing else."""
        if all(map(_is_text, said)):
            if len(self._said) >= MAX_ANSWERS:
                self._said.clear()
            self._said[said] = bits

    def _gather(self) -> bool:
        """Look at all that can be reached; whether there is nothing but filters."""
        ahead = [(edge, True) for edge in self._edges]
        known: set[tuple[str, bool]] = set()
        while ahead:
            edge, upward = ahead.pop()
            to = edge.parent if upward else edge.child
            self.seen |= {edge.child.id, edge.parent.id} - {self._own.id}
            if edge.is_mapped or to.policies or to.once:
                return False
            if not self._opens(_halves(edge, upward, self._open)) or (to.id, upward) in known:
                continue
            known.add((to.id, upward))
            if upward:
                ahead += [(each, True) for each in to.parents.values()]
            ahead += [(each, False) for each in to.children.values()]
        return True

    def _opens(self, halves: _Halves) -> bool:
        """Whether something could pass; filters that decide it are noted."""
        for half, omitted in halves:
            if not (omitted if half is None else half):
                return False
        for half, _ in halves:
            for filter in half or ():
                if not filter.is_always:
                    self.bits.setdefault(filter, 1 << len(self.bits))
        return True

    def _walk(self, bits: int) -> Answer:
        ahead = deque((edge, True) for edge in self._edges)
        known: set[tuple[str, bool]] = set()
        members: dict[str, None] = {}
        edges: list[tuple[str, str]] = []
        while ahead:
            edge, upward = ahead.popleft()
            to, source = (edge.parent, edge.child) if upward else (edge.child, edge.parent)
            halves = _halves(edge, upward, self._open)
            if (to.id, upward) in known or not self._passes(halves, bits):
                continue
            known.add((to.id, upward))
            if not to.is_scope:
                if to.id != self._own.id:
                    members[to.id] = None
                continue
            edges.append(("" if source is self._own else source.id, to.id))
            if upward:
                ahead.extend((each, True) for each in to.parents.values())
            ahead.extend((each, False) for each in to.children.values())
        return Answer(tuple(members), tuple(edges))

    def _passes(self, halves: _Halves, bits: int) -> bool:
        # A filter has no bit where another half of the edge is closed for good.
        for half, omitted in halves:
            if half is None:
                if not omitted:
                    return False
            elif half is not EVERYTHING and not any(
                each.is_always or bits & self.bits.get(each, 0) for each in half
            ):
                return False
        return True


def _halves(edge: Edge, upward: bool, open_by_default: bool) -> _Halves:
    child, parent = edge.child, edge.parent
    omitted = open_by_default or not child.is_scope
    if upward:
        return (
            (child.interface.output, omitted),
            (edge.selective.output, True),
            (edge.imposed.output, True),
            (parent.everyone.output, True),
        )
    return (
        (parent.everyone.input, True),
        (edge.imposed.input, True),
        (edge.selective.input, True),
        (child.interface.input, omitted),
    )


def translated_members(edges: Iterable[Edge], own: Node, *, open_by_default: bool) -> set[str]:
    """The members at which something may arrive that was translated on its way.

    What filters say is not looked at, as nobody knows what a mapping makes of something; only what
    is closed for good lets nothing through. So these may be too many and are never too few.
    """
    ahead = [(edge, True, False) for edge in edges]
    known: set[tuple[str, bool, bool]] = set()
    found: set[str] = set()
    while ahead:
        edge, upward, translated = ahead.pop()
        mapping = edge.mapping.up if upward else edge.mapping.down
        translated = translated or mapping is not None
        to = edge.parent if upward else edge.child
        halves = _halves(edge, upward, open_by_default)
        is_shut = any(not (omitted if half is None else half) for half, omitted in halves)
        if is_shut or (to.id, upward, translated) in known:
            continue
        known.add((to.id, upward, translated))
        if not to.is_scope:
            if translated and to.id != own.id:
                found.add(to.id)
            continue
        if upward:
            ahead += [(each, True, translated) for each in to.parents.values()]
        ahead += [(each, False, translated) for each in to.children.values()]
    return found


def _is_text(value: Any) -> bool:
    """Whether it is a text, several, or absent. As keys, numbers and truth values are alike."""
    if type(value) is tuple:
        return all(type(each) is str for each in value)
    return value is None or type(value) is str
