"""How much work an operation on filters may take, counted in elementary steps.

A few hundred bytes can describe a set whose canonical form, or whose relation to another set, takes
longer to work out than the age of the universe. Brokers take filters from anybody, so every
operation has a budget. It is counted in steps (a transition of an automaton, a cut of a range, a
pair of conjuncts) rather than by a clock: the same filters take the same number of steps on every
machine and in every process, so they always end in the same form. What was computed before is
charged as if it were computed anew, or the answer would depend on what happened earlier.

A step takes about half a microsecond. Whoever opens a budget with `within` decides what follows
when it is used up (`TooCostly`): a cautious answer, a plainer form, or an error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_UNLIMITED: Final = 1 << 62


class TooCostly(Exception):
    """The budget of steps is used up."""


class _Effort(threading.local):
    #: Steps that the current operation may still take.
    left: int = _UNLIMITED


effort: Final = _Effort()


def spend(steps: int) -> None:
    """Account for work that is about to be done; `TooCostly` if there is not enough left."""
    left = effort.left - steps
    effort.left = left
    if left < 0:
        raise TooCostly


class within:  # noqa: N801, it reads as a statement, and as a generator it takes four times as long
    """A budget for what is done inside, and never more than what is left of the one around it.

    >>> with within(10):
    ...     spend(8)
    ...     spend(8)
    Traceback (most recent call last):
    ...
    stentor.filters.effort.TooCostly
    """

    __slots__ = ("_granted", "_outer", "_steps")

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def __enter__(self) -> None:
        self._outer = effort.left
        self._granted = effort.left = min(self._steps, self._outer)

    def __exit__(self, *_: object) -> None:
        effort.left = self._outer - (self._granted - effort.left)


@contextmanager
def afresh(steps: int) -> Iterator[None]:
    """A budget of its own, whatever is left of the one around it, which is not charged.

    For forms that must not depend on where they are computed.
    """
    outer = effort.left
    effort.left = steps
    try:
        yield
    finally:
        effort.left = outer
