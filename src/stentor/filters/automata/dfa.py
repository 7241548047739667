"""Deterministic automata: the exact algebra of regular languages.

A `Dfa` is complete: every state has one transition for every class of code points (see `nfa` for
the classes). Complement is then a change of the verdicts, and the other operations walk through
the pairs of states that two automata can be in together.

A language may need exponentially many states, so each operation that makes states works within a
limit. It answers None, "don't know", when that is reached; a caller then answers on the safe side.
A limit of n states also allows `TRANSITIONS_PER_STATE` times n transitions and `STEPS_PER_STATE`
times n steps, because few states with many classes take as long as many states. All work is charged
to the budget of the operation that asks for it (see `stentor.filters.effort`).

State 0 is the start and every state is reachable from it; all constructions here preserve that. A
*sink* is a state that all its transitions lead back to: its verdict is final. In a product, a pair
whose one side is a sink that decides the result becomes a sink itself, which keeps products from
exploring pairs that no longer matter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from stentor.filters.automata.characters import LAST
from stentor.filters.automata.minimize import minimal
from stentor.filters.automata.nfa import Automaton
from stentor.filters.effort import spend

DEFAULT_LIMIT: Final = 5_000
TRANSITIONS_PER_STATE: Final = 32
STEPS_PER_STATE: Final = 200

# What `example` likes to show, best first.
_PREFERRED: Final = (("a", "z"), ("0", "9"), ("A", "Z"), ("!", "~"), (" ", " "))

# Results of a product as (neither, right only, left only, both).
_Verdicts = tuple[bool, bool, bool, bool]
_INTERSECTION: Final[_Verdicts] = (False, False, False, True)
_UNION: Final[_Verdicts] = (False, True, True, True)


@dataclass(frozen=True, slots=True)
class Dfa:
    """A regular language as a complete deterministic automaton.

    >>> from stentor.filters.automata import contains, determinize, prefix
    >>> short, long = determinize(contains("b")), determinize(prefix("abc"))
    >>> short.includes(long), long.includes(short)
    (True, False)
    """

    cuts: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    accepting: tuple[bool, ...]

    def __len__(self) -> int:
        """How many states the automaton has."""
        return len(self.rows)

    def accepts(self, text: str) -> bool:
        state = 0
        for character in text:
            state = self.rows[state][bisect_right(self.cuts, ord(character)) - 1]
        return self.accepting[state]

    def is_empty(self) -> bool:
        """Whether no string is accepted."""
        return True not in self.accepting

    def example(self) -> str | None:
        """A shortest accepted string, with plain letters where possible; None if there is none."""
        shown = [self._shown(number) for number in range(len(self.cuts))]
        found: dict[int, str] = {0: ""}
        frontier = [0]
        while frontier:
            following: list[int] = []
            for state in frontier:
                spend(len(self.cuts))
                if self.accepting[state]:
                    return found[state]
                for number, target in enumerate(self.rows[state]):
                    if target not in found:
                        found[target] = found[state] + shown[number]
                        following.append(target)
            frontier = following
        return None

    def _shown(self, number: int) -> str:
        """A presentable member of the class."""
        first = self.cuts[number]
        last = self.cuts[number + 1] - 1 if number + 1 < len(self.cuts) else LAST
        for low, high in _PREFERRED:
            code = max(first, ord(low))
            if code <= min(last, ord(high)):
                return chr(code)
        return chr(first)

    def complement(self) -> Dfa:
        """All the other strings."""
        return Dfa(self.cuts, self.rows, tuple([not verdict for verdict in self.accepting]))

    def intersection(self, other: Dfa, limit: int = DEFAULT_LIMIT) -> Dfa | None:
        """The strings that both accept."""
        return _product(self, other, _INTERSECTION, limit)

    def union(self, other: Dfa, limit: int = DEFAULT_LIMIT) -> Dfa | None:
        """The strings that at least one accepts."""
        return _product(self, other, _UNION, limit)

    def includes(self, other: Dfa, limit: int = DEFAULT_LIMIT) -> bool | None:
        """Whether every string of the other language is in this one."""
        meets = _meets(other, self, False, limit)
        return None if meets is None else not meets

    def intersects(self, other: Dfa, limit: int = DEFAULT_LIMIT) -> bool | None:
        """Whether some string is in both languages."""
        return _meets(self, other, True, limit)

    def minimize(self) -> Dfa:
        """The automaton of the language with the fewest states, in canonical numbering."""
        spend(len(self.rows) * len(self.cuts) * (4 + len(self.rows).bit_length()) // 4)
        return Dfa(*minimal(self.cuts, self.rows, self.accepting))

    def canonical(self) -> Hashable:
        """A value that is equal for two automata iff they accept the same language."""
        smallest = self.minimize()
        return smallest.cuts, smallest.rows, smallest.accepting


def determinize(automaton: Automaton, limit: int = DEFAULT_LIMIT) -> Dfa | None:
    """The deterministic automaton of the same language; None if it does not fit the budget.

    >>> from stentor.filters.automata import contains
    >>> len(determinize(contains("abc")))
    4
    """
    spend(4 * len(automaton))  # for making it, which is not always done anew
    classes = range(len(automaton.cuts))
    if len(classes) > TRANSITIONS_PER_STATE * limit:
        return None
    most_states = min(limit, TRANSITIONS_PER_STATE * limit // len(classes))
    steps = STEPS_PER_STATE * limit
    states = [automaton.initial()]
    index = {(states[0].nodes, states[0].accepting): 0}
    by_seeds: dict[tuple[int, ...], int] = {}
    rows: list[tuple[int, ...]] = []
    for state in states:
        spend(len(classes) * (1 + len(state.nodes)))
        if state.settled:
            rows.append((index[state.nodes, state.accepting],) * len(classes))
            continue
        row: list[int] = []
        for number in classes:
            seeds = tuple(automaton.targets(state.nodes, number))
            target = by_seeds.get(seeds)
            if target is None:
                made = automaton.state(seeds)
                steps -= len(seeds) + len(made.nodes)
                target = index.setdefault((made.nodes, made.accepting), len(states))
                if target == len(states):
                    states.append(made)
                by_seeds[seeds] = target
            row.append(target)
        rows.append(tuple(row))
        steps -= len(state.nodes)
        if len(states) > most_states or steps < 0:
            return None
    return Dfa(automaton.cuts, tuple(rows), tuple([state.accepting for state in states]))


def _shared_classes(left: Dfa, right: Dfa) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """The classes of both together, each with its number on the left and on the right."""
    spend(len(left.cuts) + len(right.cuts) + len(left.rows) + len(right.rows))
    if left.cuts == right.cuts:
        return left.cuts, [(number, number) for number in range(len(left.cuts))]
    cuts = sorted({*left.cuts, *right.cuts})
    pairs = [(bisect_right(left.cuts, c) - 1, bisect_right(right.cuts, c) - 1) for c in cuts]
    return tuple(cuts), pairs


def _sinks(dfa: Dfa) -> list[bool]:
    """Per state, whether all its transitions lead back to it."""
    return [row.count(state) == len(row) for state, row in enumerate(dfa.rows)]


def _product(left: Dfa, right: Dfa, verdicts: _Verdicts, limit: int) -> Dfa | None:
    """The strings for which the pair of verdicts of the two automata gives true."""
    cuts, pairs = _shared_classes(left, right)
    most_states = min(limit, TRANSITIONS_PER_STATE * limit // len(cuts))
    left_sinks, right_sinks = _sinks(left), _sinks(right)
    # Keys of the states: a pair of states as a number, or -1 - verdict for a sink.
    width = len(right.rows)
    index: dict[int, int] = {}
    keys: list[int] = []

    def number_of(one: int, two: int) -> int:
        key = one * width + two
        number = index.get(key)
        if number is not None:
            return number
        original = key
        if left_sinks[one]:
            base = 2 if left.accepting[one] else 0
            if verdicts[base] == verdicts[base + 1]:
                key = -1 - verdicts[base]
        if right_sinks[two]:
            base = 1 if right.accepting[two] else 0
            if verdicts[base] == verdicts[base + 2]:
                key = -1 - verdicts[base]
        number = index.setdefault(key, len(keys))
        if number == len(keys):
            keys.append(key)
        index[original] = number
        return number

    number_of(0, 0)
    rows: list[tuple[int, ...]] = []
    accepting: list[bool] = []
    for key in keys:
        spend(len(pairs))
        if key < 0:
            rows.append((len(rows),) * len(cuts))
            accepting.append(key == -2)
            continue
        one, two = divmod(key, width)
        accepting.append(verdicts[2 * left.accepting[one] + right.accepting[two]])
        left_row, right_row = left.rows[one], right.rows[two]
        rows.append(tuple([number_of(left_row[a], right_row[b]) for a, b in pairs]))
        if len(keys) > most_states:
            return None
    return Dfa(cuts, tuple(rows), tuple(accepting))


def _meets(left: Dfa, right: Dfa, verdict: bool, limit: int) -> bool | None:
    """Whether the left accepts some string on which the right has the given verdict."""
    if left.accepting[0] and right.accepting[0] is verdict:
        return True
    _, pairs = _shared_classes(left, right)
    most_states = min(limit, TRANSITIONS_PER_STATE * limit // len(pairs))
    width = len(right.rows)
    # Sinks that rule out a witness: their pairs need not be explored.
    hopeless = [s and not a for s, a in zip(_sinks(left), left.accepting, strict=True)]
    useless = [s and a is not verdict for s, a in zip(_sinks(right), right.accepting, strict=True)]
    seen = {0}
    stack = [0]
    while stack:
        spend(len(pairs))
        one, two = divmod(stack.pop(), width)
        left_row, right_row = left.rows[one], right.rows[two]
        for a, b in pairs:
            one, two = left_row[a], right_row[b]
            key = one * width + two
            if key not in seen:
                seen.add(key)
                if left.accepting[one] and right.accepting[two] is verdict:
                    return True
                if not (hopeless[one] or useless[two]):
                    stack.append(key)
        if len(seen) > most_states:
            return None
    return False
