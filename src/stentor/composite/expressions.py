"""Pattern expressions as values: the core language of sheet 06, and what extends it.

The eight operators of the core are `Atom` (with its negation), `Concatenation`, `Sequence`,
`Iteration`, `Alternation`, `Timing` and `Parallel`. The extensions, which the core lacks, are
counts in `Iteration`, `Within` and `Deadline`, `Where` (conditions across events), `Distinct`, and
`Window`, the sequence of SIENA. Nothing here knows what the names of events stand for.

`format_expression` writes an expression so that parsing gives it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Final, TypeAlias

from stentor.composite.conditions import Condition, format_condition
from stentor.composite.intervals import microseconds, moment
from stentor.filters.language import format_literal, format_name
from stentor.notation.units import format_duration


@dataclass(frozen=True, slots=True)
class Atom:
    """`[A, B in S]`: the next event of the domain S must be an A or a B (R-06.13).

    Negated it is `[not A, B in S]`: one event of S that is neither (R-06.14).
    """

    labels: tuple[str, ...]
    domain: tuple[str, ...]
    negated: bool = False

    @property
    def binds(self) -> tuple[str, ...]:
        """The names that an event gets by which it is accepted."""
        if not self.negated:
            return self.labels
        return tuple(name for name in self.domain if name not in self.labels)


@dataclass(frozen=True, slots=True)
class Concatenation:
    """`C1 C2`: C1 is weakly before C2 (R-06.15)."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Sequence:
    """`C1 ; C2`: C1 is strongly before C2, so that they do not overlap (R-06.16)."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Iteration:
    """`C*`, `C+`, `C?`, `C{2,5}`: C so many times, each weakly after the one before (R-06.17)."""

    body: Expression
    least: int
    #: None if there is no limit.
    most: int | None


@dataclass(frozen=True, slots=True)
class Alternation:
    """`C1 | C2`: either (R-06.18)."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Parallel:
    """`C1 || C2`: both, in any interleaving, without an order between them (R-06.20)."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class After:
    """So many microseconds after the accepted part."""

    micros: int


@dataclass(frozen=True, slots=True)
class At:
    """A moment, or the next one at that time of the day in UTC, in microseconds."""

    micros: int
    daily: bool = False


Spec: TypeAlias = After | At
DAY: Final = 86_400_000_000


def due(spec: Spec, high: int) -> int | None:
    """When a timer goes off that is started by something accepted at `high`; None for never.

    >>> due(After(5), 10), due(At(7), 10), due(At(7, daily=True), 10) == DAY + 7
    (15, None, True)
    """
    if isinstance(spec, After):
        return high + spec.micros
    if not spec.daily:
        return spec.micros if spec.micros > high else None
    return high + 1 + (spec.micros - high - 1) % DAY


@dataclass(frozen=True, slots=True)
class Timing:
    """`(C1, C2) T=1h`: when C1 accepts, a timer starts whose event is T in C2 (R-06.19)."""

    first: Expression
    second: Expression
    timer: str
    spec: Spec


@dataclass(frozen=True, slots=True)
class Deadline:
    """`C1 followed by C2 within 1 hour`: `C1 ; C2`, C2 completed in time after C1 (R-06.21)."""

    first: Expression
    second: Expression
    micros: int


@dataclass(frozen=True, slots=True)
class Within:
    """`C within 10s`: all of C in that time after the first event of it."""

    body: Expression
    micros: int


@dataclass(frozen=True, slots=True)
class Where:
    """`C where B.price > A.price * 1.1`: only events for which the condition holds."""

    body: Expression
    condition: Condition


@dataclass(frozen=True, slots=True)
class Distinct:
    """`C distinct by person`: no two events of C have the same value of the attribute."""

    body: Expression
    attribute: str


@dataclass(frozen=True, slots=True)
class Window:
    """`sequence(A, B)`: SIENA's pattern, contiguous among all that its filters match (R-08.25)."""

    labels: tuple[str, ...]
    consuming: bool = False


Expression: TypeAlias = (
    Atom
    | Concatenation
    | Sequence
    | Iteration
    | Alternation
    | Parallel
    | Timing
    | Deadline
    | Within
    | Where
    | Distinct
    | Window
)


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that this one is made of, from left to right."""
    match expression:
        case Atom() | Window():
            return ()
        case Iteration(body) | Within(body) | Where(body) | Distinct(body):
            return (body,)
        case Timing(first, second) | Deadline(first, second):
            return first, second
        case _:
            return expression.left, expression.right


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all that it is made of, from the outside in."""
    waiting = [expression]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed(parts(found)))


