"""Where the parts of a pattern are detected: decomposition, reuse and placement (06/A3).

These are plans, made by pure functions of what is known about a network; brokers carry them out
(`stentor.node.parts.placements`). A *distribution policy* has three dimensions (R-06.29): into how
many detectors a pattern is taken apart, which detectors that are there already are used, and near
whom new ones are put. Table 7.1 names five of them.

A part of a pattern is a pattern itself, and what is left has its composite events in place of the
part. `joined` puts the events of the parts back, so that nobody can tell from what is found how it
was detected. A detector of a part sees nothing of the rest: it takes events that the whole would
have given to somebody else, and does not wait until the rest is ready for it. So only that is taken
apart where this makes no difference (decisions: 06/A3):

- no event that the part looks at is one for the rest, and no composite event is one for either;
- the part is a side of `|`, or the left side of `;`: it does not wait for anything;
- of `;`, its composite events come in the order in which they were begun, as those of single events
  in a row do. Then the oldest run is the same in the whole and in the rest.

What has to be in one place therefore stays there: the two sides of a timer (R-06.19), those of
`||`, where an event that one cannot take ends both, and anything below a clause that speaks of
single events (`within`, `where`, `distinct by`, counts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from stentor.composite import expressions as e
from stentor.composite.events import TYPE, CompositeEvent, SubEvent, named_events, occurrence
from stentor.composite.factoring import factor
from stentor.composite.pattern import MAX_LEVELS, Pattern
from stentor.errors import UnknownStrategy
from stentor.filters import Filter
from stentor.filters.language import format_name
from stentor.model import NotificationId

Decomposition: TypeAlias = Literal["none", "for_reuse", "max"]
Reuse: TypeAlias = Literal["none", "at_least_2", "local", "max"]
Locality: TypeAlias = Literal["none", "publishers", "subscribers", "provider"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution policy."""

    decomposition: Decomposition
    reuse: Reuse
    locality: Locality
    #: How many independent detectors there shall be.
    copies: int = 1


