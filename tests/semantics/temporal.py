"""Temporal logic over infinite traces that repeat (Def 2.4, algorithm A-1).

A lasso is a trace that runs through a prefix once and through a loop for ever, so that infinite
behavior is decided by looking at finitely many positions. The truth of a formula is defined at each
position, for the suffix that begins there: a statement looks at the first state of the suffix,
`next_` at the suffix one later, `eventually` at some suffix and `always` at all of them. A lasso
satisfies a formula if the formula is true at its first position.

Formulas are built bottom up. `~`, `&` and `|` are the Boolean operators and `implies` is a method,
since none of Python's operators binds as weakly as an implication should.

    >>> p, q = statement("P", "P".__eq__), statement("Q", "Q".__eq__)
    >>> answered = always(p.implies(eventually(q)))
    >>> print(answered)
    □(P ⇒ ◇Q)
    >>> answered.holds(Lasso("..P.", "Q.")), answered.holds(Lasso("Q", "P."))
    (True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import and_, or_
from typing import Any, Generic, TypeAlias, TypeVar

from stentor.errors import InvalidValue

State = TypeVar("State")
_Truth: TypeAlias = list[bool]


class Lasso(Generic[State]):
    """The states of the prefix once, then those of the loop for ever."""

    __slots__ = ("loop_start", "states")

    def __init__(self, prefix: Sequence[State], loop: Sequence[State]) -> None:
        if not loop:
            raise InvalidValue(
                "the loop of a lasso is empty; a trace that stops repeats its last state"
            )
        self.states: tuple[State, ...] = (*prefix, *loop)
        self.loop_start = len(prefix)

    def __repr__(self) -> str:
        prefix, loop = self.states[: self.loop_start], self.states[self.loop_start :]
        return f"Lasso({list(prefix)!r}, {list(loop)!r})"


class Formula(Generic[State]):
    """A property of a suffix of a trace."""

    __slots__ = ("_text", "_truth")

    def __init__(self, text: str, truth: Callable[[Lasso[State]], _Truth]) -> None:
        self._text = text
        self._truth = truth

    def truth(self, lasso: Lasso[State]) -> list[bool]:
        """Whether it is true, at each position of the prefix and of the loop."""
        return self._truth(lasso)

    def holds(self, lasso: Lasso[State]) -> bool:
        """Whether the whole trace satisfies it."""
        return self.truth(lasso)[0]

    def __invert__(self) -> Formula[State]:
        return Formula(f"¬{self}", lambda lasso: [not true for true in self.truth(lasso)])

    def __and__(self, other: Formula[State]) -> Formula[State]:
        return self._combined("∧", and_, other)

    def __or__(self, other: Formula[State]) -> Formula[State]:
        return self._combined("∨", or_, other)

    def implies(self, other: Formula[State]) -> Formula[State]:
        return self._combined("⇒", lambda left, right: right or not left, other)

    def _combined(
        self, symbol: str, operator: Callable[[bool, bool], bool], other: Formula[State]
    ) -> Formula[State]:
        return Formula(
            f"({self} {symbol} {other})",
            lambda lasso: [*map(operator, self.truth(lasso), other.truth(lasso))],
        )

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Formula {self}>"


def statement(name: str, of: Callable[[State], bool]) -> Formula[State]:
    """An atomic formula: what is true of the first state."""
    return Formula(name, lambda lasso: [bool(of(state)) for state in lasso.states])


def next_(formula: Formula[State]) -> Formula[State]:
    """○: true of the suffix that begins one position later."""

    def truth(lasso: Lasso[Any]) -> _Truth:
        now = formula.truth(lasso)
        return [*now[1:], now[lasso.loop_start]]

    return Formula(f"○{formula}", truth)


def eventually(formula: Formula[State]) -> Formula[State]:
    """◇: true of some suffix."""

    def truth(lasso: Lasso[Any]) -> _Truth:
        now = formula.truth(lasso)
        # From anywhere in the loop, all of the loop lies ahead.
        ahead = any(now[lasso.loop_start :])
        result = [ahead] * len(now)
        for position in reversed(range(lasso.loop_start)):
            result[position] = ahead = ahead or now[position]
        return result

    return Formula(f"◇{formula}", truth)


def always(formula: Formula[State]) -> Formula[State]:
    """□: true of every suffix."""
    never_false = ~eventually(~formula)
    return Formula(f"□{formula}", never_false.truth)
