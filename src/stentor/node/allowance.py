"""What one grant may have of a broker, so that nobody starves the others.

An `Allowance` is what the operator has set for a grant. What all of them share, such as room for
durable subscriptions, they have by `Shares`, whatever was set: half of it is kept for the grants in
equal parts, the rest is for those who come first. So a grant that takes all it can get leaves
something to each of the others. A `Pace` is how fast somebody may go on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from stentor.errors import NotPermitted, Overloaded
from stentor.node.feed import Overflow

#: Seconds of a pace that may be used up at once.
BURST: Final = 1.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """The bounds of one grant, for all of its clients together.

    >>> Allowance(overflow=("spill",)).check_overflow("ann", "block")
    Traceback (most recent call last):
    ...
    stentor.errors.NotPermitted: 'ann' may not subscribe with overflow='block'; choose one of \
spill, or have the grant widened
    >>> Allowance(groups=2).check("groups", 2)
    Traceback (most recent call last):
    ...
    stentor.errors.Overloaded: this grant has 2 groups, the most that it allows; end some, or \
raise `groups` in the grant
    """

    #: What their subscriptions may do with what does not fit.
    overflow: tuple[str, ...] = get_args(Overflow)
    #: Seconds for which publishers wait for one of their subscriptions ("block").
    block: float = float("inf")
    #: How many they may have here.
    subscriptions: int | None = None
    durables: int | None = None
    groups: int | None = None
    detectors: int | None = None
    #: Notifications that they may publish in a second.
    rate: float | None = None
    #: What the filters of one subscription may weigh, or that of an advertisement.
    weight: int | None = None

    def check(self, what: str, count: int) -> None:
        """Raise if they have so many, and no more are allowed."""
        most = getattr(self, what)
        if most is not None and count >= most:
            raise Overloaded(
                f"this grant has {count} {what}, the most that it allows; end some, or raise "
                f"`{what}` in the grant"
            )

    def check_overflow(self, name: str, overflow: str) -> None:
        """Raise if a client may not choose this policy."""
        if overflow not in self.overflow and overflow in get_args(Overflow):
            raise NotPermitted(
                f"{name!r} may not subscribe with overflow={overflow!r}; choose one of "
                f"{', '.join(self.overflow)}, or have the grant widened"
            )

    def check_weight(self, name: str, weight: int) -> None:
        """Raise if a client may not ask for something so complicated."""
        if self.weight is not None and weight > self.weight:
            raise NotPermitted(
                f"what {name!r} asks for weighs {weight}, and its grant allows {self.weight}; "
                "ask for something simpler, or have the grant widened"
            )


#: No bounds.
UNLIMITED: Final = Allowance()


class Shares:
    """A bound that grants share.

    >>> shares = Shares(8, ["desk", "mallory"])
    >>> shares.has_room("mallory", {"mallory": 5}), shares.has_room("mallory", {"mallory": 6})
    (True, False)
    >>> shares.has_room("desk", {"mallory": 6, "desk": 1})
    True
    """

    def __init__(self, most: int, owners: Collection[str] = ()) -> None:
        self.resize(most, owners)

    def resize(self, most: int, owners: Collection[str]) -> None:
        """From now on these share so much. Who has more than that keeps it."""
        self._most = most
        self._owners = owners
        self._kept = most // 2 // max(1, len(owners))

    def has_room(self, owner: str | None, counts: Mapping[str | None, int]) -> bool:
        """Whether this one may have one more, by how many each has."""
        kept = sum(max(0, self._kept - counts.get(o, 0)) for o in self._owners if o != owner)
        return sum(counts.values()) + kept < self._most


class Pace:
    """So much in a second, and as much at once.

    >>> pace = Pace(10.0, now=0.0)
    >>> pace.go(15, now=0.0)
    >>> pace.is_ahead(now=0.4), pace.is_ahead(now=0.5)
    (True, False)
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        #: The time up to which the pace is used up; it may lie ahead.
        self._used = now - BURST

    def go(self, count: int, now: float) -> None:
        """So much was done."""
        self._used = max(self._used, now - BURST) + count / self._rate

    def is_ahead(self, now: float) -> bool:
        """Whether more was done than time has passed for."""
        return self._used > now
