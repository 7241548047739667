"""Sets of records: what a filter can say about the records in a list.

To its fields a record is what a notification is to its attributes, so a set of records is what a
filter is: a union of conjuncts, of the same constraints, over the names of the fields. It is a part
of a `Constraint` on the elements of a collection. `any line in lines: F` is the collections with a
hit in F, `all line in lines: F` those whose universe is F (see `collection`). Everything else
follows: relations between such filters reduce to relations between sets of records, and those to
relations between the constraints on each field; a field that holds a list of records goes one
level deeper.

An element that is no record has no fields: `line.sku is missing` is true of it. So a condition on
fields accepts all plain values if it accepts the record without fields, and none otherwise.

Unlike a filter, a set of records has a complement: a record is always there, and whatever it does
not say is missing. Comparisons between fields are the exception. What fails `a < b` need not
satisfy `a >= b`, so there are no words for it, and such sets have no complement.

As elsewhere, sets are put together as they are written, and `settled` works out what they mean,
within the budget of whoever asks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Final

from stentor.errors import FilterTooComplex
from stentor.filters.effort import spend

if TYPE_CHECKING:
    from stentor.filters.conjunct import Conjunct

#: Steps that looking for the one form of a union may take.
DIAGRAM_STEPS: Final = 1_500


class Records:
    """An immutable union of conjuncts over the fields of records."""

    __slots__ = ("_hash", "_key", "conjuncts", "is_settled")

    def __init__(self, conjuncts: tuple[Conjunct, ...]) -> None:
        self.conjuncts = conjuncts
        self.is_settled = False
        self._key: Hashable = None
        self._hash = 0

    @staticmethod
    def of(conjuncts: Iterable[Conjunct]) -> Records:
        from stentor.filters.normalize import folded

        return Records(tuple(folded(conjuncts)))

    # -- tests

    def contains(self, record: Mapping[str, Any]) -> bool:
        for conjunct in self.conjuncts:  # noqa: SIM110 (as in `Filter.matches`)
            if conjunct.matches(record):
                return True
        return False

    @property
    def is_none(self) -> bool:
        return not self.conjuncts

    @property
    def is_all(self) -> bool:
        return any(not c.constraints and not c.residuals for c in self.conjuncts)

    @property
    def has_empty(self) -> bool:
        """Whether a record without any field belongs to it."""
        return any(
            not c.residuals and all(said.absent for said in c.constraints.values())
            for c in self.conjuncts
        )

    def includes(self, other: Records) -> bool:
        from stentor.filters.unions import includes

        return self is other or includes(self.conjuncts, other.conjuncts)

    def intersects(self, other: Records) -> bool:
        from stentor.filters.unions import intersects

        return intersects(self.conjuncts, other.conjuncts)

    # -- Boolean operations

    def union(self, other: Records) -> Records:
        spend(4 * (len(self.conjuncts) + len(other.conjuncts)))
        return Records.of((*self.conjuncts, *other.conjuncts))

    def intersection(self, other: Records) -> Records:
        from stentor.filters.normalize import product_of

        if self.is_all or other.is_all:
            return other if self.is_all else self
        spend(4)
        return Records.of(product_of(self.conjuncts, other.conjuncts))

    def complement(self) -> Records:
        """All other records: each conjunct fails at one of its fields."""
        from stentor.filters.conjunct import Conjunct
        from stentor.filters.normalize import product_of

        if any(c.residuals for c in self.conjuncts):
            raise FilterTooComplex(
                "a comparison of two fields of an element cannot be negated from outside, since it "
                "fails for elements that lack one of them, too; turn the comparison around: "
                "instead of not (any x in xs: x.a < x.b) write all x in xs: x.a >= x.b, and "
                "instead of not (all x in xs: x.a < x.b) write any x in xs: x.a >= x.b"
            )
        failures: list[list[Conjunct]] = []
        for conjunct in self.conjuncts:
            spend(8 * (1 + len(conjunct.constraints)))
            ways = [Conjunct.of({n: c.others()}) for n, c in conjunct.constraints.items()]
            failures.append([way for way in ways if way is not None])
        spend(8 * prod(map(len, failures)))  # so many choices of a failure from each
        return Records.of(product_of([Conjunct({})], *failures))

    def merge(self, other: Records) -> Records | None:
        """One set for both, exact and no more complicated than they are; or None."""
        union = self.union(other).settled()
        return union if union.size <= max(self.size, other.size) else None

    @property
    def size(self) -> int:
        """How many simple statements it takes."""
        return sum(
            [max(1, sum(p.size for p in c.constraints.values())) for c in self.conjuncts]
        ) + sum([len(c.residuals) for c in self.conjuncts])

    # -- the one form

    def settled(self) -> Records:
        """The same set in its plainest form, as far as that can be worked out."""
        if self.is_settled:
            return self
        from stentor.filters.canonical import decided
        from stentor.filters.diagram import diagram

        found = decided(list(self.conjuncts))
        key: Hashable = None
        if len(found) > 1 and not any(c.residuals for c in found):
            spend(DIAGRAM_STEPS)
            shape = diagram(found, DIAGRAM_STEPS)
            if shape is not None:
                single = shape.conjunct
                if single is None:
                    key = shape.key
                else:
                    found = (single,)
        made = Records(found)
        made.is_settled = True
        made._key = key
        return made

    @property
    def is_written(self) -> bool:
        """Nobody has worked out yet what it means, nor what a part of it means."""
        if self.is_settled:
            return False
        for conjunct in self.conjuncts:
            for constraint in conjunct.constraints.values():
                if not constraint.is_written:
                    return False
        return True

    def as_written(self) -> Records:
        """The same set as if nobody had."""
        return Records(tuple([conjunct.as_written() for conjunct in self.conjuncts]))

    # -- identity

    def _identity(self) -> Hashable:
        return frozenset(self.conjuncts) if self._key is None else self._key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Records):
            return NotImplemented
        return self is other or (
            hash(self) == hash(other) and self._identity() == other._identity()
        )

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash(self._identity())
        return self._hash

    def __repr__(self) -> str:
        return f"Records({sorted(map(repr, self.conjuncts))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Records, (self.conjuncts,)
