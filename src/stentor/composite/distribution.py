"""Where the parts of a pattern are detected: decomposition, reuse and placement (06/A3).

These are plans, made by pure functions of what is known about a network. A *distribution policy*
has three dimensions (R-06.29): into how many detectors a pattern is taken apart, which detectors
that are there already are used, and near whom new ones are put. Table 7.1 names five of them.

A part of a pattern is a pattern itself, and what is left has its composite events in place of the
part. What a part cannot be: the two sides of a timer, which must be in one place (R-06.19); and
anything below a clause that speaks of single events (`within`, `where`, `distinct by`, counts), as
the composite events of a part do not show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from stentor.composite import expressions as e
from stentor.composite.pattern import MAX_LEVELS, Pattern
from stentor.errors import UnknownStrategy
from stentor.filters import Filter

Decomposition: TypeAlias = Literal["none", "for_reuse", "max"]
Reuse: TypeAlias = Literal["none", "at_least_2", "local", "max"]
Locality: TypeAlias = Literal["none", "publishers", "subscribers"]

_SPLIT: Final = (e.Sequence, e.Concatenation, e.Alternation, e.Parallel)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution policy."""

    decomposition: Decomposition
    reuse: Reuse
    locality: Locality
    #: How many independent detectors there shall be.
    copies: int = 1


#: Table 7.1 (R-06.30).
DISTRIBUTIONS: Final[Mapping[str, Distribution]] = {
    "minimum_latency": Distribution("none", "local", "subscribers"),
    "minimum_bandwidth": Distribution("for_reuse", "max", "publishers"),
    "minimum_impact": Distribution("for_reuse", "max", "none"),
    "minimum_load": Distribution("max", "max", "none"),
    "maximum_reliability": Distribution("for_reuse", "at_least_2", "none", copies=2),
}


