"""SIENA's way to distribute sequences: factoring and delegation (08/A8).

A broker that is asked for f1·f2·…·fk looks up which of its peers, or it itself, has something that
overlaps each filter: the *factors*. A run of filters whose factors come from one peer alone is
delegated to that peer as a whole; the rest is subscribed to at every provider, and the broker
monitors the groups and the single filters.

Delegation changes results (08/T7): whoever delegates a·b does not see an `a` that was not followed
by `b`, which would have interrupted the sequence. So `strict` delegates nothing but whole patterns,
and brokers do no more than that (`distribution`).

[reading] Rule 4 has no factor of a group anywhere else, save in identical groups, and a·b·a cannot
be delegated though nothing lies outside of it. So within a group, a factor does not come again
after another one; it may come several times in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stentor.filters import Filter

#: For each filter, all that is available and overlaps it.
Factors = tuple[frozenset[Filter], ...]


@dataclass(frozen=True, slots=True)
class Factoring:
    """What becomes of a sequence at one broker."""

    factors: Factors
    #: Groups that are delegated: from the first filter to behind the last one, and to whom.
    groups: tuple[tuple[int, int, str], ...]
    #: Single filters that are subscribed to, by their places, and at whom.
    singles: Mapping[int, frozenset[str]]

    @property
    def is_pending(self) -> bool:
        """Whether something of it is offered by nobody yet."""
        return not all(self.factors)

    def monitor(self, filters: Sequence[Filter]) -> list[tuple[Filter, ...]]:
        """What the broker itself looks for: groups and single filters, in their order."""
        ends = {first: end for first, end, _ in self.groups}
        found, place = [], 0
        while place < len(filters):
            end = ends.get(place, place + 1)
            found.append(tuple(filters[place:end]))
            place = end
        return found


def factor(
    filters: Sequence[Filter],
    available: Mapping[Filter, frozenset[str]],
    own: str,
    *,
    strict: bool = False,
) -> Factoring:
    """Take a sequence apart, by who provides what; any change of that has to be followed by it.

    >>> a, b = Filter("x = 1"), Filter("x = 2")
    >>> factor([a, b], {a: frozenset({"y"}), b: frozenset({"y"})}, "x").groups
    ((0, 2, 'y'),)
    """
    factors = tuple(frozenset(a for a in available if a.overlaps(f)) for f in filters)
    providers = [frozenset().union(*(available[a] for a in each)) for each in factors]
    if not all(factors):
        return Factoring(factors, (), {})
    candidates: list[tuple[int, int, str]] = []
    place = 0
    while place < len(filters):
        end = _end_of_group(place, factors, providers, own)
        if end - place > 1:
            candidates.append((place, end, min(providers[place])))
        place = max(end, place + 1)
    groups = tuple(
        group
        for group in candidates
        if _is_apart(group, candidates, factors)
        and (not strict or group[1] - group[0] == len(filters))
    )
    inside = {place for first, end, _ in groups for place in range(first, end)}
    singles = {i: providers[i] for i in range(len(filters)) if i not in inside}
    return Factoring(factors, groups, singles)


def _end_of_group(
    first: int, factors: Factors, providers: Sequence[frozenset[str]], own: str
) -> int:
    """Behind the last filter that can be in one group with the first (rules 1 to 3)."""
    if len(providers[first]) != 1 or own in providers[first]:
        return first
    seen: set[Filter] = set()
    end = first
    while end < len(factors) and providers[end] == providers[first]:
        again = factors[end] & seen
        if again and (end == first or factors[end] != factors[end - 1]):
            break
        seen |= factors[end]
        end += 1
    return end


def _is_apart(
    group: tuple[int, int, str], groups: Sequence[tuple[int, int, str]], factors: Factors
) -> bool:
    """Whether its factors are nowhere else, save in groups that are identical to it (rule 4)."""
    first, end, _ = group
    own = factors[first:end]
    allowed = {place for a, b, _ in groups if factors[a:b] == own for place in range(a, b)}
    union = frozenset().union(*own)
    return all(place in allowed or not (factors[place] & union) for place in range(len(factors)))
