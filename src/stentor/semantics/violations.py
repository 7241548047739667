"""What a check answers: which condition broke, at which action, and why.

One fault is reported once. A delivery under the id of a published notification but with other
content is `ALTERED` and is otherwise taken for a delivery of what was published; the orders look
only at the first delivery of what had been published, since a repeated or an invented one is
reported as `DUPLICATE` or `PHANTOM`.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from stentor.notation.counts import counted
from stentor.semantics.actions import Action

_SHOWN: Final = 20


class Condition(StrEnum):
    """What a trace has to satisfy, by the name of the fault."""

    #: Delivered, but not published before (R-01.19).
    PHANTOM = "PHANTOM"
    #: Delivered with other content than it was published with (R-01.19).
    ALTERED = "ALTERED"
    #: No active subscription matched at the moment of delivery (R-01.18).
    NOT_SUBSCRIBED = "NOT_SUBSCRIBED"
    #: Delivered to the same component before (R-01.20).
    DUPLICATE = "DUPLICATE"
    #: No active advertisement of its publisher matched when it was published (R-01.33).
    UNADVERTISED = "UNADVERTISED"
    #: Published a second time (R-01.09).
    REPEATED_PUBLICATION = "REPEATED_PUBLICATION"
    #: Owed to a component, but not delivered by the last settling point (R-01.21, R-01.34).
    LOST = "LOST"
    #: Two notifications of one producer, delivered against the order of publication (R-01.26).
    FIFO = "FIFO"
    #: Delivered after something that it happened before (R-01.27).
    CAUSAL = "CAUSAL"
    #: The same, with chains of deliveries only, as Eq 2.4 is printed.
    CAUSAL_PRINTED = "CAUSAL_PRINTED"
    #: Two components were notified of two notifications in opposite orders (R-01.28).
    TOTAL_PAIRWISE = "TOTAL_PAIRWISE"
    #: The orders in which the components were notified contradict each other (R-01.32).
    TOTAL_GLOBAL = "TOTAL_GLOBAL"
    #: Delivered to a component that could not see it (04: Def 6.3).
    INVISIBLE = "INVISIBLE"
    #: Scopes changed before something was delivered that this takes away (R-04.23).
    NOT_DRAINED = "NOT_DRAINED"
    #: A durable subscription or group gave it, nobody has dealt with it, and it did not come again.
    UNSETTLED = "UNSETTLED"
    #: Two readers of a durable subscription or group have it confirmed.
    CONFIRMED_TWICE = "CONFIRMED_TWICE"
    #: There are two dead letters of it for one durable subscription or group.
    DEAD_TWICE = "DEAD_TWICE"
    #: It was confirmed, and there is a dead letter of it.
    CONFIRMED_AND_DEAD = "CONFIRMED_AND_DEAD"
    #: There is a dead letter of it, and it was not given as often as that says.
    DEAD_TOO_EARLY = "DEAD_TOO_EARLY"
    #: It was not told how often it had been given.
    MISCOUNTED = "MISCOUNTED"
    #: Given after an earlier one of its producer was refused, and before that came again.
    OVERTAKEN = "OVERTAKEN"


#: What is asked of those who settle notifications one by one.
SETTLEMENT: Final = frozenset(
    {
        Condition.UNSETTLED,
        Condition.CONFIRMED_TWICE,
        Condition.DEAD_TWICE,
        Condition.CONFIRMED_AND_DEAD,
        Condition.DEAD_TOO_EARLY,
        Condition.MISCOUNTED,
        Condition.OVERTAKEN,
    }
)


#: What is asked of runs with scopes, by `check_scoped`.
SCOPED: Final = frozenset({Condition.INVISIBLE, Condition.NOT_DRAINED})


class Violation(Struct, frozen=True):
    """A condition that broke, the action that broke it, and the reason in a sentence."""

    condition: Condition
    position: int
    action: Action
    why: str
    #: Who lacks something that was owed, if that is not who acts; and the subscription that it
    #: was owed to, or that was withdrawn before a delivery.
    whom: str | None = None
    subscription: Hashable = None

    def __str__(self) -> str:
        return f"{self.condition} at action {self.position}: {self.why}"


class Report(Struct, frozen=True):
    """The outcome of a check.

    `owed` counts the deliveries that liveness asked for: a run that owed nothing has not tested
    liveness at all.
    """

    violations: tuple[Violation, ...]
    actions: int
    publications: int
    deliveries: int
    owed: int

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def conditions(self) -> frozenset[Condition]:
        """Which conditions broke."""
        return frozenset(violation.condition for violation in self.violations)

    def __str__(self) -> str:
        size = (
            f"{counted(self.actions, 'action')}, {counted(self.publications, 'publication')}, "
            f"{counted(self.deliveries, 'delivery', 'deliveries')}, {self.owed:,} owed"
        )
        if self.ok:
            return f"conforms ({size})"
        found = len(self.violations)
        lines = [f"{counted(found, 'violation')} ({size})"]
        lines += [f"  {violation}" for violation in self.violations[:_SHOWN]]
        if found > _SHOWN:
            lines.append(f"  and {found - _SHOWN} more")
        return "\n".join(lines)
