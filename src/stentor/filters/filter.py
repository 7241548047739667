"""Filters as canonical, immutable values: the unit of the whole system.

A `Filter` is a union of conjuncts. It is parsed once; equal filters are equal values with equal
hashes, whatever words they were written in. All relations err on the safe side: `covers` may say no
where it cannot tell, `overlaps` may say yes, never the other way round, because a wrong covering or
a wrong disjointness would lose notifications.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from html import escape
from typing import Any, Final

from stentor.errors import FilterTooComplex, FilterTypeError
from stentor.filters.canonical import canonical, is_plain, weight
from stentor.filters.conjunct import Conjunct
from stentor.filters.describe import expression_of
from stentor.filters.effort import TooCostly, effort, spend, within
from stentor.filters.expression import Expression
from stentor.filters.facts import facts_of
from stentor.filters.language import parse, reading_steps
from stentor.filters.language.printer import format_expression
from stentor.filters.merging import merge_conjuncts, perfect_merger
from stentor.filters.normalize import conjuncts_of, plain_conjunct, product_of
from stentor.filters.unions import includes, intersects
from stentor.model.notification import Notification
from stentor.notation.completion import offering

#: Steps that a relation between two filters may take before the cautious answer is given.
RELATION_STEPS: Final = 24_000
#: The longest text that is accepted from others, in characters, and the steps that reading it and
#: multiplying it out may take.
RECEIVED_LENGTH: Final = 1 << 16
RECEIVED_STEPS: Final = 32_000
#: The longest text that a filter keeps of itself, in characters. Brokers tell it several neighbors,
#: and once more when it goes.
KEPT_TEXT: Final = 1_000


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

    __slots__ = ("_hash", "_key", "_text", "conjuncts", "is_light", "names")

    conjuncts: tuple[Conjunct, ...]
    #: All attributes that the filter looks at.
    names: frozenset[str]
    #: One conjunct at most, of plain sets: relations take no time worth a budget.
    is_light: bool
    _hash: int
    _text: str

    def __init__(self, text: str = "") -> None:
        self._express(parse(text))

    @classmethod
    def received(cls, text: str, read: Callable[[str], Filter] | None = None) -> Filter:
        """From a text that somebody else sent, within what one request may cost a broker.

        It is in the subscription language, or in the one that `read` reads: `from_selector` or
        `from_pattern`.
        """
        if len(text) > RECEIVED_LENGTH:
            raise FilterTooComplex(
                f"the filter has {len(text):,} characters, and a broker takes at most "
                f"{RECEIVED_LENGTH:,}; write it as several subscriptions"
            )
        try:
            with within(RECEIVED_STEPS):
                filter = (read or cls)(text)
                cost = RECEIVED_STEPS - effort.left
            if not filter.is_light:
                filter._check_printed(text, cost)
            return filter
        except TooCostly:
            raise FilterTooComplex(
                "the filter takes more work to read than a broker does for one; write it as "
                "several subscriptions"
            ) from None

    def _check_printed(self, text: str, cost: int) -> None:
        """`TooCostly` if the printed text takes more to read than a broker does for one filter.

        Neighbors will read it, and so will the broker itself when it starts again. What was read
        with little work and has not grown has a short text, and need not be tried; nor need what
        was just read from that very text.
        """
        size = self.weight
        if cost + size <= RECEIVED_STEPS // 16:
            return
        if size > RECEIVED_STEPS:
            raise TooCostly
        with within(RECEIVED_STEPS):
            expression = self.expression
        printed = format_expression(expression)
        if printed != text:
            with within(RECEIVED_STEPS):
                spend(reading_steps(printed))
                conjuncts_of(expression)

    @classmethod
    def of_expression(cls, expression: Expression) -> Filter:
        """From an expression that another language was parsed to."""
        self = cls.__new__(cls)
        self._express(expression)
        return self

    @classmethod
    def of_conjuncts(cls, conjuncts: Iterable[Conjunct]) -> Filter:
        """The union of conjuncts."""
        self = cls.__new__(cls)
        self._become(*canonical(conjuncts))
        found = self.conjuncts
        self.is_light = not found or (len(found) == 1 and _is_light(found[0]))
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

    @classmethod
    def from_cesql(cls, expression: str) -> Filter:
        """From an expression in CloudEvents SQL.

        >>> print(Filter.from_cesql("type LIKE '%.error' AND hop < 100"))
        hop < 100 and type suffix '.error'
        """
        from stentor.filters.cesql import parse_cesql

        return cls.of_expression(parse_cesql(expression))

    def _express(self, expression: Expression) -> None:
        plain = plain_conjunct(expression)
        if plain is not None:
            self._become((plain,) if isinstance(plain, Conjunct) else (), None)
            self.is_light = True
            return
        self._become(*canonical(conjuncts_of(expression)))

    def _become(self, conjuncts: tuple[Conjunct, ...], key: Hashable) -> None:
        self._key: Hashable = key
        self.is_light = False
        self.conjuncts = conjuncts
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
        found = self.conjuncts
        return len(found) == 1 and not found[0].constraints and not found[0].residuals

    def covers(self, other: Filter) -> bool:
        """Whether this filter matches everything that `other` matches."""
        _require_filters(other)
        if self.is_light and other.is_light:
            mine, theirs = self.conjuncts, other.conjuncts
            return not theirs or (bool(mine) and mine[0].covers(theirs[0]))
        try:
            with within(RELATION_STEPS):
                return includes(self.conjuncts, other.conjuncts)
        except (TooCostly, FilterTooComplex):
            return False

    def overlaps(self, other: Filter) -> bool:
        """Whether some notification could match both."""
        _require_filters(other)
        if self.is_light and other.is_light:
            return any(a.overlaps(b) for a in self.conjuncts for b in other.conjuncts)
        try:
            with within(RELATION_STEPS):
                return intersects(self.conjuncts, other.conjuncts)
        except (TooCostly, FilterTooComplex):
            return True

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
        try:
            with within(RELATION_STEPS):
                merged = merge_conjuncts((c for f in filters for c in f.conjuncts), perfect_merger)
        except (TooCostly, FilterTooComplex):
            return None
        if len(merged) > max(len(f.conjuncts) for f in filters):
            return None
        return Filter.of_conjuncts(merged)

    def is_union_of(self, filters: Iterable[Filter]) -> bool:
        """Whether the filter matches exactly what at least one of the others matches."""
        return self == Filter.of_conjuncts(c for f in filters for c in f.conjuncts)

    def __and__(self, other: Filter) -> Filter:
        return Filter.of_conjuncts(product_of(self.conjuncts, other.conjuncts))

    def __or__(self, other: Filter) -> Filter:
        return Filter.of_conjuncts((*self.conjuncts, *other.conjuncts))

    # -- identity and text

    @property
    def weight(self) -> int:
        """About how many steps it takes to look at all of it."""
        return sum(map(weight, self.conjuncts))

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
        try:
            return self._hash
        except AttributeError:  # it was never asked before
            self._hash = hash(self.key)
            return self._hash

    __dir__ = offering(
        "covers",
        "from_cesql",
        "from_pattern",
        "from_selector",
        "is_always",
        "is_never",
        "is_union_of",
        "matches",
        "merge",
        "names",
        "overlaps",
    )

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:  # it was never asked before, or is too long to be kept
            text = format_expression(self.expression)
            if len(text) <= KEPT_TEXT:
                self._text = text
            return text

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def _repr_html_(self) -> str:
        """For notebooks: the alternatives one below the other.

        >>> Filter("price > 100 or symbol = 'IBM'")._repr_html_()
        '<code>price &gt; 100</code><br>or <code>symbol = &#x27;IBM&#x27;</code>'
        """
        if self.is_always:
            return "<em>every notification</em>"
        if not self.conjuncts:
            return "<em>no notification</em>"
        texts = sorted(str(Filter.of_conjuncts([conjunct])) for conjunct in self.conjuncts)
        return "<br>or ".join(f"<code>{escape(text)}</code>" for text in texts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.conjuncts,)


class Questions:
    """Relations between many filters, asked within one budget.

    A search among thousands must not take thousands of times as long as one question may take.
    When the budget is used up, answers are cautious at once.

    >>> questions = Questions()
    >>> questions.covers(Filter("x > 1"), Filter("x > 2"))
    True
    """

    __slots__ = ("_left",)

    def __init__(self, steps: int = RELATION_STEPS) -> None:
        self._left = steps

    def covers(self, broader: Filter, narrower: Filter) -> bool:
        """Whether the first matches everything that the second matches."""
        if broader.is_light and narrower.is_light:
            return broader.covers(narrower)
        return self._ask(Filter.covers, broader, narrower)

    def overlaps(self, one: Filter, other: Filter) -> bool:
        """Whether some notification could match both."""
        if one.is_light and other.is_light:
            return one.overlaps(other)
        return self._ask(Filter.overlaps, one, other)

    def _ask(self, relation: Callable[[Filter, Filter], bool], one: Filter, other: Filter) -> bool:
        outer, effort.left = effort.left, self._left
        try:
            return relation(one, other)
        finally:
            self._left, effort.left = effort.left, outer


def _is_light(conjunct: Conjunct) -> bool:
    return not conjunct.residuals and is_plain(conjunct)


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
    try:
        together = merge_conjuncts(simple, perfect_merger)
    except FilterTooComplex:
        together = simple
    merged = [Filter.of_conjuncts([c]) for c in together]
    result: list[Filter] = []
    for candidate in (*merged, *unions):
        if not any(other.covers(candidate) for other in result):
            result = [other for other in result if not candidate.covers(other)]
            result.append(candidate)
    return result
