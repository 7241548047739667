"""Steering in steps against a look at every pair."""

from __future__ import annotations

import random

import pytest

from stentor.filters import Filter
from stentor.routing.tree import steering as steering_module
from stentor.routing.tree.steering import Steering

FILTERS = [
    Filter(text)
    for text in (
        *(f"x = {i}" for i in range(5)),
        *("x > 2", "x < 2", "y = 1", "y = 1 and x > 3", "x = 1 or y = 2", "true", "s like 'a%b'"),
    )
]
NEIGHBORS = ("north", "south")


class Model:
    """What is asked for and offered, and who serves what by a look at every pair."""

    def __init__(self) -> None:
        self.asked: dict[int, Filter] = {}
        self.offers: dict[str, set[Filter]] = {neighbor: set() for neighbor in NEIGHBORS}

    def served(self, key: int) -> set[str]:
        filter = self.asked[key]
        return {n for n, offers in self.offers.items() if any(map(filter.overlaps, offers))}


def act(rng: random.Random, steering: Steering, model: Model, key: int) -> None:
    neighbor, filter = rng.choice(NEIGHBORS), rng.choice(FILTERS)
    match rng.randrange(6):
        case 0 | 1:
            model.asked[key] = filter
            steering.ask(key, filter)
        case 2 if model.asked:
            gone = rng.choice(list(model.asked))
            del model.asked[gone]
            steering.forget(gone)
        case 3:
            model.offers[neighbor].add(filter)
            steering.offer(neighbor, filter)
        case 4:
            model.offers[neighbor].discard(filter)
            steering.withdraw(neighbor, filter)
        case 5 if rng.random() < 0.1:
            model.offers[neighbor].clear()
            steering.forget_neighbor(neighbor)


@pytest.mark.spec("R-03.27")
@pytest.mark.parametrize("seed", range(60))
def test_filters_are_served_where_something_overlaps_them_whatever_the_steps(seed: int) -> None:
    rng = random.Random(seed)
    steering, model = Steering(), Model()
    for key in range(120):
        act(rng, steering, model, key)
        for _ in range(rng.choice([0, 1, 5])):
            if steering.has_work:
                steering.look()
        if not steering.is_serving:  # never for less than is wanted
            assert all(set(steering.served(key)) >= model.served(key) for key in model.asked)
    while steering.has_work:
        steering.look()
    assert {key: set(steering.served(key)) for key in model.asked} == {
        key: model.served(key) for key in model.asked
    }
    for key in list(model.asked):
        steering.forget(key)
    for neighbor, offers in model.offers.items():
        for offer in offers:
            steering.withdraw(neighbor, offer)
    assert steering.is_empty
    while steering.has_work:
        steering.look()


def test_what_is_told_says_who_serves_it_now() -> None:
    steering = Steering()
    steering.ask("a", Filter("x > 1"))
    steering.ask("b", Filter("x = 0"))
    steering.offer("north", Filter("x > 5"))
    found = []
    while steering.has_work:
        found.append(steering.look())
    assert [f for f in found if f] == [("north", "a", Filter("x > 1"))]
    steering.withdraw("north", Filter("x > 5"))
    assert steering.look() == ("north", "a", Filter("x > 1"))
    assert not steering.served("a")


def test_who_cannot_be_compared_with_all_offers_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering_module, "COMPARED", 3)
    steering = Steering()
    for i in range(9):
        steering.offer("north", Filter(f"x > {i} and y = 1"))
    steering.ask("a", Filter("x < 0"))
    assert list(steering.served("a")) == ["north"]
