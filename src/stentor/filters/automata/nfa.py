"""Nondeterministic automata over ranges of code points, and matching in linear time.

An `Automaton` is a Thompson automaton: a node either consumes one character of its set and goes on
to one other node, or consumes nothing and goes on to any of several nodes. A node that consumes
nothing may be guarded by an anchor; it is then passable only at the first (last) position.

Matching follows all paths at once. The set of nodes reached is a state of the equivalent
deterministic automaton; such states are made when a text first leads to them and are kept, with
their transitions, for the next text. So a character costs one table lookup in the common case and
one pass over the nodes in the worst case, whatever the expression: nothing ever backtracks. When
the kept states grow too heavy, all are dropped and made anew. A text that is being matched goes on
with the states it holds, and filling a table twice stores the same state twice, so threads may
match with one automaton at the same time.

The code points fall into *classes*: maximal ranges that no node tells apart. Transitions are per
class. A class is known by its first code point; `cuts` lists these, ascending. No cut lies on a
surrogate, hence the first code point of every class is a character and no class is empty.

Nodes are numbered from the end of the expression to its beginning. A *barrier* is the consuming
node of a `.*` that every path from a node with a higher number must pass. Whatever such a node may
still accept, the barrier accepts too, so a state that contains a barrier forgets all nodes with
higher numbers. This keeps the automata of `contains` and `like` linear in the text. A barrier after
which nothing follows accepts every text: the node `everything`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from stentor.filters.automata.characters import LAST, CharSet, char_set, character_from, only_member
from stentor.filters.effort import spend

ANCHOR_NONE: Final = 0
ANCHOR_BEGIN: Final = 1
ANCHOR_END: Final = 2

#: Weight (nodes, transitions and a constant per state) of the states kept by one automaton.
CACHE_WEIGHT: Final = 50_000

#: `literal_prefix` looks no further than this.
MAX_PREFIX: Final = 1_000

#: The one node where every automaton accepts.
FINAL: Final = 0


@dataclass(slots=True, eq=False)
class State:
    """A state of the deterministic automaton: what can still be consumed, and the verdict here.

    It is settled if no further character can change the verdict.
    """

    nodes: tuple[int, ...]
    accepting: bool
    settled: bool
    next: dict[int, State] = field(default_factory=dict)


class _Cache:
    """The states that matching made so far. Replaced as a whole when it has become too heavy."""

    __slots__ = ("ascii_classes", "start", "states", "weight")

    def __init__(self, automaton: Automaton) -> None:
        self.start = automaton.initial()
        self.ascii_classes = [bisect_right(automaton.cuts, code) - 1 for code in range(128)]
        self.states: dict[tuple[tuple[int, ...], bool], State] = {}
        self.weight = 0


class Automaton:
    """A regular language. Made by the functions of `stentor.filters.automata`.

    >>> from stentor.filters.automata import contains
    >>> contains("bc").accepts("abcd")
    True
    """

    __slots__ = (
        "_barriers",
        "_cache",
        "_everything",
        "_follow",
        "_guards",
        "_masks",
        "_targets",
        "cuts",
        "labels",
        "start",
    )

    def __init__(
        self,
        labels: Sequence[CharSet | None],
        targets: Sequence[int],
        follow: Sequence[tuple[int, ...]],
        guards: Sequence[int],
        start: int,
        barriers: Iterable[int] = (),
        everything: int | None = None,
    ) -> None:
        self.labels: Final = tuple(labels)
        self.start: Final = start
        self._targets = tuple(targets)
        self._follow = tuple(follow)
        self._guards = tuple(guards)
        self._barriers = frozenset(barriers)
        self._everything = [everything]
        self.cuts: Final = _cuts(self.labels)
        self._masks = self._class_masks()
        self._cache: _Cache | None = None

    def __len__(self) -> int:
        """How many nodes the automaton has."""
        return len(self.labels)

    def _class_masks(self) -> tuple[int, ...]:
        """Per node, the classes it consumes as the bits of a number; -1 if it consumes nothing."""
        index = {cut: number for number, cut in enumerate(self.cuts)}
        known: dict[CharSet | None, int] = {None: -1}
        masks: list[int] = []
        for label in self.labels:
            mask = known.get(label)
            if mask is None:
                mask = 0
                for first, last in label or ():
                    end = index.get(character_from(last + 1), len(self.cuts))
                    mask |= (1 << end) - (1 << index[first])
                known[label] = mask
            masks.append(mask)
        return tuple(masks)

    # -- states ------------------------------------------------------------------------------

    def initial(self) -> State:
        return self._state([self.start], at_begin=True)

    def targets(self, nodes: Iterable[int], number: int) -> list[int]:
        """Where the nodes lead to on a character of the class."""
        masks, targets = self._masks, self._targets
        return [targets[node] for node in nodes if masks[node] >> number & 1]

    def state(self, seeds: Iterable[int]) -> State:
        """The state of everything reachable from the seeds without consuming a character."""
        return self._state(seeds, at_begin=False)

    def _state(self, seeds: Iterable[int], at_begin: bool) -> State:
        masks, follow, guards = self._masks, self._follow, self._guards
        stack = list(seeds)
        seen = set(stack)
        consuming: list[int] = []
        at_end: list[int] = []
        accepting = False
        while stack:
            node = stack.pop()
            if masks[node] >= 0:
                consuming.append(node)
            elif node == FINAL:
                accepting = True
            elif guards[node] == ANCHOR_END:
                at_end.append(node)
            elif guards[node] == ANCHOR_NONE or at_begin:
                for other in follow[node]:
                    if other not in seen:
                        seen.add(other)
                        stack.append(other)
        spend(len(seen))
        if at_end and not accepting:
            accepting = self._accepts_at_end(at_end, at_begin)
        barriers = self._barriers.intersection(consuming)
        if barriers:
            limit = min(barriers)
            consuming = [node for node in consuming if node <= limit]
        consuming.sort()
        settled = not accepting if not consuming else consuming == self._everything
        return State(tuple(consuming), accepting, settled)

    def _accepts_at_end(self, nodes: Iterable[int], at_begin: bool) -> bool:
        """Whether the final node is reachable if the text ends here, so that `$` holds."""
        stack = list(nodes)
        seen = set(stack)
        while stack:
            node = stack.pop()
            if node == FINAL:
                return True
            if self._guards[node] != ANCHOR_BEGIN or at_begin:
                new = [other for other in self._follow[node] if other not in seen]
                seen.update(new)
                stack.extend(new)
        return False

    # -- matching ----------------------------------------------------------------------------

    def accepts(self, text: str) -> bool:
        """Whether the text is in the language; linear in the length of the text."""
        cache = self._cache
        if cache is None or cache.weight > CACHE_WEIGHT:
            cache = self._cache = _Cache(self)
        state = cache.start
        ascii_classes, cuts = cache.ascii_classes, self.cuts
        for character in text:
            code = ord(character)
            number = ascii_classes[code] if code < 128 else bisect_right(cuts, code) - 1
            following = state.next.get(number)
            if following is None:
                following = self._step(cache, state, number)
                if cache.weight > CACHE_WEIGHT:
                    cache = self._cache = _Cache(self)
            state = following
            if state.settled:
                break
        return state.accepting

    def _step(self, cache: _Cache, state: State, number: int) -> State:
        """Make one transition and keep it."""
        made = self.state(self.targets(state.nodes, number))
        key = (made.nodes, made.accepting)
        following = cache.states.setdefault(key, made)
        if following is made:
            cache.weight += len(made.nodes) + 8
        state.next[number] = following
        cache.weight += 1
        return following

    # -- facts -------------------------------------------------------------------------------

    def literal_prefix(self) -> str:
        """The longest prefix that every accepted text has.

        Nodes that only an impossible anchor blocks count as passable, so with such an expression
        (`a$b`) the answer may be shorter than the longest.
        """
        live = self._live()
        prefix: list[str] = []
        state = self.initial()
        while not state.accepting and len(prefix) < MAX_PREFIX:
            nodes = [node for node in state.nodes if node in live]
            ranges = {part for node in nodes for part in self.labels[node] or ()}
            character = only_member(char_set(ranges))
            if character is None:
                break
            prefix.append(character)
            state = self.state([self._targets[node] for node in nodes])
        return "".join(prefix)

    def _live(self) -> frozenset[int]:
        """The nodes from which the final one is reachable, anchors taken as passable."""
        into: list[list[int]] = [[] for _ in self.labels]
        for node, label in enumerate(self.labels):
            if label is None:
                for other in self._follow[node]:
                    into[other].append(node)
            elif label:
                into[self._targets[node]].append(node)
        stack = [FINAL]
        seen = {FINAL}
        while stack:
            new = [other for other in into[stack.pop()] if other not in seen]
            seen.update(new)
            stack.extend(new)
        return frozenset(seen)


def _cuts(labels: Iterable[CharSet | None]) -> tuple[int, ...]:
    cuts = {0}
    for label in set(labels):
        for first, last in label or ():
            cuts.add(first)
            cuts.add(character_from(last + 1))
    cuts.discard(LAST + 1)
    return tuple(sorted(cuts))
