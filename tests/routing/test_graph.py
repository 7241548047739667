"""Routing on generic graphs: exact deliveries over unique trees, whatever fails and recovers."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from random import Random
from typing import Any, get_args

import pytest
from graph_overlay import Link, Overlay, random_links
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration, InvalidTopology, UnknownBroker, UnknownStrategy
from stentor.filters import Filter
from stentor.model import Notification
from stentor.routing.graph import GraphRouter
from stentor.routing.graph.link_states import UNREACHABLE, LinkState, LinkStates
from stentor.routing.graph.local_set import LocalSet
from stentor.routing.graph.messages import Topology
from stentor.routing.graph.paths import Edge, Graph, edge, order
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate
from stentor.routing.protocol import BrokerId, FilterId, LiveRouter, Message, Send, TableSize
from stentor.routing.reducers import ReductionName
from stentor.routing.strategy import Strategy
from stentor.routing.table import Local, Neighbor

seeds = st.integers(0, 2**32)
STRATEGIES = get_args(ReductionName)
strategies = st.sampled_from(STRATEGIES)
advertisement_strategies = st.sampled_from((None, *STRATEGIES))

#: All that notifications of these tests say.
GRID = [{"x": x, "y": y} for x in range(5) for y in range(2)]


def random_filter(random: Random) -> Filter:
    low, high = sorted(random.choices(range(5), k=2))
    return Filter(
        random.choice(
            (
                f"x between {low} and {high}",
                f"x between {low} and {high} and y = {random.randrange(2)}",
                f"x = {low}",
                f"x != {low}",
                f"y = {high % 2}",
                f"x < {low} or y = 1",
                "",
            )
        )
    )


def routers(
    strategy: str = "covering",
    advertisements: str | None = None,
    costs: dict[Edge, int] | None = None,
) -> Callable[[BrokerId], LiveRouter]:
    def make(id: BrokerId) -> LiveRouter:
        mine = {b if a == id else a: cost for (a, b), cost in (costs or {}).items() if id in (a, b)}
        return GraphRouter(id, strategy, advertisements, mine)

    return make


def ring(size: int) -> list[Link]:
    return [(number, (number + 1) % size) for number in range(size)]


def known_graph(overlay: Overlay) -> Graph:
    return Graph({edge(*link): 1 for link in overlay.links})


def smallest_subtree(
    graph: Graph, root: BrokerId, leaves: list[BrokerId]
) -> set[frozenset[BrokerId]]:
    parents = graph.tree(root).parents
    found: set[frozenset[BrokerId]] = set()
    for broker in leaves:
        while broker != root:
            found.add(frozenset((broker, parents[broker])))
            broker = parents[broker]
    return found


def check_everything(overlay: Overlay, at: list[BrokerId], events: list[dict[str, Any]]) -> None:
    """Exact, once, and over exactly the edges of the smallest subtree (07/P-03 on each tree)."""
    graph = known_graph(overlay)
    for broker in at:
        for attributes in events:
            used = overlay.check_delivery(broker, attributes)
            wanting = list(overlay.wanting(broker, attributes).values())
            expected = smallest_subtree(graph, broker, wanting)
            assert used == Counter(dict.fromkeys(expected, 1))


# -- paths


def simple_paths(graph: Graph, start: BrokerId, end: BrokerId) -> Iterator[list[BrokerId]]:
    def extend(path: list[BrokerId]) -> Iterator[list[BrokerId]]:
        if path[-1] == end:
            yield path
            return
        for a, b in graph.costs:
            for here, there in ((a, b), (b, a)):
                if here == path[-1] and there not in path:
                    yield from extend([*path, there])

    return extend([start])


def path_of(graph: Graph, start: BrokerId, end: BrokerId) -> list[BrokerId]:
    parents = graph.tree(start).parents
    path = [end]
    while path[-1] != start:
        path.append(parents[path[-1]])
    return path[::-1]


def path_cost(graph: Graph, path: list[BrokerId]) -> int:
    return sum(graph.costs[edge(a, b)] for a, b in pairwise(path))


def random_graph(random: Random, size: int = 6) -> Graph:
    brokers: list[BrokerId] = list(range(size))
    links = random_links(random, brokers, 0.4)
    return Graph({edge(*link): random.randint(1, 3) for link in links})


@given(seeds)
@settings(max_examples=40)
@pytest.mark.spec("R-08.56", "08/A7", "07/O4")
def test_paths_are_shortest_symmetric_and_consistent(seed: int) -> None:
    graph = random_graph(Random(seed))
    for a, b in combinations(range(6), 2):
        path = path_of(graph, a, b)
        costs = [path_cost(graph, other) for other in simple_paths(graph, a, b)]
        assert path_cost(graph, path) == min(costs) == graph.tree(a).costs[b]
        assert path_of(graph, b, a) == path[::-1]
        for i, j in combinations(range(len(path)), 2):
            assert path_of(graph, path[i], path[j]) == path[i : j + 1]


@given(seeds)
@settings(max_examples=40)
def test_a_tie_is_not_decided_anew_when_an_unused_link_goes(seed: int) -> None:
    random = Random(seed)
    graph = random_graph(random)
    gone = random.choice(list(graph.costs))
    smaller = Graph({e: cost for e, cost in graph.costs.items() if e != gone})
    for a, b in combinations(range(6), 2):
        path = path_of(graph, a, b)
        if gone not in {edge(*step) for step in pairwise(path)}:
            assert path_of(smaller, a, b) == path


def test_numbers_and_names_of_brokers_mix() -> None:
    brokers: list[BrokerId] = ["b", 2, "a", 1]
    assert sorted(brokers, key=order) == [1, 2, "a", "b"]
    assert edge("a", 7) == (7, "a")


@given(seeds)
@settings(max_examples=15)
@pytest.mark.spec("08/6.11", "R-08.43", "08/A7")
def test_ways_converge_to_the_shortest_static_ones(seed: int) -> None:
    random = Random(seed)
    graph = random_graph(random)
    overlay = Overlay(routers(costs=graph.costs), range(6), graph.costs, random)
    overlay.settle()
    for a in range(6):
        router = overlay.routers[a]
        assert all(router.towards(b) == path_of(graph, a, b)[1] for b in range(6) if b != a)


@pytest.mark.spec("08/A7")
def test_two_fast_links_beat_a_slow_one() -> None:
    costs: dict[Edge, int] = {("a", "b"): 10, ("a", "c"): 2, ("b", "c"): 3}
    overlay = Overlay(routers(costs=costs), "abc", costs)
    overlay.settle()
    assert [overlay.routers["a"].towards(to) for to in "bc"] == ["c", "c"]
    overlay.subscribe("b", "x = 1")
    overlay.settle()
    used = overlay.check_delivery("a", {"x": 1})
    assert used == {frozenset("ac"): 1, frozenset("bc"): 1}


def test_ends_that_disagree_on_a_cost_use_the_higher() -> None:
    a, b = LinkStates("a", {"b": 2}), LinkStates("b", {"a": 5})
    b.learn([a.linked("b")])
    a.learn([b.linked("a")])
    assert a.edges() == b.edges() == {("a", "b"): 5}


@pytest.mark.parametrize("cost", [0, -1, 1.5, True])
def test_costs_are_whole_and_positive(cost: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="whole number"):
        GraphRouter("a", costs={"b": cost})


# -- link states


def test_a_link_counts_only_if_both_ends_state_it() -> None:
    a = LinkStates("a")
    a.linked("b")
    a.learn([LinkState("b", 1, (("c", 1),)), LinkState("c", 1, (("b", 1),))])
    assert a.edges() == {("b", "c"): 1}


def test_an_older_state_changes_nothing() -> None:
    a = LinkStates("a")
    newer, older = LinkState("b", 2, ()), LinkState("b", 1, (("a", 1),))
    assert a.learn([newer]) == ([newer], [])
    assert a.learn([older, newer]) == ([], [newer])


def test_statements_of_brokers_that_are_gone_for_good_do_not_pile_up() -> None:
    a = LinkStates("a")
    a.learn([LinkState(f"b{i}", 1, ()) for i in range(UNREACHABLE + 10)])
    a.forget({"a"})
    assert {state.origin for state in a.all()} == {"a"} | {
        f"b{i}" for i in range(10, UNREACHABLE + 10)
    }


def test_a_broker_that_starts_again_outdoes_its_former_life() -> None:
    again = LinkStates("a")
    again.linked("b")
    former = LinkState("a", 7, (("z", 1),))
    [restated], answers = again.learn([former])
    assert answers == [restated]
    assert (restated.number, restated.links) == (8, (("b", 1),))


def test_two_lives_with_the_same_number_end_in_one_that_all_hold() -> None:
    present = LinkStates("a")
    states = [present.linked("b"), LinkState("a", 1, (("z", 1),))]
    for first, second in (states, states[::-1]):
        far = LinkStates("far")
        far.learn([first])
        far.learn([second])
        kept = next(state for state in far.all() if state.origin == "a")
        assert kept.links == (("z", 1),)
    assert [state.number for state in present.learn(states[1:])[0]] == [2]


@given(seeds)
@settings(max_examples=36)
def test_trees_that_are_kept_are_those_of_the_new_graph(seed: int) -> None:
    random = Random(seed)
    brokers = [*"abcdefg"]
    costs: dict[Edge, int] = {}
    graph = Graph(costs)
    for _ in range(12):
        a, b = random.sample(brokers, 2)
        if random.random() < 0.3:
            costs.pop(edge(a, b), None)
        else:
            costs[edge(a, b)] = random.randint(1, 3)
        for broker in brokers:
            graph.tree(broker)
        graph = graph.changed(costs)
        for broker in brokers:
            known, computed = graph.tree(broker), Graph(costs).tree(broker)
            assert known.parents == computed.parents
            assert known.costs == computed.costs


# -- reduction of a broker's own filters


def matched(filters: Any, attributes: dict[str, Any]) -> bool:
    return any(filter.matches(attributes) for filter in filters)


@given(strategies, seeds)
@settings(max_examples=48)
@pytest.mark.spec("03/P3", "03/P9", "03/P12")
def test_what_is_announced_matches_what_is_held(strategy: str, seed: int) -> None:
    random = Random(seed)
    local = LocalSet(Strategy(strategy))
    mirror: dict[int, Filter] = {}
    for number in range(60):
        if number > 30 and not local.filters:
            break
        if local.filters and (number > 30 or random.random() < 0.4):
            local.remove(random.choice(list(local.filters)))
        else:
            local.add(FilterId("c", number), random_filter(random))
        delta = local.take()
        for gone in delta.remove:
            del mirror[gone]
        assert not mirror.keys() & dict(delta.add).keys()
        mirror.update(delta.add)
        for attributes in GRID:
            assert matched(mirror.values(), attributes) == matched(
                local.filters.values(), attributes
            )
        announced = list(mirror.values())
        if strategy == "simple":
            assert len(announced) == len(local.filters)
        else:
            assert len(set(announced)) == len(announced)
        if strategy in ("covering", "merging"):
            assert not any(a.covers(b) or b.covers(a) for a, b in combinations(announced, 2))
    assert mirror == {}


@pytest.mark.spec("07/P-07", "07/T-04")
def test_what_a_coverer_hid_is_announced_in_the_step_that_withdraws_it() -> None:
    local = LocalSet(Strategy("covering"))
    large, small = FilterId("a", 1), FilterId("b", 1)
    local.add(large, Filter("x > 0"))
    local.add(small, Filter("x > 3"))
    assert local.take() == (((0, Filter("x > 0")),), ())
    local.remove(large)
    assert local.take() == (((1, Filter("x > 3")),), (0,))


def test_a_hidden_filter_survives_when_what_hid_it_goes_first() -> None:
    local = LocalSet(Strategy("covering"))
    for number, text in enumerate(("x > 3", "x > 2", "x > 1")):
        local.add(FilterId("a", number), Filter(text))
    local.take()
    local.remove(FilterId("a", 1))
    assert local.take() == ((), ())
    local.remove(FilterId("a", 2))
    assert [filter for _, filter in local.take().add] == [Filter("x > 3")]


@pytest.mark.spec("03/X-03.21")
def test_a_merger_is_undone_exactly() -> None:
    local = LocalSet(Strategy("merging"))
    low, high = FilterId("a", 1), FilterId("a", 2)
    local.add(low, Filter("x between 0 and 5"))
    assert local.take() == (((0, Filter("x between 0 and 5")),), ())
    local.add(high, Filter("x between 5 and 10"))
    assert local.take() == (((1, Filter("x between 0 and 10")),), (0,))
    local.remove(low)
    assert local.take() == (((2, Filter("x between 5 and 10")),), (1,))


def test_a_merger_that_needs_a_lost_part_no_more_is_not_announced_anew() -> None:
    local = LocalSet(Strategy("merging"))
    for number, text in enumerate(("x <= 5", "x between 2 and 7", "x <= 4")):
        local.add(FilterId("a", number), Filter(text))
    local.add(FilterId("b", 1), Filter("x <= 7"))
    local.take()
    local.remove(FilterId("b", 1))
    assert local.take() == ((), ())


def test_a_filter_that_nothing_matches_is_not_announced() -> None:
    never = Filter("x = 1 and x = 2")
    local = LocalSet(Strategy("covering"))
    local.add(FilterId("a", 1), never)
    assert local.take() == ((), ())


@pytest.mark.parametrize("given", [{"routing": "best"}, {"advertisements": "best"}])
def test_an_unknown_strategy_is_refused_with_those_there_are(given: dict[str, str]) -> None:
    with pytest.raises(UnknownStrategy, match="simple, identity, covering, merging"):
        GraphRouter("a", **given)  # type: ignore[arg-type]


# -- stable graphs


@given(strategies, seeds)
@settings(max_examples=25)
@pytest.mark.spec("07/P-02", "07/P-09", "07/O4", "08/6.11", "03/P5")
def test_delivery_is_exact_on_any_graph_under_any_schedule(strategy: str, seed: int) -> None:
    random = Random(seed)
    brokers: list[BrokerId] = list(range(random.randint(2, 7)))
    overlay = Overlay(routers(strategy), brokers, random_links(random, brokers, 0.4), random)
    for number in range(12):
        overlay.subscribe(random.choice(brokers), random_filter(random), f"c{number % 8}")
        overlay.run(random.randrange(10))
        if random.random() < 0.3:
            overlay.unsubscribe(random.choice(list(overlay.subscriptions)))
    overlay.settle()
    check_everything(overlay, random.sample(brokers, 2), random.sample(GRID, 4))


@given(strategies, strategies, seeds)
@settings(max_examples=25)
@pytest.mark.spec("07/P-08", "08/6.9", "08/6.10", "R-03.45")
def test_delivery_is_exact_with_advertisements(strategy: str, ads: str, seed: int) -> None:
    random = Random(seed)
    brokers: list[BrokerId] = list(range(random.randint(2, 6)))
    overlay = Overlay(routers(strategy, ads), brokers, random_links(random, brokers, 0.4), random)
    for _ in range(14):
        at = random.choice(brokers)
        act = random.random()
        if act < 0.4:
            overlay.subscribe(at, random_filter(random))
        elif act < 0.7:
            overlay.advertise(at, random_filter(random))
        elif act < 0.85 and overlay.subscriptions:
            overlay.unsubscribe(random.choice(list(overlay.subscriptions)))
        elif overlay.advertisements:
            overlay.unadvertise(random.choice(list(overlay.advertisements)))
        overlay.run(random.randrange(10))
    overlay.settle()
    check_interests_lead_to_publishers_only(overlay)
    for at, advertised in list(overlay.advertisements.values()):
        events = [attributes for attributes in GRID if advertised.matches(attributes)]
        check_everything(overlay, [at], events[:3])


def check_interests_lead_to_publishers_only(overlay: Overlay) -> None:
    """A broker holds of an origin what overlaps an advertisement behind it, and nothing else."""
    graph = known_graph(overlay)
    for broker, router in overlay.routers.items():
        held = {
            (origin, filter)
            for told in router._interests._held.values()
            for origin, filters in told.items()
            for filter in filters.values()
            if origin != broker
        }
        for origin, filter in held:
            publishers = [p for p, f in overlay.advertisements.values() if f.overlaps(filter)]
            near = overlay.component(origin)
            assert any(broker in path_of(graph, origin, p) for p in publishers if p in near)


@given(strategies, seeds)
@settings(max_examples=15)
@pytest.mark.spec("07/P-09", "07/T-06", "R-08.43")
def test_accepted_edges_of_each_filter_form_its_origins_tree(strategy: str, seed: int) -> None:
    random = Random(seed)
    brokers: list[BrokerId] = list(range(6))
    overlay = Overlay(routers(strategy), brokers, random_links(random, brokers, 0.5), random)
    overlay.settle()
    before = len(overlay.sent)
    overlay.subscribe(3, "x > 1")
    overlay.settle()
    edges = Counter((sender, receiver) for sender, receiver, _ in overlay.sent[before:])
    parents = known_graph(overlay).tree(3).parents
    assert edges == Counter({(parent, broker): 1 for broker, parent in parents.items()})


@given(strategies, advertisement_strategies, seeds)
@settings(max_examples=25)
@pytest.mark.spec("07/P-10", "03/P9", "03/P10")
def test_unsubscribing_everything_empties_all_tables(
    strategy: str, ads: str | None, seed: int
) -> None:
    random = Random(seed)
    brokers: list[BrokerId] = list(range(5))
    overlay = Overlay(routers(strategy, ads), brokers, random_links(random, brokers, 0.5), random)
    for broker in brokers:
        overlay.advertise(broker, random_filter(random))
        overlay.subscribe(broker, random_filter(random))
        overlay.subscribe(broker, random_filter(random), "d")
    overlay.run(random.randrange(100))
    for id in random.sample(list(overlay.subscriptions), len(overlay.subscriptions)):
        overlay.unsubscribe(id)
        overlay.run(random.randrange(5))
        if overlay.links and random.random() < 0.3:
            a, b = random.choice(sorted(map(tuple, overlay.links)))
            overlay.disconnect(a, b)
            if random.random() < 0.7:
                overlay.connect(a, b)
    for id in list(overlay.advertisements):
        overlay.unadvertise(id)
    overlay.settle()
    assert all(router.table_size() == TableSize() for router in overlay.routers.values())
    for router in overlay.routers.values():
        for spread in (router._interests, router._offers):
            assert spread.origins() == []
        while router.has_work:
            router.work()
        assert router.is_empty
        for owners in (router._wanted, router._offered):
            assert owners.filters == []
            assert len(owners.engine) == 0


@pytest.mark.spec("08/8.6")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_concurrent_subscriptions_in_a_triangle(strategy: str) -> None:
    overlay = Overlay(routers(strategy), ["X", "Y1", "Y2"], combinations(["X", "Y1", "Y2"], 2))
    overlay.settle()
    overlay.subscribe("Y1", "x = 1")
    overlay.subscribe("Y2", "x = 1")
    overlay.settle()
    overlay.check_delivery("X", {"x": 1})
    overlay.subscribe("X", "x = 1")
    overlay.settle()
    check_everything(overlay, ["Y1", "Y2", "X"], [{"x": 1}, {"x": 2}])


@pytest.mark.spec("07/P-03")
def test_on_a_ring_a_notification_takes_the_short_ways_only() -> None:
    overlay = Overlay(routers(), range(6), ring(6))
    for broker in (1, 2, 5):
        overlay.subscribe(broker, "x = 1")
    overlay.settle()
    used = overlay.check_delivery(0, {"x": 1})
    assert used == {frozenset((0, 1)): 1, frozenset((1, 2)): 1, frozenset((0, 5)): 1}
    assert overlay.check_delivery(0, {"x": 2}) == {}


@pytest.mark.spec("03/X-03.25", "03/8.16")
@pytest.mark.parametrize("way", [1, -1])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_withdrawal_round_a_ring_comes_to_rest(strategy: str, way: int) -> None:
    overlay = Overlay(routers(strategy), range(3), ring(3))
    overlay.settle()
    overlay.unsubscribe(overlay.subscribe(0, "x = 1"))
    for _ in range(3):
        for sender in (0, way % 3, 2 * way % 3):
            channel = (sender, (sender + way) % 3)
            while overlay.channels[channel]:
                overlay.step(*channel)
    overlay.settle()
    assert overlay.entries() == 0


@pytest.mark.spec("07/P-07", "07/T-04")
@pytest.mark.parametrize("steps", range(4))
def test_no_gap_when_a_coverer_is_withdrawn(steps: int) -> None:
    overlay = Overlay(routers(), range(4), ring(4))
    overlay.subscribe(0, "x > 3", "small")
    large = overlay.subscribe(0, "x > 0", "large")
    overlay.settle()
    overlay.unsubscribe(large)
    overlay.run(steps)
    overlay.check_delivery(2, {"x": 4})


@pytest.mark.spec("R-01.37", "08/6.9")
def test_the_order_of_subscribing_and_advertising_does_not_matter() -> None:
    tables = []
    for first in ("subscribe", "advertise"):
        overlay = Overlay(routers(advertisements="covering"), range(5), ring(5))
        for act in (first, "advertise" if first == "subscribe" else "subscribe"):
            if act == "subscribe":
                overlay.subscribe(0, "x > 2")
            else:
                overlay.advertise(2, "x between 1 and 4")
            overlay.settle()
        check_everything(overlay, [2], [{"x": 3}, {"x": 1}])
        tables.append([router.table_size() for router in overlay.routers.values()])
        assert all(r.offers() == [Filter("x between 1 and 4")] for r in overlay.routers.values())
    assert tables[0] == tables[1]
    assert [size.remote for size in tables[0]] == [0, 1, 1, 0, 0]


@pytest.mark.spec("07/P-08", "07/T-02")
def test_interests_are_withdrawn_when_the_last_overlapping_advertisement_goes() -> None:
    overlay = Overlay(routers(advertisements="simple"), range(4), ring(4))
    advertised = [overlay.advertise(2, text) for text in ("x > 2", "x < 9")]
    overlay.subscribe(0, "x > 5")
    overlay.settle()
    assert overlay.entries() == 1 + 2
    overlay.unadvertise(advertised[0])
    overlay.settle()
    assert overlay.entries() == 1 + 2
    overlay.unadvertise(advertised[1])
    overlay.settle()
    assert [r.table_size() for r in overlay.routers.values()] == [TableSize(1), *[TableSize()] * 3]


def test_without_advertisement_routing_offers_are_the_brokers_own() -> None:
    overlay = Overlay(routers(), "ab", [("a", "b")])
    id = overlay.advertise("a", "x > 1")
    overlay.settle()
    assert overlay.routers["a"].offers() == [Filter("x > 1")]
    assert overlay.routers["b"].offers() == []
    overlay.unadvertise(id)
    assert overlay.routers["a"].offers() == []


@pytest.mark.spec("R-03.07", "03/P12")
def test_repeated_and_unknown_ids_change_nothing() -> None:
    router = GraphRouter("a", advertisements="covering")
    router.link_up("b")
    id = FilterId("ann", 1)
    router.subscribe(id, Filter("x > 1"))
    router.advertise(id, Filter("x > 1"))
    assert router.subscribe(id, Filter("x > 0")) == router.advertise(id, Filter("x > 0")) == []
    assert router.unsubscribe(FilterId("ann", 2)) == router.unadvertise(FilterId("ann", 2)) == []
    assert router.table_size() == TableSize(local=1, advertisements=1)
    assert router.offers() == [Filter("x > 1")]


def test_a_publisher_gets_what_it_subscribed_to_and_each_client_one_copy() -> None:
    router = GraphRouter("a")
    for number, text in enumerate(("x > 0", "x > 1", "x = 5")):
        router.subscribe(FilterId("ann", number), Filter(text))
    assert router.route_leading([Notification({"x": 5})], None, None) == (1, {Local("ann"): [0]})


# -- graphs that change


ACTS = ("subscribe", "unsubscribe", "down", "up", "up", "crash", "publish", "advertise")


def act_at_random(overlay: Overlay, random: Random, brokers: list[BrokerId], ads: bool) -> None:
    absent = [pair for pair in combinations(brokers, 2) if frozenset(pair) not in overlay.links]
    present = [pair for pair in combinations(brokers, 2) if frozenset(pair) in overlay.links]
    act = random.choice(ACTS)
    at = random.choice(brokers)
    if act == "subscribe":
        overlay.subscribe(at, random_filter(random), f"c{random.randrange(3)}")
    elif act == "unsubscribe" and overlay.subscriptions:
        overlay.unsubscribe(random.choice(list(overlay.subscriptions)))
    elif act == "down" and present:
        overlay.disconnect(*random.choice(present))
    elif act == "up" and absent:
        overlay.connect(*random.choice(absent))
    elif act == "crash" and random.random() < 0.4:
        overlay.crash(at)
    elif act == "publish":
        overlay.publish(at, **random.choice(GRID))
    elif act == "advertise" and ads:
        overlay.advertise(at, random_filter(random))
        if len(overlay.advertisements) > 3:
            overlay.unadvertise(random.choice(list(overlay.advertisements)))


@given(strategies, advertisement_strategies, seeds)
@settings(max_examples=36)
@pytest.mark.spec("08/6.11", "07/P-10", "R-03.42", "03/A15", "03/8.14", "03/8.16")
def test_after_any_faults_delivery_is_exact_again(
    strategy: str, ads: str | None, seed: int
) -> None:
    random = Random(seed)
    brokers: list[BrokerId] = [*range(random.randint(1, 3)), "a", "b", "c"]
    links = random_links(random, brokers, 0.3)
    overlay = Overlay(routers(strategy, ads), brokers, links, random)
    for _ in range(40):
        act_at_random(overlay, random, brokers, ads is not None)
        overlay.run(random.choice((0, 1, 3, 10, 50)))
    overlay.settle()
    repeated = Counter(overlay.delivered)
    assert all(times == 1 for times in repeated.values()), "not even meanwhile"
    if ads is None:
        check_everything(overlay, random.sample(brokers, 3), random.sample(GRID, 3))
    else:
        check_interests_lead_to_publishers_only(overlay)
        for at, advertised in list(overlay.advertisements.values()):
            events = [attributes for attributes in GRID if advertised.matches(attributes)]
            check_everything(overlay, [at], events[:3])
    for id in list(overlay.subscriptions):
        overlay.unsubscribe(id)
    overlay.settle()
    assert overlay.entries() == 0


@pytest.mark.spec("08/6.11", "R-08.43")
@pytest.mark.parametrize("broker", range(5))
def test_any_broker_of_a_ring_may_fail(broker: int) -> None:
    overlay = Overlay(routers(), range(5), ring(5))
    for other in range(5):
        overlay.subscribe(other, "x = 1")
    overlay.settle()
    overlay.crash(broker)
    overlay.settle()
    rest = [other for other in range(5) if other != broker]
    check_everything(overlay, list(rest), [{"x": 1}])
    assert all(overlay.routers[other].table_size().remote == 3 for other in rest)
    overlay.connect(broker, (broker + 1) % 5)
    overlay.connect((broker - 1) % 5, broker)
    overlay.subscribe(broker, "x = 1")
    overlay.settle()
    check_everything(overlay, list(range(5)), [{"x": 1}])


@pytest.mark.spec("07/P-10")
def test_a_partition_forgets_the_other_side_and_learns_it_again() -> None:
    overlay = Overlay(
        routers("merging"), range(6), [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (2, 3)]
    )
    gone = overlay.subscribe(0, "x = 1")
    overlay.subscribe(5, "x = 2")
    overlay.settle()
    overlay.disconnect(2, 3)
    overlay.settle()
    assert [r.table_size().total for r in overlay.routers.values()] == [1, 1, 1, 1, 1, 1]
    overlay.unsubscribe(gone)
    overlay.subscribe(1, "x = 3")
    overlay.settle()
    overlay.connect(1, 4)
    overlay.settle()
    assert all(r.table_size().total == 2 for r in overlay.routers.values())
    check_everything(overlay, list(range(6)), [{"x": 1}, {"x": 2}, {"x": 3}])


def test_a_broker_that_joins_learns_everything() -> None:
    overlay = Overlay(routers(), range(4), [(0, 1), (1, 2)])
    overlay.subscribe(0, "x = 1")
    overlay.settle()
    overlay.connect(3, 2)
    overlay.subscribe(3, "x = 1")
    overlay.settle()
    check_everything(overlay, list(range(4)), [{"x": 1}])


def test_a_change_of_trees_leaves_the_others_alone() -> None:
    """A link that no shortest path uses comes and goes without a word about filters."""
    costs: dict[Edge, int] = {("a", "b"): 1, ("b", "c"): 1, ("a", "c"): 9}
    overlay = Overlay(routers(costs=costs), "abc", [("a", "b"), ("b", "c")])
    for broker in "abc":
        overlay.subscribe(broker, "x = 1")
    overlay.settle()
    before = len(overlay.sent)
    overlay.connect("a", "c")
    overlay.settle()
    overlay.disconnect("a", "c")
    overlay.settle()
    assert {type(message) for _, _, message in overlay.sent[before:]} == {Topology}


def test_whose_notifications_come_another_way_is_told() -> None:
    """Whoever has to have all of them reads what it has missed by the old way."""
    overlay = Overlay(routers(), "abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    overlay.settle()
    for router in overlay.routers.values():
        router.take_changes()
    overlay.disconnect("a", "b")
    overlay.settle()
    moved = {id: router.take_changes() for id, router in overlay.routers.items()}
    ways = {
        id: {root for root, change in found.items() if change.way} for id, found in moved.items()
    }
    assert ways["b"] >= {"a"}
    assert ways["a"] >= {"b"}
    assert "d" not in ways["c"]


def test_of_a_changed_way_the_old_child_and_the_new_one_are_told() -> None:
    overlay = Overlay(routers(), "abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    overlay.settle()
    router = overlay.routers["a"]
    router.take_changes()
    overlay.disconnect(path_of(known_graph(overlay), "a", "c")[1], "c")
    overlay.settle()
    assert router.take_changes()["a"].children == {"b", "d"}


@pytest.mark.spec("03/8.14")
def test_nothing_of_a_links_former_life_is_left() -> None:
    overlay = Overlay(routers(), "ab", [("a", "b")])
    id = overlay.subscribe("a", "x = 1")
    overlay.settle()
    overlay.disconnect("a", "b")
    assert overlay.routers["b"].table_size() == TableSize()
    overlay.unsubscribe(id)
    overlay.connect("a", "b")
    overlay.settle()
    assert overlay.entries() == 0


# -- subtrees


def with_a_child(routing: str) -> GraphRouter:
    router = GraphRouter("a", routing)
    router.place("below", "child")
    router.link_up("below")
    return router


def test_a_subtree_gets_what_it_asks_for_and_nothing_of_its_own_back() -> None:
    router = with_a_child("covering")
    wanted, event = Filter("x > 1"), Notification({"x": 2})
    router.receive("below", SubscriptionUpdate(((wanted, wanted),), ()))
    assert router.route_leading([event], None, None) == (1, {Neighbor("below"): [0]})
    assert router.route_leading([event], "below", None) == (1, {})
    router.receive("below", SubscriptionUpdate((), (wanted,)))
    assert router.route_leading([event], None, None) == (1, {})
    assert router.is_empty


def test_a_subtree_is_flooded_where_all_are() -> None:
    router, event = with_a_child("flooding"), Notification({"x": 2})
    assert router.route_leading([event], None, None) == (1, {Neighbor("below"): [0]})
    assert router.route_leading([event], "below", None) == (1, {})


# -- unknown brokers, and mistakes of the host


def introduce(router: GraphRouter, *others: BrokerId) -> None:
    """Let the router believe that it is linked to others, and that they know it."""
    for other in others:
        router.link_up(other)
        router.receive(other, Topology((LinkState(other, 1, ((router.id, 1),)),)))


def interest(origin: str, number: int, filter: Filter) -> SubscriptionUpdate:
    return SubscriptionUpdate(((FilterId(origin, number), filter),), ())


def offer(origin: str, number: int, filter: Filter) -> AdvertisementUpdate:
    return AdvertisementUpdate(((FilterId(origin, number), filter),), ())


def test_a_notification_from_an_unknown_broker_goes_to_local_clients_only() -> None:
    router = GraphRouter("b")
    introduce(router, "a", "c")
    router.subscribe(FilterId("ann", 1), Filter("x = 1"))
    router.receive("c", interest("c", 0, Filter("x = 1")))
    assert router.route_leading([Notification({"x": 1})], "a", None, "z") == (
        1,
        {Local("ann"): [0]},
    )
    everywhere = {Local("ann"): [0], Neighbor("c"): [0]}
    assert router.route_leading([Notification({"x": 1})], "a", None, "a") == (1, everywhere)


@pytest.mark.spec("07/P-08")
def test_an_advertisement_lost_with_a_link_takes_interests_back_elsewhere() -> None:
    """A neighbor told of it that is no longer on the way to it: no tree of concern changes."""
    router = GraphRouter("b", advertisements="covering")
    introduce(router, "c", "n", "o")
    links = {"a": "c", "c": "ab", "n": "bo", "o": "bn"}
    states = (LinkState(at, 2, tuple((to, 1) for to in others)) for at, others in links.items())
    router.receive("c", Topology(tuple(states)))
    router.receive("n", offer("a", 0, Filter("x > 1")))
    told = router.receive("o", interest("o", 0, Filter("x > 5")))
    assert told == [Send("c", interest("o", 0, Filter("x > 5")))]
    assert Send("c", SubscriptionUpdate((), (FilterId("o", 0),))) in router.link_down("n")


class Alien(Message, frozen=True):
    kind = "control"


def test_mistakes_of_the_host_are_named() -> None:
    router = GraphRouter("a")
    with pytest.raises(UnknownBroker, match="'b' is not a neighbor of 'a'"):
        router.receive("b", Alien())
    with pytest.raises(UnknownBroker, match="no link to 'b'"):
        router.link_down("b")
    with pytest.raises(InvalidTopology, match="'a'"):
        router.link_up("a")
    router.link_up("b")
    with pytest.raises(InvalidTopology, match="second link to 'b'"):
        router.link_up("b")
    with pytest.raises(InvalidConfiguration, match="Alien"):
        router.receive("b", Alien())


def test_runs_repeat_exactly() -> None:
    def run() -> list[tuple[BrokerId, BrokerId, str]]:
        random = Random(7)
        brokers: list[BrokerId] = [*"abcde"]
        overlay = Overlay(
            routers("merging", "merging"), brokers, random_links(random, brokers, 0.5)
        )
        for _ in range(40):
            act_at_random(overlay, random, brokers, True)
            overlay.run(5)
        overlay.settle()
        return [(a, b, repr(message)) for a, b, message in overlay.sent]

    assert run() == run()
