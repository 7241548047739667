"""Who subscribes, advertises and publishes what, and at which broker of a binary tree.

Three populations of 150 clients at random brokers. *Intervals* and *classes* are those of the
routing sheet's reference benchmark: one integer attribute, intervals that overlap in all ways, or
ten classes that are equal or disjoint; everybody may publish anything, so advertisements only cost.
*Stock quotes* have their feeds at a few leaves, so that advertisements tell most of the tree that
nothing comes from there. Bounds are half-open: on integers it makes no difference, and intervals
that follow each other have a perfect merger.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stentor.filters import Filter
from workloads import Constraints, Event, stock
from workloads.base import text_of
from workloads.stock import EXCHANGES, SECTORS, SYMBOLS

#: A binary tree with the root 1: the children of n are 2n and 2n + 1.
BROKERS: Final = 15
TREE: Final = [(child // 2, child) for child in range(2, BROKERS + 1)]
LEAVES: Final = tuple(range(BROKERS // 2 + 1, BROKERS + 1))
CLIENTS: Final = 150
DOMAIN: Final = 100
#: The symbols that the stock quotes are about; the first are the busiest.
BUSY: Final = frozenset(SYMBOLS[:25])
#: Notifications that imperfection is measured on.
SAMPLE: Final = 100


@dataclass(frozen=True)
class Population:
    """Clients by their brokers; publications by the producer's place in the list of them."""

    name: str
    about: str
    subscribers: list[tuple[int, list[Filter]]]
    producers: list[tuple[int, Filter]]
    publications: list[tuple[int, Event]]
    #: What imperfect merging measures imperfection on.
    sample: list[Event]

    @property
    def subscriptions(self) -> int:
        return sum(len(filters) for _, filters in self.subscribers)


def intervals(publications: int, seed: int = 1) -> Population:
    """Every client wants an interval of 1 to 20 of the 100 values."""
    r = random.Random(seed)

    def wanted() -> Filter:
        length = r.randint(1, 20)
        low = r.randint(0, DOMAIN - length)
        return _interval(low, low + length)

    about = "one of 100 values; intervals of 1 to 20 values"
    return _integers("intervals", about, [wanted() for _ in range(CLIENTS)], publications, r)


def classes(publications: int, seed: int = 1) -> Population:
    """Every client wants one of ten classes of five values each; half the values are wanted."""
    r = random.Random(seed)
    lows = [5 * r.randrange(10) for _ in range(CLIENTS)]
    about = "one of 100 values; ten classes of five values"
    return _integers("classes", about, [_interval(n, n + 5) for n in lows], publications, r)


def _integers(
    name: str, about: str, wanted: list[Filter], publications: int, r: random.Random
) -> Population:
    everything = _interval(0, DOMAIN)
    return Population(
        name,
        about,
        [(r.randint(1, BROKERS), [filter]) for filter in wanted],
        [(broker, everything) for broker in range(1, BROKERS + 1)],
        [(r.randrange(BROKERS), {"x": r.randrange(DOMAIN)}) for _ in range(publications)],
        [{"x": x} for x in range(DOMAIN)],
    )


def _interval(low: int, end: int) -> Filter:
    return Filter(f"x >= {low} and x < {end}")


def stock_quotes(
    filters: int, publications: int, leaves: Sequence[int] = LEAVES[:2], seed: int = 1
) -> Population:
    """Quotes of eight exchanges, fed in at the given leaves only.

    The stock workload as far as it is about its busiest symbols, so that not too few clients want
    something of the same. An exchange has five feeds: two that carry all of it and so have equal
    advertisements, and three that carry a third of the sectors each, which the others cover and
    which merge.
    """
    r = random.Random(seed)
    quotes = stock(40 * filters)
    events = [event for event in quotes.events if event["symbol"] in BUSY]
    chosen = list(filter(_is_busy, quotes.constraints))[:filters]
    wanted: list[list[Filter]] = [[] for _ in range(CLIENTS)]
    for number, constraints in enumerate(chosen):
        wanted[number % CLIENTS].append(Filter(text_of(constraints)))
    feeds = [
        (exchange, sectors)
        for exchange in EXCHANGES
        for sectors in (SECTORS[:8], SECTORS[8:16], SECTORS[16:], SECTORS, SECTORS)
    ]
    producers = [
        (leaves[number % len(leaves)], _offer(exchange, sectors))
        for number, (exchange, sectors) in enumerate(feeds)
    ]
    published = [
        (r.choice([n for n, (_, offer) in enumerate(producers) if offer.matches(event)]), event)
        for event in events[:publications]
    ]
    return Population(
        "stock quotes",
        f"quotes of {len(BUSY)} symbols, fed in at {len(leaves)} of {len(LEAVES)} leaves",
        [(r.randint(1, BROKERS), held) for held in wanted],
        producers,
        published,
        events[publications : publications + SAMPLE],
    )


def _is_busy(constraints: Constraints) -> bool:
    """Whether the filter is about a busy symbol."""
    return constraints[0][:2] == ["symbol", "="] and constraints[0][2] in BUSY


def _offer(exchange: str, sectors: Sequence[str]) -> Filter:
    if len(sectors) == len(SECTORS):
        return Filter(f"exchange = '{exchange}'")
    listed = ", ".join(f"'{sector}'" for sector in sectors)
    return Filter(f"exchange = '{exchange}' and sector in ({listed})")
