"""Filters as canonical, immutable values: the unit of the whole system.

A `Filter` is a union of conjuncts. It is parsed once; equal filters are equal values with equal
hashes, whatever words they were written in. All relations err on the safe side: `covers` may say no
where it cannot tell, `overlaps` may say yes, never the other way round, because a wrong covering or
a wrong disjointness would lose notifications.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from stentor.errors import FilterTooComplex, FilterTypeError
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import ANYTHING
from stentor.filters.describe import expression_of
from stentor.filters.diagram import as_conjunct, diagram
from stentor.filters.expression import Expression
from stentor.filters.facts import facts_of
from stentor.filters.language import parse
from stentor.filters.language.printer import format_expression
from stentor.filters.merging import exact_union, merge_conjuncts, perfect_merger
from stentor.filters.normalize import conjuncts_of
from stentor.model.notification import Notification

#: Steps that a covering test between unions may take before it answers "not covered".
COVER_STEPS: Final = 2_000


class Filter:
    """A content filter, written in the subscription language (see docs/language.md).

    >>> f = Filter("symbol = 'IBM' and price > 100")
    >>> f.matches({"symbol": "IBM", "price": 120.5})
    True
    >>> Filter("symbol = 'IBM'").covers(f)
    True
    >>> print(Filter("price > 1 and price <= 5 or price = 1"))
    price between 1 and 5
    """

    __slots__ = ("_key", "conjuncts", "names")

    conjuncts: tuple[Conjunct, ...]
    #: All attributes that the filter looks at.
    names: frozenset[str]

    def __init__(self, text: str = "") -> None:
        self._become(conjuncts_of(parse(text)))

    @classmethod
    def of_expression(cls, expression: Expression) -> Filter:
        """From an expression that another language was parsed to."""
        return cls.of_conjuncts(conjuncts_of(expression))

    @classmethod
    def of_conjuncts(cls, conjuncts: Iterable[Conjunct]) -> Filter:
        """The union of conjuncts."""
        self = cls.__new__(cls)
        self._become(list(conjuncts))
        return self

    @classmethod
    def from_selector(cls, selector: str) -> Filter:
        """From a JMS message selector (the SQL-92 subset that JMS defines).

        >>> print(Filter.from_selector("JMSType = 'car' AND weight > 2500"))
        JMSType = 'car' and weight > 2500
        """
        from stentor.filters.selectors import parse_selector

        return cls.of_expression(parse_selector(selector))

    @classmethod
    def from_pattern(cls, pattern: str | Mapping[str, Any]) -> Filter:
        """From an event pattern in the JSON form of Amazon EventBridge.

        >>> f = Filter.from_pattern({"detail": {"state": ["running", "stopped"]}})
        >>> f.matches({"detail": {"state": "running"}})
        True
        """
        from stentor.filters.event_patterns import parse_pattern

        return cls.of_expression(parse_pattern(pattern))

    def _become(self, conjuncts: list[Conjunct]) -> None:
        self._key: Hashable = None
        if len(conjuncts) > 1:
            conjuncts = self._simplified(conjuncts)
        self.conjuncts = tuple(conjuncts)
        if len(conjuncts) == 1:
            only = conjuncts[0]
            names = frozenset(only.constraints)
            self.names = (
                names if not only.residuals else names.union(*[r.names for r in only.residuals])
            )
        else:
            self.names = frozenset(
                name
                for c in conjuncts
                for name in (*c.constraints, *(n for r in c.residuals for n in r.names))
            )

    def _simplified(self, conjuncts: list[Conjunct]) -> list[Conjunct]:
        conjuncts = merge_conjuncts(conjuncts, exact_union)
        if len(conjuncts) > 1:
            shape = diagram(tuple(conjuncts))
            if shape is not None:
                single = as_conjunct(shape)
                if single is not None:
                    return [single]
                self._key = shape
        return conjuncts

    # -- matching

    def matches(self, notification: Notification | Mapping[str, Any]) -> bool:
        """Whether the notification, or a plain mapping of attributes, satisfies the filter."""
        facts = facts_of(notification, self.names)
        for conjunct in self.conjuncts:  # noqa: SIM110 (a generator would cost as much as a test)
            if conjunct.matches(facts):
                return True
        return False

    # -- relations

    @property
    def is_never(self) -> bool:
        """Nothing can match it: its constraints contradict each other."""
        return not self.conjuncts

    @property
    def is_always(self) -> bool:
        """Everything matches it: it is the empty filter."""
        return len(self.conjuncts) == 1 and self.conjuncts[0] == Conjunct({})

    def covers(self, other: Filter) -> bool:
        """Whether this filter matches everything that `other` matches."""
        _require_filters(other)
        mine = self.conjuncts
        open_questions = [c for c in other.conjuncts if not any(m.covers(c) for m in mine)]
        if not open_questions or len(mine) < 2:
            return not open_questions
        steps = [COVER_STEPS]
        try:
            return all(_covered(theirs, mine, steps) for theirs in open_questions)
        except FilterTooComplex:
            return False

    def overlaps(self, other: Filter) -> bool:
        """Whether some notification could match both."""
        _require_filters(other)
        return any(a.overlaps(b) for a in self.conjuncts for b in other.conjuncts)

    def merge(self, *others: Filter) -> Filter | None:
        """The perfect merger: one filter that matches exactly what any of them matches.

        None if there is no such filter that is as simple as they are.

        >>> print(Filter("x < 4").merge(Filter("x > 7")))
        x not between 4 and 7
        >>> Filter("x between 2 and 3").merge(Filter("x between 5 and 6")) is None
        True
        """
        _require_filters(*others)
        filters = (self, *others)
        merged = merge_conjuncts((c for f in filters for c in f.conjuncts), perfect_merger)
        if len(merged) > max(len(f.conjuncts) for f in filters):
            return None
        return Filter.of_conjuncts(merged)

    def is_union_of(self, filters: Iterable[Filter]) -> bool:
        """Whether the filter matches exactly what at least one of the others matches."""
        return self == Filter.of_conjuncts(c for f in filters for c in f.conjuncts)

    def __and__(self, other: Filter) -> Filter:
        joined = (a.conjoin(b) for a in self.conjuncts for b in other.conjuncts)
        return Filter.of_conjuncts(c for c in joined if c is not None)

    def __or__(self, other: Filter) -> Filter:
        return Filter.of_conjuncts((*self.conjuncts, *other.conjuncts))

    # -- identity and text

    @property
    def expression(self) -> Expression:
        """The filter in the nodes of the language."""
        return expression_of(self.conjuncts)

    @property
    def key(self) -> Hashable:
        """The canonical key: equal for equal filters, and for them only."""
        if self._key is None:
            conjuncts = self.conjuncts
            self._key = conjuncts[0] if len(conjuncts) == 1 else frozenset(conjuncts)
        return self._key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return self is other or self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return format_expression(self.expression)

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.conjuncts,)


def _require_filters(*others: object) -> None:
    for other in others:
        if not isinstance(other, Filter):
            raise FilterTypeError(f"expected a Filter, as in Filter({str(other)!r})")


def _restore(conjuncts: tuple[Conjunct, ...]) -> Filter:
    return Filter.of_conjuncts(conjuncts)


def merge_all(filters: Iterable[Filter]) -> list[Filter]:
    """Merge perfectly, to a fixpoint: the smallest set that the greedy order finds.

    >>> [str(f) for f in merge_all([Filter("x = 1"), Filter("y = 1"), Filter("x = 2")])]
    ['y = 1', 'x in (1, 2)']
    """
    kept = list(dict.fromkeys(filters))
    simple = [f.conjuncts[0] for f in kept if len(f.conjuncts) == 1]
    unions = [f for f in kept if len(f.conjuncts) > 1]
    merged = [Filter.of_conjuncts([c]) for c in merge_conjuncts(simple, perfect_merger)]
    result: list[Filter] = []
    for candidate in (*merged, *unions):
        if not any(other.covers(candidate) for other in result):
            result = [other for other in result if not candidate.covers(other)]
            result.append(candidate)
    return result


def _covered(box: Conjunct, covers: Sequence[Conjunct], steps: list[int]) -> bool:
    """Whether a conjunct lies inside a union although inside none of its members.

    Cut it along the first member it meets: what is inside that member is covered; each part
    outside must be covered by the rest. Out of steps, the answer is no, the safe one.
    """
    for i, cover in enumerate(covers):
        if not cover.residuals <= box.residuals or not cover.overlaps(box):
            continue
        steps[0] -= 1
        if steps[0] < 0:
            return False
        inside = box
        for name, constraint in cover.constraints.items():
            mine = inside.constraints.get(name, ANYTHING)
            outside = mine.intersection(constraint.others())
            if not outside.is_none and not _covered(
                inside.replacing(name, outside), covers[i + 1 :], steps
            ):
                return False
            within = mine.intersection(constraint)
            if within.is_none:
                return True  # nothing of it is inside, and all that is outside was covered
            inside = inside.replacing(name, within)
        return True
    return False
