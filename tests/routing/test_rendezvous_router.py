"""Who asks and who has something find each other by types, whatever comes and goes meanwhile."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.model import Notification
from stentor.routing.protocol import FilterId, Outputs, Send
from stentor.routing.rendezvous import RendezvousRouter, number_of
from stentor.routing.rendezvous.keys import ANY, held, is_held, name_of, offered, wanted
from stentor.routing.rendezvous.pastry import key_of
from stentor.routing.rendezvous.places import Places
from stentor.routing.table import Neighbor

TYPES = ("a", "a.b", "a.b.c", "a.d", "e", "e.f")
TEXTS = (
    *(f"isa {type}" for type in TYPES),
    *("isa a and x > 1", "isa a.b or isa e", "isa e.f or isa a.d", "_type prefix 'a.'", "x > 1"),
    *("_type = 'e'", "isa a or x = 1", "not isa a", "isa e and not isa e.f", "false"),
)

texts = st.sampled_from(TEXTS)


# -- keys and places


@pytest.mark.spec("R-03.34", "07/T-10")
@given(texts, st.sampled_from([*TYPES, None]), st.integers(0, 3))
def test_who_asks_for_a_notification_meets_who_has_it(text: str, type: str | None, x: int) -> None:
    filter = Filter(text)
    if filter.matches(Notification({"x": x}, type=type)):
        keys = held(type) if type is not None else frozenset()
        assert wanted(filter) & keys or ANY in wanted(filter)


@pytest.mark.spec("R-03.36")
@given(texts, texts, st.sampled_from(TYPES), st.integers(0, 3))
def test_who_asks_meets_who_offers_the_same(one: str, other: str, type: str, x: int) -> None:
    asks, offers = Filter(one), Filter(other)
    notification = Notification({"x": x}, type=type)
    if asks.matches(notification) and offers.matches(notification):
        keys = wanted(asks), offered(offers)
        assert keys[0] & keys[1] or ANY in keys[0] | keys[1]


def test_what_is_offered_is_told_from_what_is_held() -> None:
    assert all(map(is_held, held("a.b")))
    assert not any(map(is_held, offered(Filter("isa a.b"))))
    assert {name_of(key) for key in wanted(Filter("isa a.b"))} == {"a", "a.b"}


@pytest.mark.spec("R-03.48")
@given(st.sets(st.text("abcdefgh", min_size=1), min_size=1), st.text())
def test_a_name_meets_at_the_nearest_broker(brokers: set[str], name: str) -> None:
    def distance(broker: str) -> int:
        apart = abs(number_of(broker) - key_of(name))
        return min(apart, 2**128 - apart)

    assert Places(brokers).of(name) == min(brokers, key=distance)


@given(st.sets(st.integers(0, 50), min_size=2), st.text())
def test_only_what_met_at_a_broker_moves_when_it_goes(brokers: set[int], name: str) -> None:
    place = Places(brokers).of(name)
    gone = next(broker for broker in sorted(brokers) if broker != place)
    assert Places(brokers - {gone}).of(name) == place


# -- routers


class Mesh:
    """Routers that are linked when they want to be, and messages on their way."""

    def __init__(self, size: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.routers = {i: RendezvousRouter(i) for i in range(size)}
        self.queues: dict[tuple[int, int], deque[Any]] = {}
        self.standing: set[frozenset[int]] = set()
        self.filters: dict[tuple[int, int], Filter] = {}
        self.offers: dict[tuple[int, int], Filter] = {}
        self.held: dict[int, set[str]] = {i: set() for i in self.routers}
        for i in range(1, size):
            self.open(self.rng.randrange(i), i, stands=True)

    def do(self, at: int, outputs: Outputs) -> None:
        for output in outputs:
            assert isinstance(output, Send)
            if (at, output.to) in self.queues:
                self.queues[at, output.to].append(output.message)  # type: ignore[index]

    def open(self, a: int, b: int, *, stands: bool = False) -> None:
        if (a, b) in self.queues:
            self.cut(a, b)
        if stands:
            self.standing.add(frozenset((a, b)))
        self.queues[a, b], self.queues[b, a] = deque(), deque()
        for x, y in ((a, b), (b, a)):
            self.routers[x].place(y, "peer" if stands else "visitor")
            self.do(x, self.routers[x].link_up(y))

    def cut(self, a: int, b: int) -> None:
        self.standing.discard(frozenset((a, b)))
        del self.queues[a, b], self.queues[b, a]
        for x, y in ((a, b), (b, a)):
            self.do(x, self.routers[x].link_down(y))

    def step(self) -> bool:
        """One thing happens: a message arrives, a link is made or closed; False if none can."""
        wanted = [(a, b) for a, r in self.routers.items() for b in r.visits]
        choices: list[Any] = [c for c, waiting in self.queues.items() if waiting]
        choices += [("open", a, b) for a, b in wanted if (a, b) not in self.queues]
        choices += [
            ("cut", a, b)
            for a, b in self.queues
            if frozenset((a, b)) not in self.standing
            and b not in self.routers[a].visits
            and a not in self.routers[b].visits
        ]
        if not choices:
            return False
        match self.rng.choice(choices):
            case ("open", a, b):
                self.open(a, b)
            case ("cut", a, b):
                self.cut(a, b)
            case sender, receiver:
                message = self.queues[sender, receiver].popleft()
                self.do(receiver, self.routers[receiver].receive(sender, message))
        return True

    def act(self, number: int) -> None:
        rng = self.rng
        at = rng.randrange(len(self.routers))
        router = self.routers[at]
        match rng.choice(["subscribe", "subscribe", "hold", "hold", "offer", "withdraw", "links"]):
            case "subscribe":
                self.filters[at, number] = Filter(rng.choice(TEXTS))
                self.do(at, router.subscribe(FilterId("c", number), self.filters[at, number]))
            case "offer":
                self.offers[at, number] = Filter(rng.choice(TEXTS))
                self.do(at, router.advertise(FilterId("c", number), self.offers[at, number]))
            case "hold":
                new = held(rng.choice(TYPES)) - self.held[at]
                self.held[at] |= new
                self.do(at, router.hold(sorted(new)))
            case "withdraw":
                for found in (self.filters, self.offers):
                    for whose, id in [key for key in found if key[0] == at][:2]:
                        del found[whose, id]
                        ids = [FilterId("c", id)]
                        self.do(at, router.withdraw(ids, ids))
            case "links":
                if self.standing and rng.random() < 0.5:
                    self.cut(*rng.choice(sorted(map(sorted, self.standing))))
                else:
                    a, b = rng.sample(range(len(self.routers)), 2)
                    if frozenset((a, b)) not in self.standing:
                        self.open(a, b, stands=True)

    def settle(self) -> None:
        for _ in range(100_000):
            if not self.step():
                return
        raise AssertionError("it does not come to rest")

    def has(self, at: int) -> set[str]:
        keys = (offered(f) for (whose, _), f in self.offers.items() if whose == at)
        return self.held[at].union(*keys)


@pytest.mark.spec("R-03.34", "R-03.35", "R-03.36")
@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(0, 30))
def test_at_rest_filters_are_where_something_is_for_them_and_nowhere_else(
    seed: int, size: int, acts: int
) -> None:
    mesh = Mesh(size, seed)
    for number in range(acts):
        mesh.act(number)
        for _ in range(mesh.rng.randrange(5)):
            mesh.step()
    mesh.settle()
    for at, router in mesh.routers.items():
        members = set(router.reachable())
        assert router.is_settled
        assert members == set(mesh.routers[min(members)].reachable())
        asked = {other: set[str]() for other in mesh.routers}
        for (whose, _), filter in mesh.filters.items():
            if filter.conjuncts and _meet(wanted(filter), mesh.has(at)):
                asked[whose].add(str(filter))
        for other in members - {at}:
            there = {str(f) for f in router._table.at(Neighbor(other)).values()}
            union = [Filter(text) for text in there]
            assert there <= {str(f) for (w, _), f in mesh.filters.items() if w == other}
            for text in asked[other]:
                assert any(known.covers(Filter(text)) for known in union)
            for known in union:
                assert _meet(wanted(known), mesh.has(at))


def _meet(asked: frozenset[str], there: set[str]) -> bool:
    return bool(asked & there) or ANY in asked or ANY in there


@pytest.mark.spec("R-03.34")
def test_a_subscription_costs_nothing_where_nobody_has_the_type() -> None:
    mesh = Mesh(20, seed=1)
    mesh.do(3, mesh.routers[3].hold(sorted(held("quote.stock"))))
    mesh.settle()
    before = {at: set(router.neighbors) for at, router in mesh.routers.items()}
    mesh.do(7, mesh.routers[7].subscribe(FilterId("ann", 1), Filter("isa quote and x > 1")))
    mesh.settle()
    places = Places(mesh.routers)
    concerned = {3, places.of("quote")}
    assert mesh.routers[3].table_size().remote == 1
    assert all(r.table_size().remote == 0 for at, r in mesh.routers.items() if at != 3)
    assert mesh.routers[7].neighbors - before[7] <= concerned
    assert {at for at, r in mesh.routers.items() if set(r.neighbors) != before[at]} <= {
        *(7, *concerned)
    }


def test_filters_cannot_be_flooded() -> None:
    with pytest.raises(InvalidConfiguration, match="choose another routing"):
        RendezvousRouter("b1", "flooding")
