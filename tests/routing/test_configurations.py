"""All configurations of the portfolio under random histories and schedules (R-07.68).

Four strategies among peers, sixteen pairs with advertisements, four hierarchies, and flooding; and
beyond these a hybrid with a flooded subtree. Every run is held against the formal model. The
strategies' own invariants are looked at after each single step.
"""

from collections.abc import Callable
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest
from graph_overlay import Overlay
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.filters import Filter
from stentor.routing import FilterId, Strategy, TreeRouter
from stentor.routing.messages import SubscriptionUpdate
from stentor.routing.protocol import BrokerId
from stentor.routing.table import Destination, Local, Neighbor, RoutingTable
from stentor.simulation import Client, Network

EXACT = ("simple", "identity", "covering", "merging")
seeds = st.integers(0, 2**32)

#: All that notifications of these tests say.
GRID = [{"x": x, "y": y} for x in range(6) for y in range(2)]


@cache
def parsed(text: str) -> Filter:
    return Filter(text)


def random_filter(random: Random) -> Filter:
    low, high = sorted(random.choices(range(6), k=2))
    return parsed(
        random.choice(
            (
                f"x between {low} and {high}",
                f"x between {low} and {high}",
                f"x is int and x between {low} and {high}",
                f"x between {low} and {high} and y = {random.randrange(2)}",
                f"x = {low}",
                f"x != {low}",
                f"y = {high % 2}",
                f"x < {low} or y = 1",
                "",
            )
        )
    )


def random_tree(random: Random, size: int) -> list[tuple[int, int]]:
    return [(random.randrange(1, number), number) for number in range(2, size + 1)]


# -- random histories on any network


class Play:
    """Clients who subscribe, publish and leave while messages are on their way."""

    def __init__(self, net: Network, random: Random, *, advertised: bool) -> None:
        self.net = net
        self.random = random
        self.advertised = advertised
        self.clients = [net.client(at=random.choice(net.brokers)) for _ in range(5)]
        self.held: dict[FilterId, Client] = {}
        self.offered: dict[FilterId, Client] = {}

    def run(self, acts: int) -> None:
        for _ in range(acts):
            client = self.random.choice(self.clients)
            what = self.random.random()
            if what < 0.25:
                self.held[client.subscribe(random_filter(self.random))] = client
            elif what < 0.4 and self.held:
                id = self.random.choice(list(self.held))
                self.held.pop(id).unsubscribe(id)
            elif what < 0.65:
                client.publish(self.random.choice(GRID))
            elif what < 0.75 and self.advertised:
                self.offered[client.advertise(random_filter(self.random))] = client
            elif what < 0.8 and self.offered:
                id = self.random.choice(list(self.offered))
                self.offered.pop(id).unadvertise(id)
            elif what < 0.83:
                self._replace(client)
            elif what < 0.87:
                self.net.settle()
            for _ in range(self.random.randrange(4)):
                self.net.step()

    def _replace(self, client: Client) -> None:
        """One client leaves, another comes elsewhere."""
        self.clients.remove(client)
        client.leave()
        for held in (self.held, self.offered):
            for id in [id for id, owner in held.items() if owner is client]:
                del held[id]
        self.clients.append(self.net.client(at=self.random.choice(self.net.brokers)))

    def publish_everywhere(self) -> None:
        """At rest, from each client's broker."""
        self.net.settle()
        for client in self.clients:
            for values in self.random.sample(GRID, 4):
                client.publish(values)
        self.net.settle()

    def withdraw_everything(self) -> None:
        ids = [(client.unsubscribe, id) for id, client in self.held.items()]
        ids += [(client.unadvertise, id) for id, client in self.offered.items()]
        self.random.shuffle(ids)
        for withdraw, id in ids:
            withdraw(id)
            for _ in range(self.random.randrange(3)):
                self.net.step()
        self.net.settle()


def play(make: Callable[[Random, int], Network], seed: int, *, advertised: bool = False) -> Network:
    random = Random(seed)
    net = make(random, seed)
    game = Play(net, random, advertised=advertised)
    game.run(70)
    game.publish_everywhere()
    report = net.check(order=("fifo", "causal"))
    assert report.ok, report
    game.withdraw_everything()
    for broker in net.brokers:
        router = net.router(broker)
        assert isinstance(router, TreeRouter)
        assert router.plane.is_empty, broker
        assert router.table_size().total == router.table_size().advertisements == 0
    before = net.counters.copy()
    game.clients[0].publish(GRID[0])
    net.settle()
    assert (net.counters - before).delivered == 0
    return net


