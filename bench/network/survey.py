"""The survey's comparison of routing classes, from counters (07/§4.0).

Every class runs on as many brokers, with the same subscriptions and publications. Where links
matter they are those of one random graph, or of a spanning tree of it; else every broker reaches
every other. A broker *stores* a subscription if it is not the subscriber's own and its table grew.
A broker *handles* an event if the event came to it although neither publisher nor subscriber are
there. The survey says for each class: none, a subset, or all; here it is `all` from 90 % on, since
gossip only comes close. A class that behaves otherwise than the survey says ends the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from measure.throughput import WrongAnswer
from network.profiles import Profile
from progress import progress
from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.simulation import Network

TYPES: Final = 8
DOMAIN: Final = 1_000
#: Bounds of what is wanted are multiples of this, so that filters are often equal, or cover others.
STEP: Final = 50
SUBSCRIPTIONS_PER_BROKER: Final = 3
#: The share of brokers that is as good as all of them.
ALL: Final = 0.9


@dataclass
class _World:
    """Brokers 1, 2, ..., a connected graph of about two links for each, and a tree of its links."""

    brokers: int
    events: int
    random: random.Random = field(default_factory=lambda: random.Random(3))

    def __post_init__(self) -> None:
        r = self.random
        self.tree = [(r.randint(1, broker - 1), broker) for broker in range(2, self.brokers + 1)]
        links = dict.fromkeys(self.tree)
        while len(links) < 2 * self.brokers:
            a, b = sorted(r.sample(range(1, self.brokers + 1), 2))
            links[a, b] = None
        self.graph = list(links)
        self.subscriptions = [
            (broker, r.randrange(TYPES), *self._interval())
            for broker in range(1, self.brokers + 1)
            for _ in range(SUBSCRIPTIONS_PER_BROKER)
        ]
        self.publications = [
            (r.randint(1, self.brokers), r.randrange(TYPES), r.randrange(DOMAIN))
            for _ in range(self.events)
        ]

    def _interval(self) -> tuple[int, int]:
        """A tenth to a half of the values, bounds included."""
        steps = self.random.randint(2, 10)
        low = STEP * self.random.randint(0, DOMAIN // STEP - steps)
        return low, low + STEP * steps


@dataclass(frozen=True)
class _Class:
    """A class of the survey, one network of that class, and what the survey says of it."""

    name: str
    storing: str
    handling: str
    network: Callable[[_World], Network]


CLASSES: Final = (
    _Class(
        "event flooding",
        "none",
        "all",
        lambda world: Network.graph(world.graph, routing="flooding"),
    ),
    _Class("subscription flooding", "all", "none", lambda world: Network.mesh(world.brokers)),
    _Class(
        "filter-based, covering",
        "subset",
        "subset",
        lambda world: Network.tree(world.tree, routing="covering"),
    ),
    _Class(
        "rendezvous by type",
        "subset",
        "subset",
        lambda world: Network.rendezvous(world.brokers, "types"),
    ),
    _Class(
        "basic gossip, fanout 4",
        "none",
        "all",
        lambda world: Network.gossip(world.brokers, fanout=4),
    ),
    _Class(
        "informed gossip, φ = 2, τ = 0.5",
        "subset",
        "subset",
        lambda world: Network.informed_gossip(world.graph, phi=2, tau=0.5),
    ),
)


def measure_survey(profile: Profile) -> list[dict[str, Any]]:
    """One row for each class."""
    rows = []
    for routing in CLASSES:
        progress(f"survey: {routing.name}, {profile.survey_brokers} brokers")
        row = _run(routing, _World(profile.survey_brokers, profile.survey_events))
        if (row["storing"], row["handling"]) != (routing.storing, routing.handling):
            raise WrongAnswer(f"{routing.name}: {row} is not what the survey says")
        rows.append(row)
    return rows


def _run(routing: _Class, world: _World) -> dict[str, Any]:
    net = routing.network(world)
    net.settle()
    clients = {broker: net.client(at=broker) for broker in net.brokers}

    before = net.counters.copy()
    stored = []
    for broker, kind, low, high in world.subscriptions:
        sizes = net.table_sizes()
        clients[broker].subscribe(Filter(f"isa t{kind} and x between {low} and {high}"))
        net.settle()
        grown = [b for b, size in net.table_sizes().items() if size.remote > sizes[b].remote]
        stored.append(len(set(grown) - {broker}))
    subscribing = net.counters - before

    start = net.counters.copy()
    handled, possible, wanted = [], [], 0
    for broker, kind, x in world.publications:
        before = net.counters.copy()
        clients[broker].publish(Notification({"x": x}, type=f"t{kind}"))
        net.settle()
        reached = {to for _, to in (net.counters - before).links["notification"]}
        interested = {
            b for b, t, low, high in world.subscriptions if t == kind and low <= x <= high
        }
        wanted += len(interested)
        handled.append(len(reached - interested - {broker}))
        possible.append(world.brokers - len(interested | {broker}))
    publishing = net.counters - start

    return {
        "class": routing.name,
        "brokers": world.brokers,
        "subscriptions": len(world.subscriptions),
        "events": world.events,
        "stored_at": fmean(stored),
        "storing": _share(fmean(stored) / (world.brokers - 1)),
        "handled_at": fmean(handled),
        "handling": _share(sum(handled) / sum(possible)),
        "messages_per_event": publishing.notifications / world.events,
        "messages_per_subscription": subscribing.subscriptions / len(world.subscriptions),
        "interested": wanted / world.events,
        "delivered": publishing.delivered / wanted,
        "busiest": _busiest(publishing.links["notification"], world.brokers),
    }


def _share(share: float) -> str:
    if share == 0:
        return "none"
    return "all" if share >= ALL else "subset"


def _busiest(links: dict[tuple[Any, Any], int], brokers: int) -> float:
    """How many times the mean the busiest broker receives."""
    received: dict[Any, int] = {}
    for (_, to), count in links.items():
        received[to] = received.get(to, 0) + count
    return max(received.values()) * brokers / sum(received.values())