@dataclass(frozen=True)
class Situation:
    """What is known of a network when a pattern is placed."""

    #: The load of each broker, in any unit.
    loads: Mapping[str, float]
    #: How many links lie between two brokers.
    hops: Callable[[str, str], int]
    #: Events in a second that a filter matches, by broker; a filter is known by its text.
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: Detectors that are there: by the type of what they find, the brokers.
    detectors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: So many links away is still local.
    near: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A detector, and where it is or shall be."""

    pattern: Pattern
    broker: str
    is_new: bool


def place(
    pattern: Pattern, at: str, policy: str | Distribution, known: Situation
) -> list[Placement]:
    """The detectors by which a subscriber at a broker gets a pattern; parts come first.

    >>> p = Pattern("A ; B", events={"A": "x = 1", "B": "x = 2"})
    >>> there = Situation({"b1": 0.0, "b2": 0.0}, lambda a, b: int(a != b))
    >>> [(str(each.pattern), each.broker) for each in place(p, "b1", "minimum_latency", there)]
    [('A ; B', 'b1')]
    """
    if isinstance(policy, str):
        if policy not in DISTRIBUTIONS:
            raise UnknownStrategy(
                f"there is no distribution policy {policy!r}; choose one of "
                f"{', '.join(DISTRIBUTIONS)}"
            )
        policy = DISTRIBUTIONS[policy]
    plan = _Plan(at, policy, known)
    plan.place(pattern)
    return plan.found


class _Plan:
    def __init__(self, at: str, policy: Distribution, known: Situation) -> None:
        self._at = at
        self._policy = policy
        self._known = known
        self._loads = dict(known.loads)
        #: Where each pattern of this plan is detected.
        self._placed: dict[str, tuple[str, ...]] = {}
        self.found: list[Placement] = []

    def place(self, pattern: Pattern) -> tuple[str, ...]:
        """See to it that the pattern is detected; at which brokers it is."""
        if pattern.type in self._placed:
            return self._placed[pattern.type]
        used = self._used(pattern)
        if used:
            self.found += [Placement(pattern, broker, is_new=False) for broker in used]
            self._placed[pattern.type] = used
            return used
        taken_apart = self._taken_apart(pattern)
        for meaning in taken_apart.events.values():
            if isinstance(meaning, Pattern):
                self.place(meaning)
        chosen: list[str] = []
        while len(chosen) < min(self._policy.copies, len(self._loads)):
            broker = self._site(taken_apart, chosen)
            self._loads[broker] += 1.0
            chosen.append(broker)
            self.found.append(Placement(taken_apart, broker, is_new=True))
        self._placed[pattern.type] = self._placed[taken_apart.type] = tuple(chosen)
        return tuple(chosen)

    def _used(self, pattern: Pattern) -> tuple[str, ...]:
        """Detectors that are there and are used, nearest first."""
        hops = self._known.hops
        there = sorted(self._known.detectors.get(pattern.type, ()), key=lambda b: hops(self._at, b))
        match self._policy.reuse:
            case "max":
                return tuple(there[:1])
            case "local":
                return tuple(b for b in there[:1] if hops(self._at, b) <= self._known.near)
            case "at_least_2":
                return tuple(there[:2]) if len(there) >= 2 else ()
        return ()

    def _taken_apart(self, pattern: Pattern) -> Pattern:
        match self._policy.decomposition:
            case "max":
                return decompose(pattern)
            case "for_reuse":
                return decompose(pattern, lambda part: bool(self._used(part)))
        return pattern

    def _site(self, pattern: Pattern, but: list[str]) -> str:
        free = [broker for broker in self._loads if broker not in but]
        match self._policy.locality:
            case "subscribers" if self._at in free:
                return self._at
            case "publishers":
                return min(free, key=lambda b: (self._traffic(pattern, b), self._loads[b], b))
        return min(free, key=lambda b: (self._loads[b], b))

    def _traffic(self, pattern: Pattern, broker: str) -> float:
        """Rate times links, from all sources of the pattern."""
        total = 0.0
        for meaning in pattern.events.values():
            if isinstance(meaning, Pattern):
                near = min(self._known.hops(b, broker) for b in self._placed[meaning.type])
                total += 0.0 if not near else near * _FEW
                continue
            for source, rate in self._known.rates.get(str(meaning), {}).items():
                total += rate * self._known.hops(source, broker)
        return total


#: Composite events in a second, where nothing is known: they are much rarer than events.
_FEW: Final = 0.01


def decompose(pattern: Pattern, wanted: Callable[[Pattern], bool] | None = None) -> Pattern:
    """The same pattern over the composite events of its parts; of all, or of those `wanted`.

    >>> p = Pattern("(B ; P) | M", events={"B": "x = 1", "P": "x = 2", "M": "x = 3"})
    >>> outer = decompose(p)
    >>> str(outer), str(outer.events["C1"])
    ('C1 | M', 'B ; P')
    """
    if pattern.level + 1 >= MAX_LEVELS:
        return pattern
    events = dict(pattern.events)
    numbers = (n for n in range(1, 1_000) if f"C{n}" not in pattern.events)

    def part_of(node: e.Expression) -> Pattern:
        return Pattern(node, _named(node, pattern), partition=pattern.partition)

    def taken(node: e.Expression, *, is_whole: bool) -> e.Expression:
        if not isinstance(node, _SPLIT):
            return node
        if not is_whole:
            part = part_of(node)
            if wanted is None or wanted(part):
                name = next(
                    (n for n, meaning in events.items() if meaning == part), f"C{next(numbers)}"
                )
                events[name] = part if wanted is not None else decompose(part)
                return e.Atom((name,), (name,))
        return replace(
            node,
            left=taken(node.left, is_whole=False),
            right=taken(node.right, is_whole=False),
        )

    expression = taken(pattern.expression, is_whole=True)
    if expression == pattern.expression:
        return pattern
    return Pattern(expression, events, partition=pattern.partition, name=pattern.name)


def parts(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern and all that it is defined by, each once, parts first."""
    seen: dict[str, Pattern] = {}

    def walk(each: Pattern) -> None:
        for meaning in each.events.values():
            if isinstance(meaning, Pattern):
                walk(meaning)
        seen.setdefault(each.type, each)

    walk(pattern)
    yield from seen.values()


def _named(node: e.Expression, pattern: Pattern) -> dict[str, str | Filter | Pattern]:
    """What the names of a part stand for."""
    names = {
        name
        for each in e.walk(node)
        if isinstance(each, e.Atom)
        for name in (*each.labels, *each.domain)
    }
    return {name: meaning for name, meaning in pattern.events.items() if name in names}
