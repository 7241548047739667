"""Every overlay delivers exactly what the formal model says, whatever happens in which order.

Two ways to look for a counterexample. Histories from seeds run through all overlays, thousands of
them when asked for. A state machine under hypothesis explores trees step by step, with invariants
after each step, and shrinks what it finds to a short schedule that can be read.
"""

from typing import Any

import pytest
from histories import OVERLAYS, Overlay, run_history
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from validity import local_invariant, monotone_valid, remote_invariant, valid

from stentor.filters import Filter
from stentor.matching import BruteForce
from stentor.routing import FilterId
from stentor.routing.table import Neighbor
from stentor.routing.tree import TreeRouter
from stentor.simulation import Client, Network


@pytest.mark.spec(
    *("01/Q1", "01/Q2", "01/Q3", "01/Q9", "01/Q12", "03/P5", "03/P6", "03/P9", "03/P10"),
    *("01/Q6", "01/A-8", "R-01.09", "R-01.10", "R-01.17", "R-03.03", "03/A1", "03/A13", "R-08.20"),
    *("03/P14", "03/P17", "07/P-01", "07/P-02", "07/P-03", "07/P-04", "07/P-08", "07/P-10"),
    *("08/6.1", "08/6.9", "08/6.10", "08/6.15"),
)
@pytest.mark.parametrize(
    "overlay",
    [
        pytest.param(o, id=o.name, marks=[] if o.of_brokers else [pytest.mark.slow])
        for o in OVERLAYS
    ],
)
def test_histories(overlay: Overlay) -> None:
    for seed in range(12):
        run_history(overlay, seed)