SEEDS = range(3)


@pytest.mark.spec("R-07.68", "R-03.24", "03/P5", "03/P9", "03/P10", "03/P17", "R-03.12")
@pytest.mark.spec(
    "07/P-01", "07/P-02", "07/P-10", "08/6.1", "R-03.10", "R-03.13", "R-04.07", "04/A1"
)
@pytest.mark.parametrize("routing", ["flooding", *EXACT])
@pytest.mark.parametrize("seed", SEEDS)
def test_peers(routing: str, seed: int) -> None:
    play(lambda random, seed: Network.tree(random_tree(random, 6), routing, seed=seed), seed)


@pytest.mark.spec("R-03.21", "03/P5", "03/P9", "08/6.15", "07/T-15")
@pytest.mark.parametrize("looseness", [0.2, 1.0])
@pytest.mark.parametrize("given_sample", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_peers_that_merge_imperfectly(looseness: float, given_sample: bool, seed: int) -> None:
    def make(random: Random, seed: int) -> Network:
        edges = random_tree(random, 6)
        sample = GRID if given_sample else None
        return Network.tree(edges, "merging", looseness=looseness, sample=sample, seed=seed)

    play(make, seed)


@pytest.mark.spec("R-07.68", "R-03.25", "R-03.30", "03/P5", "03/P9", "03/P14", "03/8.18")
@pytest.mark.spec("07/P-08", "07/P-10", "R-01.33", "R-01.34", "R-01.38", "R-08.51", "R-08.55")
@pytest.mark.parametrize(("routing", "advertisements"), list(product(EXACT, EXACT)))
@pytest.mark.parametrize("seed", SEEDS)
def test_peers_with_advertisements(routing: str, advertisements: str, seed: int) -> None:
    def make(random: Random, seed: int) -> Network:
        return Network.tree(random_tree(random, 6), routing, advertisements, seed=seed)

    play(make, seed, advertised=True)


@pytest.mark.spec("R-03.25", "R-01.36", "R-03.26")
@pytest.mark.parametrize("routing", EXACT)
@pytest.mark.parametrize("seed", SEEDS)
def test_flooded_advertisements_offer_everything_everywhere(routing: str, seed: int) -> None:
    def make(random: Random, seed: int) -> Network:
        return Network.tree(random_tree(random, 6), routing, "flooding", seed=seed)

    net = play(make, seed, advertised=True)
    assert net.counters.advertisements == 0


@pytest.mark.spec("R-07.68", "R-03.31", "R-07.63", "R-08.41", "R-08.53", "03/P5", "03/P9")
@pytest.mark.parametrize("routing", EXACT)
@pytest.mark.parametrize("seed", SEEDS)
def test_hierarchies(routing: str, seed: int) -> None:
    def make(random: Random, seed: int) -> Network:
        return Network.hierarchy(random_tree(random, 6), routing, seed=seed)

    play(make, seed)


@pytest.mark.spec("R-07.68", "R-03.33", "R-07.63")
@pytest.mark.parametrize("routing", EXACT)
@pytest.mark.parametrize("advertisements", [None, "covering"])
@pytest.mark.parametrize("flooded", [(), (2,)])
@pytest.mark.parametrize("seed", SEEDS)
def test_hybrids(
    routing: str, advertisements: str | None, flooded: tuple[int, ...], seed: int
) -> None:
    def make(random: Random, seed: int) -> Network:
        subtrees: dict[BrokerId, BrokerId] = {4: 2, 5: 4, 6: 2, 7: 3}
        return Network.hybrid(
            [(1, 2), (1, 3)], subtrees, routing, advertisements, flooded=flooded, seed=seed
        )

    play(make, seed, advertised=advertisements is not None)


# -- invariants after every step


def tree_overlay(
    routing: str, random: Random, *, looseness: float = 0.0, advertisements: str | None = None
) -> Overlay:
    strategy = Strategy.of(routing, looseness, GRID)
    offers = None if advertisements is None else Strategy.of(advertisements)
    size = random.randint(3, 6)
    return Overlay(
        lambda id: TreeRouter(id, strategy, offers),
        range(1, size + 1),
        random_tree(random, size),
        random,
    )


@cache
def matched(filter: Filter) -> frozenset[int]:
    return frozenset(n for n, values in enumerate(GRID) if filter.matches(values))


def matched_by(filters: Any) -> frozenset[int]:
    return frozenset().union(*map(matched, filters))


def besides(table: RoutingTable, destination: Destination) -> list[Filter]:
    """The distinct filters that some other destination has."""
    return [row.filter for row in table.rows() if row.owners.keys() - {destination}]


def local_invariant(overlay: Overlay) -> None:
    """A client's entries are its subscriptions (03/P1)."""
    held: dict[tuple[BrokerId, str], dict[FilterId, Filter]] = {}
    for id, (at, filter) in overlay.subscriptions.items():
        held.setdefault((at, id.client), {})[id] = filter
    for broker, router in overlay.routers.items():
        table = router.plane.subscriptions.table
        clients = [d for d in table.destinations if isinstance(d, Local)]
        assert {c.id for c in clients} == {client for at, client in held if at == broker}
        for client in clients:
            assert dict(table.at(client)) == held[broker, client.id]


def remote_invariant(overlay: Overlay, *, exact: bool) -> None:
    """Once all has arrived, j asks i for all that i needs from there (03/P2, 03/P3)."""
    for (i, j), queue in overlay.channels.items():
        sender, receiver = overlay.routers[i].plane, overlay.routers[j].plane
        beta = dict(receiver.subscriptions.asked(Neighbor(i)))
        for message in queue:
            if isinstance(message, SubscriptionUpdate):
                beta.update(message.added)
                for key in message.removed:
                    del beta[key]
        assert beta == sender.subscriptions.announced(j)
        table = sender.subscriptions.table
        alpha = matched_by(besides(table, Neighbor(j)))
        assert matched_by(beta.values()) >= alpha
        if exact:
            assert matched_by(beta.values()) == alpha
        asked = matched_by(f for _, f in receiver.subscriptions.asked(Neighbor(i)))
        held = matched_by(receiver.subscriptions.table.at(Neighbor(i)).values())
        assert held == asked if exact else held >= asked


def tables(overlay: Overlay) -> dict[BrokerId, dict[Any, dict[Any, Filter]]]:
    found = {}
    for broker, router in overlay.routers.items():
        table = router.plane.subscriptions.table
        found[broker] = {d: dict(table.at(d)) for d in table.destinations}
    return found


def restricted_change(before: dict[Any, Any], after: dict[Any, Any], at: BrokerId, by: Any) -> None:
    """A step changes the entries of its cause, at its broker, and no others (03/P4)."""
    for broker in before:
        for destination in {*before[broker], *after[broker]}:
            if (broker, destination) != (at, by):
                assert before[broker].get(destination) == after[broker].get(destination)


def antichains(overlay: Overlay, *, covering: bool) -> None:
    """No twins, or nothing that covers another, at any neighbor (03/P7)."""
    for router in overlay.routers.values():
        table = router.plane.subscriptions.table
        for destination in table.destinations:
            if isinstance(destination, Neighbor):
                here = list(table.at(destination).values())
                assert len(here) == len(set(here))
                if covering:
                    assert not any(f is not g and f.covers(g) for f in here for g in here)


def atomic_withdrawals(overlay: Overlay, since: int, *, growing: bool) -> None:
    """What a withdrawal uncovers goes along, below what goes; nothing comparable (03/P8)."""
    for _, _, message in overlay.sent[since:]:
        if isinstance(message, SubscriptionUpdate) and message.removed:
            added = [filter for _, filter in message.added]
            assert not any(f is not g and f.covers(g) for f in added for g in added)
            for filter in added:
                below = any(gone.covers(filter) and gone != filter for gone in message.removed)
                above = any(filter.covers(gone) for gone in message.removed)
                assert below or above or growing


@pytest.mark.spec("R-03.13", "R-03.14", "R-03.15", "03/P1", "03/P2", "03/P3", "03/P4", "03/P7")
@pytest.mark.spec("03/P8", "03/P10", "R-03.07", "R-03.08", "R-03.11", "08/6.5")
@settings(max_examples=36)
@given(
    seeds,
    st.sampled_from((*((name, 0.0) for name in EXACT), ("merging", 0.3), ("merging", 1.0))),
)
def test_the_invariants_hold_after_every_step(seed: int, strategy: tuple[str, float]) -> None:
    routing, looseness = strategy
    random = Random(seed)
    overlay = tree_overlay(routing, random, looseness=looseness)
    brokers = list(overlay.routers)
    for _ in range(40):
        before, sent = tables(overlay), len(overlay.sent)
        pending = overlay.pending()
        what = random.random()
        if pending and what < 0.6:
            sender, at = random.choice(pending)
            overlay.step(sender, at)
            by: Any = Neighbor(sender)
        elif overlay.subscriptions and what < 0.75:
            id = random.choice(list(overlay.subscriptions))
            at, by = overlay.subscriptions[id][0], Local(id.client)
            overlay.unsubscribe(id)
        else:
            at = random.choice(brokers)
            id = overlay.subscribe(at, random_filter(random), random.choice("ab"))
            by = Local(id.client)
        restricted_change(before, tables(overlay), at, by)
        local_invariant(overlay)
        remote_invariant(overlay, exact=not looseness)
        if routing != "simple":
            antichains(overlay, covering=routing != "identity")
            if routing != "identity":
                atomic_withdrawals(overlay, sent, growing=routing == "merging")
        for sender, receiver, _ in overlay.sent[sent:]:
            assert sender == at
            assert by != Neighbor(receiver) or routing != "simple"
    overlay.settle()
    for id in list(overlay.subscriptions):
        overlay.unsubscribe(id)
    overlay.settle()
    assert all(router.plane.is_empty for router in overlay.routers.values())


def smallest_subtree(
    links: set[frozenset[BrokerId]], root: BrokerId, leaves: set[BrokerId]
) -> set[frozenset[BrokerId]]:
    """The links that join these brokers; all others hang below them and are cut off."""
    needed = set(links)
    while True:
        ends = [broker for link in needed for broker in link]
        spare = [b for b in set(ends) if ends.count(b) == 1 and b not in leaves | {root}]
        if not spare:
            return needed
        needed = {link for link in needed if not link & set(spare)}


@pytest.mark.spec("07/P-03", "07/P-02", "03/P5", "03/P6", "R-03.10", "R-08.57")
@settings(max_examples=40)
@given(seeds, st.sampled_from(EXACT))
def test_a_notification_uses_the_smallest_subtree_of_those_who_want_it(
    seed: int, routing: str
) -> None:
    random = Random(seed)
    overlay = tree_overlay(routing, random)
    brokers = list(overlay.routers)
    for _ in range(8):
        overlay.subscribe(random.choice(brokers), random_filter(random))
        overlay.run(random.randrange(6))
    overlay.settle()
    for values in random.sample(GRID, 5):
        at = random.choice(brokers)
        used = overlay.check_delivery(at, values)
        assert set(used.values()) <= {1}
        wanting = set(overlay.wanting(at, values).values())
        links = smallest_subtree(overlay.links, at, wanting) if wanting else set()
        assert set(used) == links


@pytest.mark.spec("07/P-03", "08/6.15", "R-03.21")
@settings(max_examples=25)
@given(seeds, st.sampled_from((0.1, 0.5, 1.0)))
def test_imperfect_merging_lies_between_exact_and_flooding(seed: int, looseness: float) -> None:
    random = Random(seed)
    overlay = tree_overlay("merging", random, looseness=looseness)
    brokers = list(overlay.routers)
    for _ in range(10):
        overlay.subscribe(random.choice(brokers), random_filter(random))
        overlay.run(3)
    overlay.settle()
    for values in random.sample(GRID, 4):
        at = random.choice(brokers)
        used = overlay.check_delivery(at, values)
        wanting = set(overlay.wanting(at, values).values())
        assert set(used) >= (smallest_subtree(overlay.links, at, wanting) if wanting else set())
        assert used.total() <= len(overlay.links)


@pytest.mark.spec("08/6.6", "08/6.7")
@settings(max_examples=30)
@given(seeds, st.sampled_from(EXACT[:3]), st.sampled_from((None, *EXACT[:3])))
def test_tables_at_rest_depend_on_what_is_live_only(
    seed: int, routing: str, advertisements: str | None
) -> None:
    random = Random(seed)
    tree = random.getrandbits(32)
    overlay = tree_overlay(routing, Random(tree), advertisements=advertisements)
    brokers = list(overlay.routers)
    for _ in range(25):
        what = random.random()
        if what < 0.4:
            overlay.subscribe(random.choice(brokers), random_filter(random))
        elif what < 0.6 and advertisements:
            overlay.advertise(random.choice(brokers), random_filter(random))
        elif what < 0.8 and overlay.subscriptions:
            overlay.unsubscribe(random.choice(list(overlay.subscriptions)))
        elif overlay.advertisements:
            overlay.unadvertise(random.choice(list(overlay.advertisements)))
        overlay.run(random.randrange(6))
    overlay.settle()

    fresh = tree_overlay(routing, Random(tree), advertisements=advertisements)
    fresh.settle()
    for id, (at, filter) in overlay.subscriptions.items():
        fresh._do(at, fresh.routers[at].subscribe(id, filter))
    for id, (at, filter) in overlay.advertisements.items():
        fresh._do(at, fresh.routers[at].advertise(id, filter))
    fresh.settle()
    assert tables(overlay) == tables(fresh)


@pytest.mark.spec("R-03.07", "03/P12", "01/T-5")
@pytest.mark.parametrize("routing", ["flooding", *EXACT])
def test_repeated_and_unknown_ids_change_nothing(routing: str) -> None:
    router = TreeRouter(1, Strategy(routing), Strategy("covering"))
    router.link_up(2)
    id = FilterId("a", 1)
    for submit, withdraw in (
        (router.subscribe, router.unsubscribe),
        (router.advertise, router.unadvertise),
    ):
        assert withdraw(id) == []
        submit(id, parsed("x = 1"))
        size = router.table_size()
        assert submit(id, parsed("x = 1")) == []
        assert router.table_size() == size
        withdraw(id)
        assert withdraw(id) == []
    assert router.plane.is_empty


# -- the same script everywhere


def scripted(net: Network, at: Callable[[int], BrokerId], seed: int) -> list[list[Any]]:
    """Who got what, of a script in which all is quiet before each publication."""
    random = Random(seed)
    clients = [net.client(at=at(number)) for number in range(6)]
    for client in clients:
        client.advertise("")
    net.settle()
    held: list[tuple[Client, FilterId]] = []
    for _ in range(20):
        client = random.choice(clients)
        if held and random.random() < 0.3:
            owner, id = held.pop(random.randrange(len(held)))
            owner.unsubscribe(id)
        else:
            held.append((client, client.subscribe(random_filter(random))))
        net.settle()
        random.choice(clients).publish(random.choice(GRID))
        net.settle()
    return [[(n["x"], n["y"]) for n in client.received] for client in clients]


@pytest.mark.spec("08/6.10", "08/6.9", "03/P11", "07/P-02", "R-07.63", "R-08.40", "R-03.24")
@pytest.mark.parametrize("seed", range(3))
def test_every_overlay_delivers_the_same(seed: int) -> None:
    edges = random_tree(Random(seed), 6)
    expected = scripted(Network.tree([], brokers=[1]), lambda _: 1, seed)
    assert any(expected)
    networks = [Network.tree(edges, routing, seed=seed) for routing in ("flooding", *EXACT)]
    networks += [Network.tree(edges, "covering", ads, seed=seed) for ads in EXACT]
    networks += [Network.hierarchy(edges, routing, seed=seed) for routing in EXACT]
    networks += [Network.hybrid(edges[:1], {b: a for a, b in edges[1:]}, flooded=[2], seed=seed)]
    networks += [Network.graph([*edges, (1, 6)][: 5 + (edges[-1] != (1, 6))], seed=seed)]
    networks += [Network.mesh(6, seed=seed)]
    for net in networks:
        assert scripted(net, lambda number: number + 1, seed) == expected
