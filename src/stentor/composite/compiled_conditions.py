"""Conditions compiled for runs: what they say of a chain, the events that a run has consumed.

`conditions` says what they mean, and the reference detector evaluates them as they stand there. A
run asks the same of each event that it is offered, and there may be many runs. So a condition is
made a function once. It finds the newest event of each name that the condition speaks of by walking
back along the chain, and the terms take their values from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from stentor.composite import conditions as c
from stentor.filters.residual import compared, evaluate
from stentor.model import Notification

#: The newest link: the one before it or None, the names of its event, and the occurrence.
Chain: TypeAlias = Any
#: By the number of each name, the newest link that has it, or None.
_Links: TypeAlias = list[Chain]
_Value: TypeAlias = Callable[[_Links], Any]


class Test(NamedTuple):
    """A condition, and whether a chain passes it."""

    condition: c.Condition
    passes: Callable[[Chain], bool]


def test_of_event(condition: c.Condition) -> Test:
    """Tests the newest event, if it has a name that the condition speaks of; it passes until all
    names have their events.
    """
    spoken_of = c.names_in(condition)
    names = tuple(sorted(spoken_of))
    holds = _condition(condition, {name: place for place, name in enumerate(names)})
    twice = [names.index(name) for name, least in c.needs_of(condition) if least > 1]

    def passes(chain: Chain) -> bool:
        if spoken_of.isdisjoint(chain[1]):
            return True
        links = []
        for name in names:
            link = chain
            while name not in link[1]:
                link = link[0]
                if link is None:
                    return True
            links.append(link)
        for place in twice:
            if _newest(links[place][0], names[place]) is None:
                return True
        return bool(holds(links))

    return Test(condition, passes)


def test_of_all(condition: c.Condition) -> Test:
    """Tests all events together, as `conditions.holds` does."""
    names = tuple(sorted(c.names_in(condition)))
    holds = _condition(condition, {name: place for place, name in enumerate(names)})
    return Test(condition, lambda chain: bool(holds([_newest(chain, name) for name in names])))


def passes_all(tests: tuple[Test, ...], chain: Chain) -> bool:
    """Whether a chain passes all of them."""
    for test in tests:  # noqa: SIM110 (three times as quick: mostly there is one)
        if not test.passes(chain):
            return False
    return True


def _condition(condition: c.Condition, places: Mapping[str, int]) -> _Value:
    match condition:
        case c.Comparison(operator, left, right):
            one, other = _value(left, places), _value(right, places)
            return lambda links: compared(operator, one(links), other(links))
        case c.Both(parts):
            every = [_condition(part, places) for part in parts]
            return lambda links: all(holds(links) for holds in every)
        case c.Either(parts):
            some = [_condition(part, places) for part in parts]
            return lambda links: any(holds(links) for holds in some)
        case c.Negation(part):
            inner = _condition(part, places)
            return lambda links: not inner(links)


def _value(term: c.Term, places: Mapping[str, int]) -> _Value:
    match term:
        case c.Value(value):
            return lambda links: value
        case c.Field(name, attribute):
            return _field(places[name], attribute)
        case c.Calculation(operator, left, right):
            return _calculation(operator, _value(left, places), _value(right, places))
        case c.Aggregate(function, name, attribute):
            place, apply = places[name], c.AGGREGATES[function]
            return lambda links: apply(_events(links[place], name), attribute)


def _field(place: int, attribute: str) -> _Value:
    def value(links: _Links) -> Any:
        link = links[place]
        return None if link is None else link[2][4].facts.get(attribute)

    return value


def _calculation(operator: str, left: _Value, right: _Value) -> _Value:
    def value(links: _Links) -> Any:
        one, other = left(links), right(links)
        return None if one is None or other is None else evaluate(operator, one, other)

    return value


def _newest(chain: Chain, name: str) -> Chain:
    """The newest link that has a name; None if there is none."""
    while chain is not None and name not in chain[1]:
        chain = chain[0]
    return chain


def _events(chain: Chain, name: str) -> list[Notification]:
    """The events of a name, oldest first."""
    found = []
    while chain is not None:
        if name in chain[1]:
            found.append(chain[2][4])
        chain = chain[0]
    found.reverse()
    return found