@pytest.mark.slow
@pytest.mark.spec("07/P-02", "03/P5")
@pytest.mark.parametrize("overlay", OVERLAYS, ids=[overlay.name for overlay in OVERLAYS])
def test_ten_thousand_histories(overlay: Overlay) -> None:
    for seed in range(100, 100 + 10_000 // len(OVERLAYS) + 1):
        run_history(overlay, seed)


@pytest.mark.spec("03/P11", "01/Q3")
def test_all_strategies_deliver_the_same() -> None:
    """The same script under every strategy, held against flooding."""
    deliveries = {}
    for routing in ("flooding", "simple", "identity", "covering", "merging"):
        net = Network.tree([(1, 2), (2, 3), (2, 4), (4, 5)], routing)
        clients = [net.client(at=at) for at in (1, 3, 5, 5)]
        for i, client in enumerate(clients):
            client.subscribe(f"x between {i} and {2 * i + 1}")
            client.subscribe(f"x = {i}")
        net.settle()
        for x in range(8):
            clients[x % 4].publish({"x": x})
            net.settle()
        deliveries[routing] = [[dict(n) for n in client.received] for client in clients]
    assert all(d == deliveries["flooding"] for d in deliveries.values())
    assert any(deliveries["flooding"])


DOMAIN = [{"x": x, "y": y} for x in range(5) for y in range(3)]
FILTERS = st.sampled_from(
    [
        Filter(text)
        for text in (
            *(f"x is int and x between {a} and {b}" for a in range(5) for b in range(a, 5)),
            *(f"x = {x} and y = {y}" for x in range(3) for y in range(3)),
            *("y >= 1", "y < 2", "true", "x = 0 or y = 2", "x in (0, 3)", "false"),
        )
    ]
)


class TreeMachine(RuleBasedStateMachine):
    """Clients on a tree, with messages arriving one at a time."""

    routing = "simple"
    advertisements: str | None = None
    looseness = 0.0

    @initialize(parents=st.lists(st.integers(0, 9), min_size=1, max_size=4))
    def build(self, parents: list[int]) -> None:
        edges = [(1 + parent % (i + 1), i + 2) for i, parent in enumerate(parents)]
        self.net = Network.tree(
            edges,
            self.routing,
            self.advertisements,
            looseness=self.looseness,
            sample=DOMAIN if self.looseness else None,
            engine=BruteForce,
        )
        self.clients: list[Client] = [self.net.client(at=broker) for broker in self.net.brokers]
        self.wanted: dict[str, dict[FilterId, Filter]] = {c.id: {} for c in self.clients}
        self.offered: dict[str, dict[FilterId, Filter]] = {c.id: {} for c in self.clients}
        self.settled_once = True

    def _client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    @rule(number=st.integers(0, 4), filter=FILTERS)
    def subscribe(self, number: int, filter: Filter) -> None:
        client = self._client(number)
        self.wanted[client.id][client.subscribe(filter)] = filter

    @rule(number=st.integers(0, 4), which=st.integers(0, 5))
    def unsubscribe(self, number: int, which: int) -> None:
        client = self._client(number)
        held = list(self.wanted[client.id])
        if held:
            id = held[which % len(held)]
            client.unsubscribe(id)
            del self.wanted[client.id][id]

    @precondition(lambda self: self.advertisements is not None)
    @rule(number=st.integers(0, 4), filter=FILTERS)
    def advertise(self, number: int, filter: Filter) -> None:
        client = self._client(number)
        self.offered[client.id][client.advertise(filter)] = filter

    @precondition(lambda self: self.advertisements is not None)
    @rule(number=st.integers(0, 4), which=st.integers(0, 5))
    def unadvertise(self, number: int, which: int) -> None:
        client = self._client(number)
        held = list(self.offered[client.id])
        if held:
            id = held[which % len(held)]
            client.unadvertise(id)
            del self.offered[client.id][id]

    @rule(number=st.integers(0, 4), event=st.sampled_from(DOMAIN))
    def publish(self, number: int, event: dict[str, int]) -> None:
        self._client(number).publish(event)

    @precondition(lambda self: self.net.pending)
    @rule(which=st.integers(0, 20))
    def arrive(self, which: int) -> None:
        pending = self.net.pending
        self.net.step(pending[which % len(pending)])

    @rule(which=st.integers(0, 9))
    def break_and_mend_a_link(self, which: int) -> None:
        links = self.net.links
        a, b = links[which % len(links)]
        self.net.disconnect(a, b)
        self.net.connect(a, b)
        self.settled_once = False

    @rule(number=st.integers(0, 4), event=st.sampled_from(DOMAIN))
    def publish_when_quiet(self, number: int, event: dict[str, int]) -> None:
        self.net.settle()
        publisher = self._client(number)
        had = {client.id: len(client.received) for client in self.clients}
        publisher.publish(event)
        self.net.settle()
        may = self.advertisements is None or any(
            filter.matches(event) for filter in self.offered[publisher.id].values()
        )
        for client in self.clients:
            wants = any(filter.matches(event) for filter in self.wanted[client.id].values())
            assert len(client.received) - had[client.id] == (may and wants)
        routers = {b: self._router(b) for b in self.net.brokers}
        assert not monotone_valid(routers, DOMAIN)
        if self.advertisements is None:
            homes = {c.known_as: (c.at, self.wanted[c.id].values()) for c in self.clients}
            assert not valid(routers, homes, DOMAIN)

    def _router(self, broker: Any) -> TreeRouter:
        router = self.net.router(broker)
        assert isinstance(router, TreeRouter)
        return router

    @invariant()
    def local_and_remote_invariants_hold(self) -> None:
        if not hasattr(self, "net"):
            return
        on_the_way = self.net.on_the_way
        for broker in self.net.brokers:
            router = self._router(broker)
            subscriptions = {
                c.known_as: self.wanted[c.id].values() for c in self.clients if c.at == broker
            }
            assert not local_invariant(router, subscriptions, DOMAIN)
            if self.routing != "flooding":
                for neighbor in router.neighbors:
                    assert not remote_invariant(router, self._router(neighbor), on_the_way, DOMAIN)
                    self._antichain(router, neighbor)

    def _antichain(self, router: TreeRouter, neighbor: Any) -> None:
        held = list(router.plane.subscriptions.table.at(Neighbor(neighbor)).values())
        if self.routing == "identity":
            assert len(set(held)) == len(held)
        if self.routing in ("covering", "merging"):
            assert not [(f, g) for f in held for g in held if f is not g and f.covers(g)]

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        self.net.settle()
        report = self.net.check(
            order=("fifo", "causal") if self.settled_once else (), settling=self.settled_once
        )
        assert report.ok, report
        for client in self.clients:
            client.leave()
        self.net.settle()
        assert all(self._router(broker).plane.is_empty for broker in self.net.brokers)


def machine(routing: str, advertisements: str | None = None, looseness: float = 0.0) -> Any:
    options = {"routing": routing, "advertisements": advertisements, "looseness": looseness}
    return type(f"{routing}_{advertisements}_{looseness}", (TreeMachine,), options)


CASES = [
    ("flooding", None, 0.0),
    ("simple", None, 0.0),
    ("identity", None, 0.0),
    ("covering", None, 0.0),
    ("merging", None, 0.0),
    ("merging", None, 0.3),
    ("simple", "covering", 0.0),
    ("identity", "merging", 0.0),
    ("covering", "identity", 0.0),
    ("merging", "simple", 0.0),
]


@pytest.mark.spec(
    *("R-03.05", "R-03.06", "03/A3", "03/A4", "03/A5", "R-08.42", "08/A3", "08/A4", "08/A5"),
    *(
        "08/A6",
        "R-03.08",
        "R-03.13",
        "R-03.14",
        "R-03.15",
        "R-03.19",
        "R-03.20",
        "R-03.25",
        "R-03.38",
    ),
    *("03/P1", "03/P2", "03/P3", "03/P7", "03/P9", "03/P12", "07/P-07", "08/6.5", "08/6.6"),
)
@pytest.mark.parametrize(("routing", "advertisements", "looseness"), CASES)
def test_any_schedule_on_a_tree(routing: str, advertisements: str | None, looseness: float) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine(routing, advertisements, looseness),
        settings=settings(max_examples=25, stateful_step_count=30, deadline=None),
    )
