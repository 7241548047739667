"""Conjunctive filters: at most one constraint for each attribute (R-02.10).

Because all constraints on one attribute are folded into one, the relations between two conjuncts
reduce to relations between the constraints on each name (R-02.24 to R-02.26). An attribute that a
conjunct does not mention may have any value or be absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stentor.filters.constraint import ANYTHING, Constraint
from stentor.filters.residual import Residual


class Conjunct:
    """An immutable conjunction of constraints, sorted by attribute name, and residuals."""

    __slots__ = ("_hash", "constraints", "residuals")

    def __init__(
        self,
        constraints: Mapping[str, Constraint],
        residuals: frozenset[Residual] = frozenset(),
    ) -> None:
        """None of the constraints may be empty or say nothing."""
        self.constraints = constraints
        self.residuals = residuals
        self._hash = 0

    @staticmethod
    def of(
        constraints: Mapping[str, Constraint], residuals: Iterable[Residual] = ()
    ) -> Conjunct | None:
        """The conjunct, or None if nothing can match it."""
        kept: dict[str, Constraint] = {}
        for name in sorted(constraints):
            constraint = constraints[name]
            if not constraint.parts:
                if constraint.is_none:
                    return None
                if constraint.is_anything:
                    continue
            kept[name] = constraint
        return Conjunct(kept, frozenset(residuals))

    def matches(self, facts: Mapping[str, Any]) -> bool:
        """`facts` maps names to normal values; what is missing or None is absent."""
        for name, constraint in self.constraints.items():
            value = facts.get(name)
            if not (constraint.absent if value is None else constraint.accepts(value)):
                return False
        return all(residual.holds(facts) for residual in self.residuals)

    def covers(self, other: Conjunct) -> bool:
        theirs = other.constraints
        for name, constraint in self.constraints.items():
            if not constraint.includes(theirs.get(name, ANYTHING)):
                return False
        return self.residuals <= other.residuals

    def overlaps(self, other: Conjunct) -> bool:
        theirs = other.constraints
        return all(
            constraint.intersects(theirs[name])
            for name, constraint in self.constraints.items()
            if name in theirs
        )

    def conjoin(self, other: Conjunct) -> Conjunct | None:
        """Both at once, folded; None if they contradict each other."""
        constraints = dict(self.constraints)
        for name, constraint in other.constraints.items():
            mine = constraints.get(name)
            constraints[name] = constraint if mine is None else mine.intersection(constraint)
        return Conjunct.of(constraints, self.residuals | other.residuals)

    def as_written(self) -> Conjunct:
        """The same as if nobody had worked out yet what its constraints mean."""
        for constraint in self.constraints.values():
            if not constraint.is_written:
                constraints = {name: c.as_written() for name, c in self.constraints.items()}
                return Conjunct(constraints, self.residuals)
        return self

    def without(self, name: str) -> frozenset[Any]:
        """What it says apart from one attribute: equal values mark candidates for merging."""
        return frozenset((*(i for i in self.constraints.items() if i[0] != name), *self.residuals))

    def replacing(self, name: str, constraint: Constraint) -> Conjunct | None:
        """The same with another constraint on one attribute; None if nothing can match that."""
        return Conjunct.of({**self.constraints, name: constraint}, self.residuals)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conjunct):
            return NotImplemented
        return self.constraints == other.constraints and self.residuals == other.residuals

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash((tuple(self.constraints.items()), self.residuals))
        return self._hash

    def __repr__(self) -> str:
        return f"Conjunct({dict(self.constraints)}, {sorted(map(repr, self.residuals))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Conjunct, (self.constraints, self.residuals)
