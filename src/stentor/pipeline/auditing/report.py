"""What an audit answers, on the driver: counts, and the first violations in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stentor.notation.counts import counted
from stentor.semantics import Condition

#: Violations that a report tells.
SHOWN: Final = 20


@dataclass(frozen=True)
class Fault:
    """One violation, as the audit's table has it."""

    trace: str
    condition: Condition
    position: int
    component: str
    notification: str
    subscription: str | None
    explanation: str

    def __str__(self) -> str:
        return f"{self.condition} at action {self.position}: {self.explanation}"


@dataclass(frozen=True)
class AuditReport:
    """The outcome in short, as `stentor.semantics.Report` has it for one small trace.

    `owed` counts the deliveries that liveness asked for: runs that owed nothing have not tested
    liveness at all. `first` are the first violations by run and position, and `faults` counts all.
    """

    traces: int
    flawed: int
    actions: int
    publications: int
    deliveries: int
    owed: int
    faults: Mapping[Condition, int]
    first: tuple[Fault, ...]

    @property
    def ok(self) -> bool:
        return not self.faults

    @property
    def violations(self) -> int:
        """How many there are."""
        return sum(self.faults.values())

    @property
    def conditions(self) -> frozenset[Condition]:
        """Which conditions broke."""
        return frozenset(self.faults)

    def __str__(self) -> str:
        size = (
            f"{counted(self.actions, 'action')}, {counted(self.publications, 'publication')}, "
            f"{counted(self.deliveries, 'delivery', 'deliveries')}, {self.owed:,} owed"
        )
        several = self.traces != 1
        if several:
            size = f"{counted(self.traces, 'trace')}, {size}"
        if self.ok:
            return f"conforms ({size})"
        found = self.violations
        head = f"{counted(found, 'violation')} ({size})"
        if several:
            head = (
                f"{counted(found, 'violation')} "
                f"in {self.flawed} of {self.traces} traces ({size.partition(', ')[2]})"
            )
        lines = [head]
        lines += [f"  {f'{fault.trace}: ' if several else ''}{fault}" for fault in self.first]
        if found > len(self.first):
            lines.append(f"  and {found - len(self.first)} more")
        return "\n".join(lines)
