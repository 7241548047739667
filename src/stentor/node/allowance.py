"""What one grant may have of a broker, so that nobody starves the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from stentor.errors import NotPermitted
from stentor.node.feed import Overflow


@dataclass(frozen=True, slots=True)
class Allowance:
    """The share of one grant, which all of its clients have together.

    >>> Allowance(overflow=("spill",)).check_overflow("ann", "block")
    Traceback (most recent call last):
    ...
    stentor.errors.NotPermitted: 'ann' may not subscribe with overflow='block'; choose one of \
spill, or have the grant widened
    """

    #: What their subscriptions may do with what does not fit.
    overflow: tuple[str, ...] = get_args(Overflow)
    #: Seconds for which publishers wait for one of their subscriptions ("block").
    block: float = float("inf")

    def check_overflow(self, name: str, overflow: str) -> None:
        """Raise if a client may not choose this policy."""
        if overflow not in self.overflow and overflow in get_args(Overflow):
            raise NotPermitted(
                f"{name!r} may not subscribe with overflow={overflow!r}; choose one of "
                f"{', '.join(self.overflow)}, or have the grant widened"
            )
