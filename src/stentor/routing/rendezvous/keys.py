"""The keys under which those who ask and those who have something meet, by event type.

A notification of type `quote.stock` is also one of `quote`. Whose journal holds one has the keys
`quote.stock` and `quote`; who asks for `isa quote` asks under `quote`, and so finds all of them,
whatever subtypes there are or will be.

What is only advertised has keys of its own. `isa quote` may be about any subtype, so it concerns
those who ask for one of the subtypes, and those who ask for a supertype:

    to have     `quote.stock`     under   quote.stock  quote
    to offer    `isa quote.stock` under  +quote.stock  ^quote
    to ask for  `isa quote.stock` under   quote.stock  +quote.stock  ^quote.stock  +quote

Who offers one type and who asks for another meet only if one of these is a kind of the other. A
type that was declared to be a kind of both is found when there is something of it.

All keys of a type meet at the same place (`name_of`). What names no type has the key `ANY`, which
meets all others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from stentor.filters import Filter
from stentor.model.event_types import event_types
from stentor.routing.rendezvous.addresses import types_of

#: Of filters that name no event type.
ANY: Final = ""
_BELOW: Final = "^"
_OFFERED: Final = "+"
_REMEMBERED: Final = 10_000


def name_of(key: str) -> str:
    """The event type that a key is about."""
    return key.lstrip(_BELOW + _OFFERED)


def is_held(key: str) -> bool:
    """Whether the key tells what a journal holds, and not what is advertised."""
    return key != ANY and key[0] not in (_BELOW, _OFFERED)


def held(type: str) -> frozenset[str]:
    """The keys of who has notifications of this type.

    >>> sorted(held("quote.stock"))
    ['quote', 'quote.stock']
    """
    return event_types.ancestors(type)


@lru_cache(maxsize=_REMEMBERED)
def wanted(filter: Filter) -> frozenset[str]:
    """The keys under which a filter asks.

    >>> sorted(wanted(Filter("isa quote.stock and price > 10")))
    ['+quote', '+quote.stock', '^quote.stock', 'quote.stock']
    >>> wanted(Filter("isa quote or price > 10")) == {ANY}
    True
    """
    names = _types(filter)
    if names is None:
        return frozenset((ANY,))
    offered = (_OFFERED + each for name in names for each in event_types.ancestors(name))
    return frozenset((*names, *(_BELOW + name for name in names), *offered))


@lru_cache(maxsize=_REMEMBERED)
def offered(filter: Filter) -> frozenset[str]:
    """The keys under which an advertisement is found.

    >>> sorted(offered(Filter("isa quote.stock")))
    ['+quote.stock', '^quote']
    """
    names = _types(filter)
    if names is None:
        return frozenset((ANY,))
    below = (_BELOW + each for name in names for each in event_types.ancestors(name) - {name})
    return frozenset((*(_OFFERED + name for name in names), *below))


def _types(filter: Filter) -> set[str] | None:
    """Event types, one of which each notification that matches has; None if that is not sure."""
    found: set[str] = set()
    for conjunct in filter.conjuncts:
        names = types_of(conjunct)
        if names is None:
            return None
        found.update(names)
    return found