def with_own_timers(expression: Expression) -> Expression:
    """The same with a name of its own for each timer, so that a name says which timer is meant."""
    numbers = count()

    def renamed(node: Expression, names: dict[str, str]) -> Expression:
        match node:
            case Atom(labels, domain, negated):
                return Atom(
                    tuple(names.get(name, name) for name in labels),
                    tuple(names.get(name, name) for name in domain),
                    negated,
                )
            case Window():
                return node
            case Timing(first, second, timer, spec):
                own = f"{timer}#{next(numbers)}"
                return Timing(
                    renamed(first, names), renamed(second, {**names, timer: own}), own, spec
                )
            case Deadline(first, second, micros):
                return Deadline(renamed(first, names), renamed(second, names), micros)
            case Iteration(body) | Within(body) | Where(body) | Distinct(body):
                return replace(node, body=renamed(body, names))
        return replace(node, left=renamed(node.left, names), right=renamed(node.right, names))

    return renamed(expression, {})


#: How tightly operators bind; a clause, such as `within`, binds least of all.
_CLAUSE, _ALTERNATION, _PARALLEL, _FOLLOWED, _SEQUENCE, _CONCATENATION, _POSTFIX = range(7)
_BINARY: Final = {
    Alternation: (" | ", _ALTERNATION),
    Parallel: (" || ", _PARALLEL),
    Sequence: (" ; ", _SEQUENCE),
    Concatenation: (" ", _CONCATENATION),
}


def format_expression(expression: Expression) -> str:
    """The text of an expression.

    >>> a, b = Atom(("A",), ("A",)), Atom(("B",), ("B", "C"))
    >>> format_expression(Within(Sequence(Iteration(a, 1, None), b), 10_000_000))
    'A+ ; [B in {B, C}] within 10s'
    """
    return _written(expression, _CLAUSE)


def _written(expression: Expression, level: int) -> str:
    text, own = _text(expression)
    return text if own >= level else f"({text})"


def _text(expression: Expression) -> tuple[str, int]:
    match expression:
        case Atom(labels, domain, negated):
            return _atom(labels, domain, negated), _POSTFIX
        case Iteration(body, least, most):
            # One sign behind another would be read as a single one, or not at all.
            inner = _written(body, _POSTFIX)
            inner = f"({inner})" if isinstance(body, Iteration) else inner
            return inner + _count(least, most), _POSTFIX
        case Timing(first, second, timer, spec):
            pair = f"({_written(first, _CLAUSE)}, {_written(second, _CLAUSE)})"
            return f"{pair} {timer}={format_spec(spec)}", _POSTFIX
        case Deadline(first, second, micros):
            left, right = _written(first, _FOLLOWED), _written(second, _SEQUENCE)
            return f"{left} followed by {right} within {_duration(micros)}", _FOLLOWED
        case Within(body, micros):
            # A `within` behind `followed by` would belong to that.
            inner = _written(body, _CLAUSE)
            inner = f"({inner})" if isinstance(body, Deadline) else inner
            return f"{inner} within {_duration(micros)}", _CLAUSE
        case Where(body, condition):
            return f"{_written(body, _CLAUSE)} where {format_condition(condition)}", _CLAUSE
        case Distinct(body, attribute):
            return f"{_written(body, _CLAUSE)} distinct by {format_name(attribute)}", _CLAUSE
        case Window(labels, consuming):
            ending = " consuming" if consuming else ""
            return f"sequence({', '.join(labels)}){ending}", _POSTFIX
        case _:
            sign, own = _BINARY[type(expression)]
            left, right = _written(expression.left, own), _written(expression.right, own + 1)
            return f"{left}{sign}{right}", own


def _atom(labels: tuple[str, ...], domain: tuple[str, ...], negated: bool) -> str:
    if labels == domain and len(labels) == 1 and not negated:
        return labels[0]
    inside = domain[0] if len(domain) == 1 else "{" + ", ".join(domain) + "}"
    if labels == domain and not negated:
        return f"[{', '.join(labels)}]"
    return f"[{'not ' if negated else ''}{', '.join(labels)} in {inside}]"


def _count(least: int, most: int | None) -> str:
    signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if (least, most) in signs:
        return signs[least, most]
    if least == most:
        return f"{{{least}}}"
    return f"{{{least},{'' if most is None else most}}}"


def _duration(micros: int) -> str:
    whole, rest = divmod(micros, 1_000_000)
    if not rest:
        return format_duration(float(whole)) if whole < 2**53 else f"{whole}s"
    return f"{micros}us" if rest % 1_000 else f"{micros // 1_000}ms"


def format_spec(spec: Spec) -> str:
    if isinstance(spec, After):
        return _duration(spec.micros)
    if not spec.daily:
        return f"at {format_literal(moment(spec.micros).isoformat())}"
    clock = moment(microseconds(moment(0) + timedelta(microseconds=spec.micros)))
    return f"at {format_literal(clock.time().isoformat())}"
