"""What can happen next, worked out once for all events: the states of an automaton.

A state is what is left of an expression, a *term*. Unlike in `reference`, a term holds no values.
Where the reference has a floor, a deadline or the values seen, a term has the number of its
operator, and a run keeps the value in a register under that number. So there are finitely many
terms, and all that may come next of one (`moves`) can be computed beforehand: which atom, which
tests, which registers change, and the term after that. Terms are nested tuples whose first item
says what they are:

    ("done",)                 nothing is left
    ("atom", atom)            one event
    ("then", L, R)            L, then R
    ("seq", n, L, R)          L, then R strictly later; "seq>" once L has begun
    ("above", n, X)           X, whose events begin after the floor n
    ("iter", X, least, most)  X so many times
    ("alt", L, R)             either
    ("par", n, L, R)          both; "par>" once one has begun: each side has a hull of its own
    ("timed", n, L, R, begun) L, then R; whenever L is complete, the timer n is set
    ("until", n, X)           X, with the timer n
    ("within", n, X)          X, the timer n being set by its first event
    ("where", n, X)           X under the condition n
    ("distinct", n, X)        X with different values; "distinct>" once some are seen
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from stentor.composite import expressions as e
from stentor.composite.conditions import Condition, conjuncts, is_final
from stentor.errors import InvalidPattern
from stentor.filters.effort import spend

Term: TypeAlias = tuple[Any, ...]
#: Conditions that have to hold, by their numbers, for a term to count as complete.
Guards: TypeAlias = frozenset[int]
#: A side of a parallel operator; None is the whole.
Scope: TypeAlias = tuple[int, int] | None

DONE: Final[Term] = ("done",)
#: Steps of `effort` that it takes to look at one term.
LOOK: Final = 2
#: In how many ways a term may be complete.
MAX_EXITS: Final = 64


class Timer(NamedTuple):
    """When a timer goes off, and its name; one without a name ends what it belongs to."""

    spec: e.Spec
    name: str | None


@dataclass(slots=True)
class Operators:
    """What the numbers in terms mean."""

    timers: dict[int, Timer] = field(default_factory=dict)
    #: Conditions that are tested on events, and those that are tested in the end.
    tested: dict[int, tuple[Condition, ...]] = field(default_factory=dict)
    final: dict[int, tuple[Condition, ...]] = field(default_factory=dict)
    distinct: dict[int, str] = field(default_factory=dict)


class Move(NamedTuple):
    """One way to take an event. The fields are in the order in which they come into play."""

    atom: e.Atom
    rest: Term
    #: Conditions that must hold before the event is taken, to leave what it ends.
    leaving: Guards = frozenset()
    #: Operators that begin: parallel ones with the side that they are in; distinct ones.
    entered: tuple[tuple[int, Scope], ...] = ()
    cleared: tuple[int, ...] = ()
    #: What the event must satisfy to be one of those that are meant.
    conditions: tuple[int, ...] = ()
    differing: tuple[int, ...] = ()
    #: The sides of parallel operators that it belongs to, from the outside in.
    sides: tuple[Scope, ...] = ()
    #: Floors that it must be above; floors that are set to the hull of a side, and tested.
    floors: tuple[int, ...] = ()
    raised: tuple[tuple[int, Scope], ...] = ()
    #: Conditions that must hold once it is taken, because nothing else may come.
    finally_: Guards = frozenset()
    #: Timers that are set, if the conditions of one of the ways to be complete hold.
    armed: tuple[tuple[int, tuple[Guards, ...]], ...] = ()


def number(expression: e.Expression) -> tuple[Term, Operators]:
    """The term of a whole expression, and what its numbers stand for."""
    operators = Operators()
    numbers = count()

    def term(node: e.Expression) -> Term:
        match node:
            case e.Atom():
                return ("atom", node)
            case e.Concatenation(left, right):
                return ("then", term(left), term(right))
            case e.Sequence(left, right):
                return ("seq", next(numbers), term(left), term(right))
            case e.Iteration(body, least, most):
                return ("iter", term(body), least, most)
            case e.Alternation(left, right):
                return ("alt", term(left), term(right))
            case e.Parallel(left, right):
                return ("par", next(numbers), term(left), term(right))
            case e.Timing(first, second, timer, spec):
                own = next(numbers)
                operators.timers[own] = Timer(spec, timer)
                return ("timed", own, term(first), term(second), False)
            case e.Deadline(first, second, micros):
                own = next(numbers)
                operators.timers[own] = Timer(e.After(micros), None)
                return ("timed", own, term(first), term(second), False)
            case e.Within(body, micros):
                own = next(numbers)
                operators.timers[own] = Timer(e.After(micros), None)
                return ("within", own, term(body))
            case e.Where(body, condition):
                own = next(numbers)
                parts = conjuncts(condition)
                operators.tested[own] = tuple(part for part in parts if not is_final(part))
                operators.final[own] = tuple(part for part in parts if is_final(part))
                return ("where", own, term(body))
            case e.Distinct(body, attribute):
                own = next(numbers)
                operators.distinct[own] = attribute
                return ("distinct", own, term(body))
            case e.Window():
                raise AssertionError("a window has an automaton of its own")

    return term(e.with_own_timers(expression)), operators


def exits(term: Term, operators: Operators) -> tuple[Guards, ...]:
    """The ways in which a term is complete; none if more has to come."""
    spend(LOOK)
    match term:
        case ("done",):
            return (frozenset(),)
        case ("atom", _):
            return ()
        case ("iter", _, 0, _):
            return (frozenset(),)
        case ("iter", body, _, _):
            return exits(body, operators)
        case ("alt", left, right):
            return _least({*exits(left, operators), *exits(right, operators)})
        case ("then", left, right) | ("seq" | "seq>" | "par" | "par>", _, left, right):
            return _joined(left, right, operators)
        case ("timed", _, left, right, _):
            return _joined(left, right, operators)
        case ("where", n, inner):
            own = {n} if operators.final[n] else set()
            return tuple(each | own for each in exits(inner, operators))
        case (_, _, inner):
            return exits(inner, operators)
    raise AssertionError(term)


def _joined(left: Term, right: Term, operators: Operators) -> tuple[Guards, ...]:
    one = exits(left, operators)
    other = exits(right, operators) if one else ()
    return _least({a | b for a in one for b in other})


def _least(found: set[Guards]) -> tuple[Guards, ...]:
    """The ways without those that ask for more than another."""
    kept = [each for each in found if not any(other < each for other in found)]
    if len(kept) > MAX_EXITS:
        raise InvalidPattern(
            f"the conditions of the pattern can be met in more than {MAX_EXITS} ways; write fewer "
            "`where` inside of alternatives"
        )
    return tuple(sorted(kept, key=sorted))


def moves(term: Term, operators: Operators) -> list[Move]:
    """All that may come next."""
    spend(LOOK)
    match term:
        case ("done",):
            return []
        case ("atom", atom):
            return [Move(atom, DONE)]
        case ("then", left, right):
            return _first(left, operators, lambda r: then(r, right)) + _second(
                left, right, operators
            )
        case ("seq", n, left, right):  # nothing precedes what stands first
            begun = _first(left, operators, lambda r: ("seq>", n, r, right))
            return begun + _second(left, right, operators)
        case ("seq>", n, left, right):
            begun = _first(left, operators, lambda r: ("seq>", n, r, right))
            return begun + [_above(m, n) for m in _second(left, right, operators)]
        case ("above", n, inner):
            return [
                m._replace(rest=wrapped("above", n, m.rest), floors=(*m.floors, n))
                for m in moves(inner, operators)
            ]
        case ("iter", body, least, most):
            if most == 1:
                return moves(body, operators)
            more = ("iter", body, max(least - 1, 0), None if most is None else most - 1)
            return _first(body, operators, lambda r: then(r, more))
        case ("alt", left, right):
            return moves(left, operators) + moves(right, operators)
        case ("par", n, left, right):
            return [
                m._replace(entered=((n, None), *m.entered))
                for m in moves(("par>", n, left, right), operators)
            ]
        case ("par>", n, left, right):
            return [_sided(m, (n, 0), _both(n, m.rest, right)) for m in moves(left, operators)] + [
                _sided(m, (n, 1), _both(n, left, m.rest)) for m in moves(right, operators)
            ]
        case ("timed", n, left, right, begun):
            return _timed(n, left, right, begun, operators)
        case ("until", n, inner):
            return _first(inner, operators, lambda r: wrapped("until", n, r))
        case ("within", n, inner):
            always = (frozenset[int](),)
            return [
                m._replace(rest=wrapped("until", n, m.rest), armed=(*m.armed, (n, always)))
                for m in moves(inner, operators)
            ]
        case ("where", n, inner):
            return [_checked(m, n, operators) for m in moves(inner, operators)]
        case ("distinct", n, inner):
            return [
                m._replace(cleared=(n, *m.cleared))
                for m in moves(("distinct>", n, inner), operators)
            ]
        case ("distinct>", n, inner):
            return [
                m._replace(rest=wrapped("distinct>", n, m.rest), differing=(*m.differing, n))
                for m in moves(inner, operators)
            ]
    raise AssertionError(term)


def _first(left: Term, operators: Operators, wrap: Callable[[Term], Term]) -> list[Move]:
    found = moves(left, operators)
    spend(LOOK * len(found))
    return [m._replace(rest=wrap(m.rest)) for m in found]


def _second(left: Term, right: Term, operators: Operators) -> list[Move]:
    """What comes next of the second part, for each way in which the first is complete."""
    ways = exits(left, operators)
    if not ways:
        return []
    found = moves(right, operators)
    spend(LOOK * len(ways) * len(found))
    return [m._replace(leaving=m.leaving | way) for way in ways for m in found]


def _above(move: Move, n: int) -> Move:
    return move._replace(rest=wrapped("above", n, move.rest), raised=(*move.raised, (n, None)))


def _timed(n: int, left: Term, right: Term, begun: bool, operators: Operators) -> list[Move]:
    found = []
    for m in moves(left, operators):
        rest = ("timed", n, m.rest, right, True)
        found.append(m._replace(rest=rest, armed=(*m.armed, (n, exits(m.rest, operators)))))
    strict = begun and operators.timers[n].name is None
    for m in _second(left, right, operators):
        m = _above(m, n) if strict else m
        found.append(m._replace(rest=wrapped("until", n, m.rest)))
    return found


def _checked(move: Move, n: int, operators: Operators) -> Move:
    if operators.tested[n]:
        move = move._replace(conditions=(*move.conditions, n))
    if move.rest != DONE:
        return move._replace(rest=("where", n, move.rest))
    return move._replace(finally_=move.finally_ | {n}) if operators.final[n] else move


def _sided(move: Move, side: Scope, rest: Term) -> Move:
    """The move on one side of a parallel operator: what looked at the whole looks at the side."""
    return move._replace(
        rest=rest,
        entered=tuple((n, side if scope is None else scope) for n, scope in move.entered),
        raised=tuple((n, side if scope is None else scope) for n, scope in move.raised),
        sides=(side, *move.sides),
    )


def then(rest: Term, second: Term) -> Term:
    return second if rest == DONE else ("then", rest, second)


def wrapped(kind: str, n: int, rest: Term) -> Term:
    return DONE if rest == DONE else (kind, n, rest)


def _both(n: int, left: Term, right: Term) -> Term:
    return DONE if left == right == DONE else ("par>", n, left, right)


def split(term: Term) -> list[Term]:
    """The alternatives that stand at the head, as terms of their own."""
    spend(LOOK)
    match term:
        case ("alt", left, right):
            return split(left) + split(right)
        case ("then", left, right):
            return [then(each, right) for each in split(left)]
        case ("seq>", n, ("done",), right):
            return [("seq>", n, DONE, each) for each in split(right)]
        case ("seq>", n, left, right):
            return [("seq>", n, each, right) for each in split(left)]
        case ("above" | "until" | "where" | "distinct>", _, inner):
            return [(*term[:2], each) for each in split(inner)]
        case _:
            return [term]


def expiries(term: Term, timer: int, operators: Operators) -> list[tuple[Guards, Term]]:
    """What is left when a timer without a name goes off; nothing if that cannot be."""
    match term:
        case ("until", n, inner) if n == timer:
            return [(way, DONE) for way in exits(inner, operators)]
        case ("timed", n, _, right, _) if n == timer:
            return [(way, DONE) for way in exits(right, operators)]
        case ("then", left, right):
            return [(g, then(r, right)) for g, r in expiries(left, timer, operators)]
        case ("seq>", n, left, right):
            return [(g, ("seq>", n, r, right)) for g, r in expiries(left, timer, operators)]
        case ("timed", n, left, right, begun):
            inner = expiries(left, timer, operators)
            return [(g, ("timed", n, r, right, begun)) for g, r in inner]
        case ("par>", n, left, right):
            if timer in live(left).timers:
                return [(g, _both(n, r, right)) for g, r in expiries(left, timer, operators)]
            return [(g, _both(n, left, r)) for g, r in expiries(right, timer, operators)]
        case ("where", n, inner):
            own = {n} if operators.final[n] else set()
            return [
                (g | own, r) if r == DONE else (g, ("where", n, r))
                for g, r in expiries(inner, timer, operators)
            ]
        case ("above" | "until" | "distinct>" as kind, n, inner):
            return [(g, wrapped(kind, n, r)) for g, r in expiries(inner, timer, operators)]
    raise AssertionError(term)


class Live(NamedTuple):
    """The registers that a term still needs."""

    floors: frozenset[int]
    timers: frozenset[int]
    seen: frozenset[int]
    sides: frozenset[tuple[int, int]]


_NOTHING: Final = Live(frozenset(), frozenset(), frozenset(), frozenset())


def live(term: Term) -> Live:
    """What has begun in a term stands at its head: nothing behind it can have a value."""
    match term:
        case ("then", left, _) | ("seq>", _, left, _):
            return live(left)
        case ("above", n, inner):
            found = live(inner)
            return found._replace(floors=found.floors | {n})
        case ("until", n, inner) | ("timed", n, inner, _, True):
            found = live(inner)
            return found._replace(timers=found.timers | {n})
        case ("where", _, inner):
            return live(inner)
        case ("distinct>", n, inner):
            found = live(inner)
            return found._replace(seen=found.seen | {n})
        case ("par>", n, left, right):
            one, other = live(left), live(right)
            return Live(
                one.floors | other.floors,
                one.timers | other.timers,
                one.seen | other.seen,
                one.sides | other.sides | {(n, 0), (n, 1)},
            )
        case _:
            return _NOTHING
