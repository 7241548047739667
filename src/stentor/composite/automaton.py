"""`Automaton`: a pattern as a table of states and edges.

The states are the terms of `residuals` that can be reached; each has the edges that lead on from
it. An event is, to an automaton, a set of bits: one for each name of the pattern whose filter
matches it, and one for each named timer. A state knows the bits of its domain, so that most events
are dealt with by one test.

Registers hold what a run has to remember: floors, deadlines, values seen, the hulls of both sides
of a parallel operator. They are numbered from 0 without gaps; a state lists those that it does not
need, so that runs which do not differ are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from stentor.composite import expressions as e
from stentor.composite.compiled_conditions import Test, test_of_all, test_of_event
from stentor.composite.conditions import Condition, names_in
from stentor.composite.residuals import (
    DONE,
    Guards,
    Move,
    Operators,
    Term,
    exits,
    expiries,
    live,
    moves,
    number,
    split,
)
from stentor.errors import InvalidPattern
from stentor.filters.effort import spend

MAX_STATES: Final = 4_096
MAX_EDGES: Final = 32_768
#: Steps of `effort` that it takes to make one edge.
EDGE: Final = 50


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows when something is taken: the branches that go on, or the end."""

    targets: tuple[int, ...]
    #: The ways in which the pattern is complete now.
    exits: tuple[Guards, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """One way from a state to others."""

    atom: e.Atom
    #: Bits of which the event must have one, and none.
    wanted: int
    unwanted: int
    domain: int
    #: Bits of the domain by which it is not accepted.
    others: int
    #: Names that the event gets, with their bits.
    names: tuple[tuple[int, str], ...]
    outcome: Outcome
    move: Move
    #: Registers: floors to be above; sides to start, as pairs with the one that they start from;
    #: sides to widen; floors to set from a side; values to forget, and to compare. Negative is the
    #: hull of the run itself.
    floors: tuple[int, ...]
    entered: tuple[tuple[int, int], ...]
    sides: tuple[int, ...]
    raised: tuple[tuple[int, int], ...]
    cleared: tuple[int, ...]
    differing: tuple[tuple[int, str], ...]
    #: Conditions on the event; those on what it leaves, and those on what it ends.
    conditions: tuple[Test, ...]
    leaving: tuple[Test, ...]
    finally_: tuple[Test, ...]
    #: Timers to set: register, when, and the ways in which the part before them is complete.
    armed: tuple[tuple[int, e.Spec, tuple[Guards, ...]], ...]
    #: Whether there is nothing to do but to test the conditions, and to compare it with the hull of
    #: the run: it has to be behind that, strictly if there is a floor to set.
    is_ordered: bool


@dataclass(frozen=True, slots=True)
class State:
    """A place in the automaton: what is left, and what may come."""

    term: Term
    domain: int
    edges: tuple[Edge, ...]
    #: Registers of the timers that may be set here, with their numbers and bits; 0 has no name.
    timers: tuple[tuple[int, int, int], ...]
    #: What follows when an unnamed timer goes off, and under which conditions.
    expiries: dict[int, tuple[tuple[Guards, Outcome], ...]]
    #: Registers without a meaning here.
    unused: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Automaton:
    """What detects an expression. Immutable; runs keep their own values."""

    states: tuple[State, ...]
    #: The states in which a run begins, and the bits by which one can be opened.
    initial: tuple[int, ...]
    opening: int
    names: tuple[str, ...]
    registers: int
    #: The final parts of conditions, by number.
    final: dict[int, tuple[Condition, ...]]
    #: SIENA's sequences overlap, unless they consume.
    is_window: bool = False
    is_consuming: bool = False

    @property
    def edge_count(self) -> int:
        return sum(len(state.edges) for state in self.states)

    @property
    def has_timers(self) -> bool:
        return any(state.timers for state in self.states)


@lru_cache(maxsize=1_024)
def compile_expression(expression: e.Expression, names: tuple[str, ...]) -> Automaton:
    """The automaton of an expression over these names.

    >>> a, b = e.Atom(("A",), ("A",)), e.Atom(("B",), ("B",))
    >>> made = compile_expression(e.Sequence(a, b), ("A", "B"))
    >>> len(made.states), made.edge_count
    (2, 2)
    """
    if isinstance(expression, e.Window):
        return _window(expression, names)
    term, operators = number(expression)
    return _Compiler(operators, names).compile(term)


def _window(window: e.Window, names: Sequence[str]) -> Automaton:
    """Each event in turn is the next of all that the filters match."""
    domain = tuple(sorted(set(window.labels)))
    chain: e.Expression = e.Atom((window.labels[0],), domain)
    for label in window.labels[1:]:
        chain = e.Concatenation(chain, e.Atom((label,), domain))
    term, operators = number(chain)
    made = _Compiler(operators, names).compile(term)
    return Automaton(
        made.states,
        made.initial,
        made.opening,
        made.names,
        made.registers,
        made.final,
        is_window=True,
        is_consuming=window.consuming,
    )


class _Compiler:
    """Explores the terms, breadth first, so that states are numbered as they are reached."""

    def __init__(self, operators: Operators, names: Sequence[str]) -> None:
        self._operators = operators
        self._bits = {name: 1 << i for i, name in enumerate(names)}
        for n in sorted(operators.timers):
            name = operators.timers[n].name
            if name is not None:
                self._bits[name] = 1 << len(self._bits)
        self._names = tuple(names)
        self._numbers: dict[Term, int] = {}
        self._terms: list[Term] = []
        self._registers: dict[object, int] = {}
        self._edges = 0

    def compile(self, term: Term) -> Automaton:
        initial = tuple(self._state(each) for each in split(term))
        states: list[State] = []
        while len(states) < len(self._terms):
            states.append(self._explore(self._terms[len(states)]))
        opening = 0
        for i in initial:
            for edge in states[i].edges:
                opening |= edge.wanted
        unused = [self._unused(each) for each in self._terms]
        return Automaton(
            tuple(
                State(s.term, s.domain, s.edges, s.timers, s.expiries, u)
                for s, u in zip(states, unused, strict=True)
            ),
            initial,
            opening,
            self._names,
            len(self._registers),
            self._operators.final,
        )

    def _state(self, term: Term) -> int:
        found = self._numbers.get(term)
        if found is None:
            if len(self._terms) >= MAX_STATES:
                raise InvalidPattern(
                    f"the pattern needs more than {MAX_STATES} states; use smaller counts, or "
                    "fewer parts side by side"
                )
            found = self._numbers[term] = len(self._terms)
            self._terms.append(term)
        return found

    def _register(self, what: object) -> int:
        return self._registers.setdefault(what, len(self._registers))

    def _side(self, scope: tuple[int, int] | None) -> int:
        return -1 if scope is None else self._register(("side", *scope))

    def _outcome(self, rest: Term) -> Outcome:
        ways = exits(rest, self._operators)
        targets = () if rest == DONE else tuple(self._state(each) for each in split(rest))
        return Outcome(tuple(dict.fromkeys(targets)), ways)

    def _explore(self, term: Term) -> State:
        edges = tuple(self._edge(move) for move in moves(term, self._operators))
        self._edges += len(edges)
        if self._edges > MAX_EDGES:
            raise InvalidPattern(
                f"the pattern needs more than {MAX_EDGES} transitions; write fewer optional parts"
            )
        domain = 0
        for edge in edges:
            domain |= edge.domain
        timers, ends = [], {}
        for n in sorted(live(term).timers):
            timer = self._operators.timers[n]
            register = self._register(("timer", n))
            if timer.name is None:
                timers.append((register, n, 0))
                ends[register] = tuple(
                    (guards, self._outcome(rest))
                    for guards, rest in expiries(term, n, self._operators)
                )
            else:
                timers.append((register, n, self._bits[timer.name]))
        return State(term, domain, edges, tuple(timers), ends, ())

    def _mask(self, names: Sequence[str]) -> int:
        found = 0
        for name in names:
            found |= self._bits[name]
        return found

    def _edge(self, move: Move) -> Edge:
        spend(EDGE)
        atom, operators = move.atom, self._operators
        domain = self._mask(atom.domain)
        binds = self._mask(atom.binds)
        labels = self._mask(atom.labels)
        floors = tuple(self._register(("floor", n)) for n in move.floors)
        raised = tuple((self._register(("floor", n)), self._side(s)) for n, s in move.raised)
        entered = tuple(
            (self._side((n, side)), self._side(scope))
            for n, scope in move.entered
            for side in (0, 1)
        )
        conditions = tuple(
            test_of_event(c)
            for n in move.conditions
            for c in operators.tested[n]
            if not names_in(c).isdisjoint(atom.binds)  # else it says nothing of this event
        )
        leaving = tuple(test_of_all(c) for n in sorted(move.leaving) for c in operators.final[n])
        finally_ = tuple(test_of_all(c) for n in sorted(move.finally_) for c in operators.final[n])
        armed = tuple(
            (self._register(("timer", n)), operators.timers[n].spec, ways) for n, ways in move.armed
        )
        outcome = self._outcome(move.rest)
        is_ordered = not (
            move.sides
            or entered
            or move.cleared
            or move.differing
            or leaving
            or finally_
            or armed
            or floors
            or {n for n, _ in move.raised} & live(move.rest).floors
        )
        return Edge(
            atom,
            wanted=binds,
            unwanted=labels if atom.negated else 0,
            domain=domain,
            others=domain & ~binds,
            names=tuple((self._bits[name], name) for name in atom.binds if "#" not in name),
            outcome=outcome,
            move=move,
            floors=floors,
            entered=entered,
            sides=tuple(self._side(side) for side in move.sides),
            raised=raised,
            cleared=tuple(self._register(("seen", n)) for n in move.cleared),
            differing=tuple(
                (self._register(("seen", n)), operators.distinct[n]) for n in move.differing
            ),
            conditions=conditions,
            leaving=leaving,
            finally_=finally_,
            armed=armed,
            is_ordered=is_ordered,
        )

    def _unused(self, term: Term) -> tuple[int, ...]:
        needed = live(term)
        used = (
            {self._registers.get(("floor", n)) for n in needed.floors}
            | {self._registers.get(("timer", n)) for n in needed.timers}
            | {self._registers.get(("seen", n)) for n in needed.seen}
            | {self._registers.get(("side", *side)) for side in needed.sides}
        )
        return tuple(sorted(set(self._registers.values()) - used))
