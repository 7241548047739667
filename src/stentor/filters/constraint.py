"""Everything one conjunctive filter says about one attribute (R-02.10, R-02.12).

An attribute holds a value of one of the value types, or a collection, or is absent. A
`Constraint` is a set of such states:

    parts    for each value type that is mentioned, the set of its accepted values
    rest     whether every value of the types not mentioned is accepted
    absent   whether a missing attribute is accepted

`x > 5` has one part and nothing else: a string is never greater than 5, and a missing attribute
satisfies no comparison (R-02.08). `exists x` has no parts and accepts the rest; `x is missing`
accepts only absence. Constraints are closed under and, or and not, several constraints on one
attribute fold into one, and the relations between filters reduce to relations between these sets,
attribute by attribute.

Names are not declared, so nothing here assumes that a name has one type: `x < 5` and `x >= 5` make
up `x is number`, which a string does not satisfy. Where the type of a name is known, `schema.typed`
turns that into `exists x` (R-02.29).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from stentor.filters import numbers, tested
from stentor.filters.collection import Cell, CollectionSet
from stentor.filters.domains import REAL, domain
from stentor.filters.numbers import SplitNumbers
from stentor.filters.ranges import Ranges
from stentor.filters.records import Records
from stentor.filters.tested import Tested
from stentor.filters.unordered import comparable as comparable
from stentor.model.values import COLLECTION, RECORD, value_type_of

Part = Ranges | SplitNumbers | Tested | CollectionSet | Records
Parts = tuple[tuple[str, Part], ...]
#: Sets that have one form as they are written and another when it is known what they mean.
_WRITTEN: Final = (Tested, CollectionSet, Records)


class Constraint:
    """An immutable, canonical set of states of one attribute."""

    __slots__ = ("_hash", "absent", "parts", "rest")

    def __init__(self, parts: Parts = (), *, rest: bool = False, absent: bool = False) -> None:
        """Parts sorted by type name, none of them saying what `rest` says already."""
        self.parts = parts
        self.rest = rest
        self.absent = absent
        self._hash = 0

    @staticmethod
    def of_part(type_name: str, part: Part) -> Constraint:
        return NO_VALUE if part.is_none else Constraint(((type_name, part),))

    # -- tests

    def accepts(self, value: Any) -> bool:
        """Whether the attribute may have this (normal) value."""
        type_name = value_type_of(value)
        for name, part in self.parts:
            if name == type_name:
                return part.contains(comparable(type_name, value))
        return self.rest

    @property
    def is_none(self) -> bool:
        """Nothing satisfies it, not even absence."""
        return not self.parts and not self.rest and not self.absent

    @property
    def is_all_values(self) -> bool:
        return self.rest and not self.parts

    @property
    def is_anything(self) -> bool:
        """It says nothing about the attribute."""
        return self.absent and self.rest and not self.parts

    @property
    def is_single(self) -> bool:
        """Only one value satisfies it."""
        if self.rest or self.absent or len(self.parts) != 1:
            return False
        part = self.parts[0][1]
        return isinstance(part, Ranges) and len(part.cuts) <= 2 and len(part.values or ()) == 1

    def part(self, type_name: str) -> Part:
        for name, part in self.parts:
            if name == type_name:
                return part
        return everything(type_name) if self.rest else nothing(type_name)

    def includes(self, other: Constraint) -> bool:
        """Covering between attribute filters (R-02.25): may say no where it does not know."""
        if (other.absent and not self.absent) or (other.rest and not self.rest):
            return False
        mine, theirs = self.parts, other.parts
        if len(mine) == len(theirs) == 1 and mine[0][0] == theirs[0][0]:
            return _includes(mine[0][1], theirs[0][1])
        return all(_includes(self.part(t), other.part(t)) for t in _types(self, other))

    def intersects(self, other: Constraint) -> bool:
        """Overlap between attribute filters (R-02.26): may say yes where it does not know."""
        if (self.absent and other.absent) or (self.rest and other.rest):
            return True
        return any(_intersects(self.part(t), other.part(t)) for t in _types(self, other))

    # -- Boolean operations

    def union(self, other: Constraint) -> Constraint:
        return self._combine(other, _union, self.rest or other.rest, self.absent or other.absent)

    @staticmethod
    def union_of(constraints: Sequence[Constraint]) -> Constraint:
        """The union of many at once."""
        if len(constraints) == 1:
            return constraints[0]
        rest, absent = any(c.rest for c in constraints), any(c.absent for c in constraints)
        return _joined(constraints, "or", rest, absent)

    @staticmethod
    def intersection_of(constraints: Sequence[Constraint]) -> Constraint:
        """The intersection of many at once."""
        if len(constraints) == 2:
            return constraints[0].intersection(constraints[1])
        rest, absent = all(c.rest for c in constraints), all(c.absent for c in constraints)
        return _joined(constraints, "and", rest, absent)

    def intersection(self, other: Constraint) -> Constraint:
        mine, theirs = self.parts, other.parts
        if (
            len(mine) == 1 == len(theirs)
            and mine[0][0] == theirs[0][0]
            and not (self.rest or other.rest or self.absent or other.absent)
        ):  # as in `price >= 10 and price < 20`
            part = _intersection(mine[0][1], theirs[0][1])
            return NO_VALUE if part.is_none else Constraint(((mine[0][0], part),))
        return self._combine(
            other, _intersection, self.rest and other.rest, self.absent and other.absent
        )

    def complement(self) -> Constraint:
        """All other values. Absence stays as it is: the complement still wants the attribute."""
        parts = tuple([(name, part.complement()) for name, part in self.parts])
        return Constraint(parts, rest=not self.rest, absent=self.absent)

    def others(self) -> Constraint:
        """All other states of the attribute, absence among them."""
        values = self.complement()
        return Constraint(values.parts, rest=values.rest, absent=not self.absent)

    def settled(self) -> Constraint:
        """The same with every set in its plainest form, as far as that can be worked out."""
        if all(type(part) is Ranges for _, part in self.parts):
            return self
        parts: list[tuple[str, Part]] = []
        for name, part in self.parts:
            if isinstance(part, _WRITTEN):
                part = part.settled()
            if not (part.is_all if self.rest else part.is_none):
                parts.append((name, part))
        return Constraint(tuple(parts), rest=self.rest, absent=self.absent)

    @property
    def is_written(self) -> bool:
        """Nobody has worked out yet what it means, nor what a part of it means."""
        for _, part in self.parts:
            if isinstance(part, Ranges) or isinstance(part, SplitNumbers):  # noqa: SIM101 (quicker)
                continue
            if not part.is_written:
                return False
        return True

    def as_written(self) -> Constraint:
        """The same as if nobody had."""
        parts = [
            (name, part.as_written() if isinstance(part, _WRITTEN) else part)
            for name, part in self.parts
        ]
        return Constraint(tuple(parts), rest=self.rest, absent=self.absent)

    def _combine(
        self, other: Constraint, operation: Callable[[Any, Any], Any], rest: bool, absent: bool
    ) -> Constraint:
        parts: list[tuple[str, Part]] = []
        for name in _types(self, other):
            part = operation(self.part(name), other.part(name))
            if not (part.is_all if rest else part.is_none):
                parts.append((name, part))
        return Constraint(tuple(parts), rest=rest, absent=absent)

    # -- merging

    def merge(self, other: Constraint) -> Constraint | None:
        """One constraint for both, exact and no more complicated than they are; or None."""
        if self.includes(other):
            return self
        if other.includes(self):
            return other
        rest, absent = self.rest or other.rest, self.absent or other.absent
        parts: list[tuple[str, Part]] = []
        for name in _types(self, other):
            part = _merge(self.part(name), other.part(name))
            if part is None:
                return None
            if not (part.is_all if rest else part.is_none):
                parts.append((name, part))
        merged = Constraint(tuple(parts), rest=rest, absent=absent)
        return merged if merged.size <= max(self.size, other.size) else None

    @property
    def size(self) -> int:
        """How many simple statements it takes: the measure that merging must not increase."""
        return sum([part.size for _, part in self.parts]) + self.rest + self.absent

    # -- identity

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constraint):
            return NotImplemented
        return self is other or (
            self.parts == other.parts and self.rest == other.rest and self.absent == other.absent
        )

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash((self.parts, self.rest, self.absent))
        return self._hash

    def __repr__(self) -> str:
        return f"Constraint({self.parts}, rest={self.rest}, absent={self.absent})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.parts, self.rest, self.absent)


def _restore(parts: Parts, rest: bool, absent: bool) -> Constraint:
    return Constraint(parts, rest=rest, absent=absent)


def everything(type_name: str) -> Part:
    if type_name == COLLECTION:
        return CollectionSet((Cell(EXISTS, frozenset()),))
    if type_name == RECORD:
        return _every_record()
    return Ranges(REAL if type_name == "number" else domain(type_name), True, ())


def nothing(type_name: str) -> Part:
    if type_name == COLLECTION:
        return CollectionSet(())
    if type_name == RECORD:
        return Records(())
    return Ranges(REAL if type_name == "number" else domain(type_name), False, ())


def _every_record() -> Records:
    from stentor.filters.conjunct import Conjunct

    return Records((Conjunct({}),))


def _types(a: Constraint, b: Constraint) -> list[str]:
    if not b.parts:
        return [name for name, _ in a.parts]
    names = {name for name, _ in a.parts}
    names.update([name for name, _ in b.parts])
    return sorted(names)


def _joined(
    constraints: Sequence[Constraint], operator: str, rest: bool, absent: bool
) -> Constraint:
    parts: list[tuple[str, Part]] = []
    for name in sorted({name for c in constraints for name, _ in c.parts}):
        part = _joined_parts(operator, [c.part(name) for c in constraints])
        if not (part.is_all if rest else part.is_none):
            parts.append((name, part))
    return Constraint(tuple(parts), rest=rest, absent=absent)


def _joined_parts(operator: str, parts: list[Any]) -> Any:
    if any(type(p) is Tested for p in parts):
        return tested.joined(parts[0].domain, operator, parts)
    if operator == "or" and type(parts[0]) is CollectionSet:
        return CollectionSet.of(cell for part in parts for cell in part.cells)
    combine = _union if operator == "or" else _intersection
    while len(parts) > 1:  # neighbors first: what came of all so far would be copied each time
        joined = [combine(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = joined + parts[len(parts) & ~1 :]
    return parts[0]


# `Tested` knows all kinds of sets beside it, `SplitNumbers` knows `Ranges`, the others only
# themselves. So an operation on two sets is asked of the one that knows more.


def _includes(a: Any, b: Any) -> bool:
    if type(a) is type(b):
        return bool(a.includes(b))
    if type(a) is Tested or type(b) is Tested:
        return tested.includes(a, b)
    return numbers.includes(a, b)


def _intersects(a: Any, b: Any) -> bool:
    return bool(a.intersects(b) if _knows_more(a, b) else b.intersects(a))


def _union(a: Any, b: Any) -> Any:
    return a.union(b) if _knows_more(a, b) else b.union(a)


def _intersection(a: Any, b: Any) -> Any:
    return a.intersection(b) if _knows_more(a, b) else b.intersection(a)


def _merge(a: Any, b: Any) -> Any:
    return a.merge(b) if _knows_more(a, b) else b.merge(a)


def _knows_more(a: Any, b: Any) -> bool:
    return type(a) is type(b) or type(b) is Ranges or type(a) is Tested


NO_VALUE: Final = Constraint()
EXISTS: Final = Constraint(rest=True)
MISSING: Final = Constraint(absent=True)
ANYTHING: Final = Constraint(rest=True, absent=True)