#: Table 7.1 (R-06.30), and SIENA's delegation (08/A8).
DISTRIBUTIONS: Final[Mapping[str, Distribution]] = {
    "minimum_latency": Distribution("none", "local", "subscribers"),
    "minimum_bandwidth": Distribution("for_reuse", "max", "publishers"),
    "minimum_impact": Distribution("for_reuse", "max", "none"),
    "minimum_load": Distribution("max", "max", "none"),
    "maximum_reliability": Distribution("for_reuse", "at_least_2", "none", copies=2),
    "delegation": Distribution("none", "none", "provider"),
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
    #: Where somebody offers what a filter matches.
    offers: Mapping[Filter, frozenset[str]] = field(default_factory=dict)
    #: So many links away is still local.
    near: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A detector, and where it is or shall be."""

    #: The pattern over what its parts find, and the pattern as it was.
    pattern: Pattern
    broker: str
    is_new: bool
    whole: Pattern
    #: Those of its parts that are detected by themselves.
    parts: tuple[Pattern, ...] = ()


def place(
    pattern: Pattern, at: str, policy: str | Distribution, known: Situation
) -> list[Placement]:
    """The detectors by which a subscriber at a broker gets a pattern; parts come first.

    >>> p = Pattern("A ; B", events={"A": "x = 1", "B": "x = 2"})
    >>> there = Situation({"b1": 0.0, "b2": 0.0}, lambda a, b: int(a != b))
    >>> [(str(each.pattern), each.broker) for each in place(p, "b1", "minimum_latency", there)]
    [('A ; B', 'b1')]
    """
    plan = _Plan(at, distribution(policy) if isinstance(policy, str) else policy, known)
    plan.place(pattern)
    return plan.found


def replace_lost(
    lost: Sequence[Placement],
    kept: Sequence[Placement],
    at: str,
    policy: str | Distribution,
    known: Situation,
) -> list[Placement]:
    """Other places for detectors that are lost; none for a copy where every broker has one."""
    plan = _Plan(at, distribution(policy) if isinstance(policy, str) else policy, known)
    where: dict[str, list[str]] = {}
    for each in kept:
        where.setdefault(each.whole.type, []).append(each.broker)
    found: list[Placement] = []
    for each in lost:
        others = where.setdefault(each.whole.type, [])
        if any(broker not in others for broker in known.loads):
            site = plan.site(each.pattern, others, where)
            others.append(site)
            found.append(replace(each, broker=site, is_new=True))
    return found


def distribution(name: str) -> Distribution:
    """The policy of that name."""
    if name not in DISTRIBUTIONS:
        raise UnknownStrategy(
            f"there is no distribution policy {name!r}; choose one of {', '.join(DISTRIBUTIONS)}"
        )
    return DISTRIBUTIONS[name]


class _Plan:
    def __init__(self, at: str, policy: Distribution, known: Situation) -> None:
        self._at = at
        self._policy = policy
        self._known = known
        self._loads = dict(known.loads)
        #: Where each pattern of this plan is detected.
        self._placed: dict[str, Collection[str]] = {}
        self.found: list[Placement] = []

    def place(self, pattern: Pattern) -> None:
        """See to it that the pattern is detected."""
        if pattern.type in self._placed:
            return
        used = self._used(pattern)
        if used:
            self.found += [Placement(pattern, b, is_new=False, whole=pattern) for b in used]
            self._placed[pattern.type] = used
            return
        taken_apart = self._taken_apart(pattern)
        parts = tuple(_standing_alone(taken_apart))
        for part in parts:
            self.place(part)
        chosen: list[str] = []
        while len(chosen) < min(self._policy.copies, len(self._loads)):
            broker = self.site(taken_apart, chosen, self._placed)
            chosen.append(broker)
            self.found.append(Placement(taken_apart, broker, True, pattern, parts))
        self._placed[pattern.type] = chosen

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

    def site(self, pattern: Pattern, but: list[str], placed: Mapping[str, Collection[str]]) -> str:
        """Where to put a detector; it counts there from now on."""
        free = [broker for broker in self._loads if broker not in but]

        def cost(broker: str) -> tuple[float, float, bool, str]:
            near = self._policy.locality == "publishers"
            traffic = self._traffic(pattern, broker, placed) if near else 0.0
            return traffic, self._loads[broker], broker != self._at, broker

        wanted = None
        match self._policy.locality:
            case "subscribers":
                wanted = self._at
            case "provider":
                wanted = self._provider(pattern)
        found = wanted if wanted in free else min(free, key=cost)
        self._loads[found] += 1.0
        return found

    def _provider(self, pattern: Pattern) -> str:
        """The broker to which all of a sequence can be delegated; else that of the subscriber."""
        if not isinstance(pattern.expression, e.Window):
            return self._at
        filters = [pattern.filter_of(label) for label in pattern.expression.labels]
        known = self._known.offers
        available = {each: known[each] for each in filters if known.get(each)}
        groups = factor(filters, available, self._at, strict=True).groups
        return groups[0][2] if groups else self._at

    def _traffic(
        self, pattern: Pattern, broker: str, placed: Mapping[str, Collection[str]]
    ) -> float:
        """Rate times links, from all sources of the pattern."""
        total = 0.0
        for meaning in pattern.events.values():
            if isinstance(meaning, Pattern):
                total += _FEW * min(
                    (self._known.hops(b, broker) for b in placed.get(meaning.type, ())), default=0
                )
                continue
            for source, rate in self._known.rates.get(str(meaning), {}).items():
                total += rate * self._known.hops(source, broker)
        return total


#: Names, and events in its expression, of a pattern that is taken apart: each name is compared with
#: each, and whoever does so does nothing else meanwhile.
MOST_NAMES: Final = 16
MOST_ATOMS: Final = 64

#: Composite events in a second, where nothing is known: they are much rarer than events.
_FEW: Final = 0.01


def decompose(pattern: Pattern, wanted: Callable[[Pattern], bool] | None = None) -> Pattern:
    """The same pattern over the composite events of its parts; of all, or of those `wanted`.

    Parts are not taken apart further.

    >>> p = Pattern("(B ; P) | M", events={"B": "x = 1", "P": "x = 2", "M": "x = 3"})
    >>> outer = decompose(p)
    >>> str(outer), str(outer.events["C1"])
    ('C1 | M', 'B ; P')
    """
    if pattern.level + 1 >= MAX_LEVELS or _stays_whole(pattern):
        return pattern
    events = dict(pattern.events)
    numbers = (n for n in range(1, 1_000) if f"C{n}" not in pattern.events)

    def is_apart(node: e.Expression) -> bool:
        """Whether no event is one for it and for the rest as well."""
        own, rest = _uses(node), _uses(pattern.expression) - _uses(node)
        return _are_apart(_named(own, pattern).values(), _named(rest, pattern).values())

    def side(node: e.Expression) -> e.Expression:
        if isinstance(node, e.Atom) or _may_be_empty(node):
            return node
        part = Pattern(node, _named(_uses(node), pattern), partition=pattern.partition)
        if is_apart(node) and (wanted is None or wanted(part)):
            name = f"C{next(numbers)}"
            events[name] = part
            return e.Atom((name,), (name,))
        return taken(node)

    def taken(node: e.Expression) -> e.Expression:
        match node:
            case e.Alternation(left, right) if is_apart(left) and is_apart(right):
                return e.Alternation(side(left), side(right))
            case e.Sequence(left, right):
                return e.Sequence(side(left) if _is_row(left) else first(left), right)
        return node

    def first(node: e.Expression) -> e.Expression:
        return taken(node) if isinstance(node, e.Sequence) else node

    expression = taken(pattern.expression)
    if expression == pattern.expression:
        return pattern
    return Pattern(expression, events, partition=pattern.partition, name=pattern.name)


def possible_parts(pattern: Pattern) -> list[Pattern]:
    """All that `decompose` may take out of a pattern, and out of what it has taken out."""
    found: dict[Pattern, None] = {}

    def note(part: Pattern) -> bool:
        found[part] = None
        return False

    decompose(pattern, note)
    for meaning in _standing_alone(pattern):
        found[meaning] = None
        found |= dict.fromkeys(possible_parts(meaning))
    return list(found)


def composed(whole: Pattern, found: Mapping[Pattern, Filter]) -> tuple[Pattern, frozenset[str]]:
    """The pattern over what these find of its parts; and the names that stand for that there."""
    outer = decompose(whole, found.__contains__)
    names = frozenset(n for n, m in outer.events.items() if isinstance(m, Pattern) and m in found)
    if not names:
        return whole, names
    events = {
        name: found[meaning] if isinstance(meaning, Pattern) and name in names else meaning
        for name, meaning in outer.events.items()
    }
    return outer.replace(events=events), names


def joined(whole: Pattern, found: CompositeEvent, names: Collection[str]) -> CompositeEvent:
    """What the whole would have found, with the events of its parts in place of these.

    The names are those that stand for composite events in the pattern that has found it. One that
    comes without its events stays as it is.
    """
    events: list[SubEvent] = []
    for each in found.events:
        if not set(each.names) & set(names):
            events.append(each)
            continue
        below = [] if each.names[0] in whole.events else named_events(each.event)
        events += [SubEvent(n, occurrence(event)) for n, event in below]
        if not below:  # under the id that whoever detects it gives it
            event, id = each.event, each.event.id
            if id is not None and each.names[0] in whole.events:
                own = NotificationId(event.type or "", id.epoch, id.sequence)
                event = event.replace(id=own)
            events.append(SubEvent(each.names, occurrence(event)))
    events.sort(key=lambda each: each.occurrence.order)
    return CompositeEvent(whole, found.interval, tuple(events), found.key)


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


def _uses(node: e.Expression) -> Counter[str]:
    """How often it speaks of each name."""
    atoms = (each for each in e.walk(node) if isinstance(each, e.Atom))
    return Counter(name for each in atoms for name in {*each.labels, *each.domain})


def _named(names: Collection[str], pattern: Pattern) -> dict[str, Filter | Pattern]:
    """What the names of a part stand for."""
    return {name: meaning for name, meaning in pattern.events.items() if name in names}


def _is_row(node: e.Expression) -> bool:
    """Whether it is one event after the other, none of which makes a run fail."""
    match node:
        case e.Atom(labels, domain, negated):
            return labels == domain and not negated
        case e.Sequence(left, right) | e.Concatenation(left, right):
            return _is_row(left) and _is_row(right)
    return False


def _may_be_empty(node: e.Expression) -> bool:
    """Whether it needs no event."""
    match node:
        case e.Atom() | e.Window():
            return False
        case e.Iteration(body, least):
            return least == 0 or _may_be_empty(body)
        case e.Alternation(left, right):
            return _may_be_empty(left) or _may_be_empty(right)
    return all(map(_may_be_empty, e.parts(node)))


def _leaves(meanings: Iterable[Filter | Pattern]) -> Iterator[Filter]:
    """All filters that these stand for."""
    for meaning in meanings:
        if isinstance(meaning, Pattern):
            yield from _leaves(meaning.events.values())
        else:
            yield meaning


def _are_apart(some: Iterable[Filter | Pattern], rest: Iterable[Filter | Pattern]) -> bool:
    """Whether no event is one for both."""
    others = list(_leaves(rest))
    return not any(_overlap(one, other) for one in _leaves(some) for other in others)


@lru_cache(maxsize=4_096)
def _overlap(one: Filter, other: Filter) -> bool:
    return one.overlaps(other)


def _standing_alone(pattern: Pattern) -> list[Pattern]:
    """The patterns that it is defined by which can be detected by themselves, each once."""
    if _stays_whole(pattern):
        return []
    found: list[Pattern] = []
    for name, meaning in pattern.events.items():
        rest = (other for n, other in pattern.events.items() if n != name)
        if isinstance(meaning, Pattern) and _are_apart([meaning], rest):
            found.append(meaning)
    return found


def _stays_whole(pattern: Pattern) -> bool:
    """Whether it is too large to be taken apart, or would see that it is.

    That is so if a filter may match composite events that are no more than detections of parts.
    These have the attributes of their partition, and others whose names hold a dot. It is so as
    well if it parts events by what is no attribute: a part has a producer and a type of its own.
    """
    if any(name.startswith("_") for name in pattern.partition):
        return True
    if len(pattern.events) > MOST_NAMES or _uses(pattern.expression).total() > MOST_ATOMS:
        return True
    shown = {name for each in parts(pattern) for name in each.partition}
    for leaf in _leaves(pattern.events.values()):
        hidden = {n for n in leaf.names if "." not in n and n[:1] != "_"} - shown
        missing = [f"not exists {format_name(name)}" for name in sorted(hidden)]
        if not (leaf & Filter(" and ".join([f"isa {TYPE}", *missing]))).is_never:
            return True
    return False
