"""Steps: what an event does to a run, where that needs no more than a look into a table.

In most patterns in use (sequences, counted or repeated, with one time limit for all of it) an event
does one thing to a run: nothing, or it ends, goes on, or is complete. Which of these depends on the
state of the run and on the bits of the event alone, but for the order of their times, and for
conditions on the event. So it is worked out once for a state and bits, when they first meet.

Steps that depend on more are `GENERAL`: on values seen, on sides of `||`, on conditions for what
opens a run or completes it; those that lead to several branches, or set a timer later than at the
beginning.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from stentor.composite.automaton import Automaton, Edge, State
from stentor.composite.compiled_conditions import Test
from stentor.composite.conditions import names_in
from stentor.composite.expressions import After

#: The step that ends a run.
FAILED: Final[Any] = "failed"
#: What is not to be found in a table.
GENERAL: Final[Any] = "general"


class Step(NamedTuple):
    """Where an event takes a run, and which of its names it gets."""

    names: tuple[str, ...]
    #: -1 if the pattern is complete by it.
    target: int
    #: Whether it has to begin after what was consumed before has ended.
    is_strict: bool
    #: The conditions on it, and what it does to the run if it does not pass them: `FAILED` or None.
    tests: tuple[Test, ...]
    otherwise: Any


class StateSteps(dict[int, Any]):
    """The steps of a state by the bits of the event; None where it is of no concern."""

    __slots__ = ("_is_initial", "_state", "_steps")

    def __init__(self, steps: Steps, state: State, is_initial: bool) -> None:
        self._steps = steps
        self._state = state
        self._is_initial = is_initial

    def __missing__(self, bits: int) -> Any:
        made = self[bits] = self._steps.made(self._state, bits, self._is_initial)
        return made


class Steps:
    """The steps of an automaton whose runs are all opened in one way."""

    __slots__ = ("_states", "_timers", "by_state", "later", "opening", "span")

    def __init__(self, automaton: Automaton, span: int) -> None:
        self._states = automaton.states
        (initial,) = automaton.initial
        #: After what time a run ends, in microseconds; the first register has its deadline. 0 if
        #: runs have none.
        self.span = span
        self._timers = [0] if span else []
        #: The step that opens a run, and those of runs that are open.
        self.opening = StateSteps(self, automaton.states[initial], True)
        self.by_state = [StateSteps(self, state, False) for state in automaton.states]
        #: Bits of the events that may be something to an open run.
        self.later = 0
        for number in {t for s in self._states for e in s.edges for t in e.outcome.targets}:
            self.later |= automaton.states[number].domain

    @classmethod
    def of(cls, automaton: Automaton) -> Steps | None:
        """None if there is no table for it."""
        if automaton.is_window or len(automaton.initial) != 1:
            return None
        armed = {edge.armed for edge in automaton.states[automaton.initial[0]].edges}
        if armed == {()}:
            return cls(automaton, 0)
        timers = armed.pop() if len(armed) == 1 else ()
        if len(timers) != 1:
            return None
        register, spec, ways = timers[0]
        if register or not isinstance(spec, After) or frozenset() not in ways:
            return None
        return cls(automaton, spec.micros)

    def fits(self, state: int) -> bool:
        """Whether a run in that state has the one deadline, and ends there without a word."""
        found = self._states[state]
        return (
            [register for register, _, _ in found.timers] == self._timers
            and not any(bit for _, _, bit in found.timers)
            and not any(found.expiries.values())
        )

    def made(self, state: State, bits: int, is_initial: bool) -> Any:
        """What an event with these bits does to a run in a state."""
        edges = [edge for edge in state.edges if edge.domain & bits]
        if not edges:
            return None
        edge = edges[0]
        names = tuple(name for bit, name in edge.names if bit & bits)
        is_plain = _opens_plainly(edge, names) if is_initial else edge.is_ordered
        if len(edges) > 1 or not is_plain:
            return GENERAL
        if not edge.wanted & bits or edge.unwanted & bits:
            return FAILED
        exits, targets = edge.outcome.exits, edge.outcome.targets
        if not names:
            return GENERAL
        tests = edge.conditions, FAILED if edge.others & bits else None
        if exits:
            return Step(names, -1, bool(edge.raised), *tests) if frozenset() in exits else GENERAL
        if len(targets) == 1 and self.fits(targets[0]):
            return Step(names, targets[0], bool(edge.raised), *tests)
        return GENERAL


def _opens_plainly(edge: Edge, names: tuple[str, ...]) -> bool:
    """Whether a run that begins with it has to do no more than to set its timer: conditions have to
    wait for other events.
    """
    return not (
        edge.sides
        or edge.entered
        or edge.cleared
        or edge.differing
        or any(names_in(test.condition).issubset(names) for test in edge.conditions)
        or edge.leaving
        or edge.finally_
        or edge.floors
        or edge.raised
    )
