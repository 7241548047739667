"""Meghdoot: subscriptions as points, events as boxes, zones of a CAN as rendezvous."""

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration, UnsupportedMapping
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.research.rendezvous.axes import Axis
from stentor.research.rendezvous.boxes import MAX_POINTS, BoxPlacement, BoxRouter, BoxSpace
from stentor.research.rendezvous.can import SIDE, Box, Can, Point
from stentor.research.rendezvous.direct import Keep, Publication
from stentor.routing.protocol import FilterId, Router, Send
from stentor.simulation import Network

AXES = (
    Axis("x", 0, 3),
    Axis("s", "a", "c"),
    Axis("at", datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 3, tzinfo=UTC)),
    Axis("m", 0, 2),
)
#: One point for each whole number from 0 to 100, so that points read like the ranges.
HUNDRED = BoxSpace([Axis("x", 0, 100)], side=101)


def inside(point: Point, box: Box | None) -> bool:
    assert box is not None
    return all(
        first <= c <= last for first, c, last in zip(box.first, point, box.last, strict=True)
    )


# -- points and boxes


@pytest.mark.spec("07/E-14")
def test_ranges_are_points_and_an_event_is_the_box_of_those_it_matches():
    points = {
        name: HUNDRED.points_of(Filter(text))[0]
        for name, text in {
            "σ1": "x between 10 and 30",
            "σ2": "x between 25 and 60",
            "σ3": "exists x",
        }.items()
    }
    assert points == {"σ1": (10, 30), "σ2": (25, 60), "σ3": (0, 100)}
    assert HUNDRED.box_of({"x": 28}) == Box((0, 28), (28, 100))
    assert HUNDRED.box_of({"x": 40}) == Box((0, 40), (40, 100))
    in_boxes = {
        value: [
            name for name, point in points.items() if inside(point, HUNDRED.box_of({"x": value}))
        ]
        for value in (28, 40)
    }
    assert in_boxes == {28: ["σ1", "σ2", "σ3"], 40: ["σ2", "σ3"]}


@pytest.mark.spec("07/E-14")
def test_with_four_zones_an_event_enters_at_its_corner_and_visits_two():
    corners = {"sw": (0, 0), "se": (100, 0), "nw": (0, 100), "ne": (100, 100)}
    can = Can.of(corners, 2, side=101)
    assert {name: can.zone(name).low for name in can} == {
        "sw": (0, 0),
        "se": (50, 0),
        "nw": (0, 50),
        "ne": (50, 50),
    }
    placement = BoxPlacement(HUNDRED, ["unused"])
    placement.can = can
    event = Notification({"x": 40})
    assert HUNDRED.entry_of(event) == (40, 40)
    assert visited(placement, event) == ["sw", "nw"]
    assert sorted(n for n in can if can.zone(n).meets(Box((0, 40), (40, 100)))) == ["nw", "sw"]


def visited(placement: BoxPlacement, event: Notification) -> list[Any]:
    """The zones that an event comes to when each passes it on to its neighbors."""
    found = dict.fromkeys(placement.entries(event))
    for broker in (queue := list(found)):
        for other in placement.onward(broker, event):
            if other not in found:
                found[other] = None
                queue.append(other)
    return list(found)


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("x = 7", [(7, 7)]),
        ("x != 7", [(0, 7), (7, 100)]),
        ("x > 30", [(30, 100)]),
        ("x < 30", [(0, 30)]),
        ("x in (1, 50)", [(1, 1), (50, 50)]),
        ("x < 10 or x > 20", [(0, 10), (20, 100)]),
        ("x > 1000", [(100, 100)]),
        ("x < -1", [(0, 0)]),
        ("x is string", [(0, 100)]),
        ("x = 1 and x = 2", []),
    ],
)
def test_what_filters_become(text, points):
    assert HUNDRED.points_of(Filter(text)) == points


def test_a_prefix_is_a_range_and_other_patterns_are_the_whole_one():
    space = BoxSpace([Axis("s", "A", "Q")], side=16)
    assert space.points_of(Filter("s prefix 'E'")) == [(4, 4)]
    for text in ("s suffix 'E'", "s contains 'E'", "s regex '(ab)+$'"):
        assert space.points_of(Filter(text)) == [(0, 15)]


def test_a_union_is_several_points():
    space = BoxSpace([Axis("x", 0, 4), Axis("y", 0, 4)], side=4)
    both = Filter("x = 1 and y = 2 or x = 3 and y = 0")
    assert sorted(space.points_of(both)) == [(1, 1, 2, 2), (3, 3, 0, 0)]


def test_gaps_are_closed_where_there_would_be_too_many_points():
    listed = ", ".join(str(2 * n) for n in range(9))
    space = BoxSpace([Axis("x", 0, 100), Axis("y", 0, 100)], side=101)
    assert len(space.points_of(Filter(f"x in ({listed}) and y = 1"))) == 9
    assert MAX_POINTS < 9 * 9
    assert space.points_of(Filter(f"x in ({listed}) and y in ({listed})")) == [(0, 16, 0, 16)]


# -- the intersection rule


@pytest.mark.spec("07/P-05", "07/T-12", "07/T-15")
@given(
    strategies.filters,
    st.lists(strategies.events, min_size=4, max_size=4),
    st.integers(1, len(AXES)),
    st.sampled_from((4, SIDE)),
)
def test_what_matches_an_event_has_a_point_in_its_box(filter, events, count, side):
    """The whole language, absent attributes and attributes of a wrong type included."""
    space = BoxSpace(AXES[:count], catch_all=True, side=side)
    points = space.points_of(filter)
    for event in events:
        if filter.matches(event):
            box = space.box_of(event)
            if box is None:
                assert space.entry_of(event) in points
            else:
                assert any(inside(point, box) for point in points)


@pytest.mark.spec("07/P-05")
@given(
    strategies.filters,
    st.lists(strategies.events, min_size=3, max_size=3),
    st.sets(st.integers(0, 30), min_size=1, max_size=12),
)
def test_they_meet_at_a_broker_whatever_brokers_there_are(filter, events, brokers):
    placement = BoxPlacement(BoxSpace(AXES[:2], catch_all=True), brokers)
    homes = placement.homes(filter)
    for attributes in events:
        event = Notification({**attributes, "z": 1})
        found = visited(placement, event)
        box = placement.space.box_of(event)
        if box is not None:
            meeting = {b for b in brokers if placement.can.zone(b).meets(box)}
            assert set(found) == meeting
        if filter.matches(attributes):
            assert set(homes) & set(found)


@given(st.sets(st.integers(0, 99), min_size=1, max_size=20), st.integers(100, 120))
def test_zones_depend_on_the_set_of_brokers_only_and_a_join_changes_only_what_it_halves(
    brokers, newcomer
):
    space = BoxSpace(AXES[:1])
    before, again = space.shared_by(brokers), space.shared_by(sorted(brokers, reverse=True))
    assert {b: before.zone(b) for b in brokers} == {b: again.zone(b) for b in brokers}
    after = space.shared_by([*brokers, newcomer])
    changed = [b for b in brokers if after.zone(b) != before.zone(b)]
    # All that changed lies together in one node of the tree, whose points stay among its members.
    lost = {b: before.zone(b) for b in changed}
    for zone in [after.zone(newcomer), *map(after.zone, changed)]:
        assert any(old.contains(zone.low) for old in lost.values())


def test_a_join_changes_few_zones():
    space = BoxSpace(AXES[:1])
    few = space.shared_by(range(64))
    changes = []
    for newcomer in range(64, 96):
        more = space.shared_by([*range(64), newcomer])
        changes.append(sum(more.zone(b) != few.zone(b) for b in range(64)))
    assert min(changes) >= 1
    assert sum(changes) / len(changes) < 8  # about the logarithm of 64


# -- the limits of the language


@pytest.mark.spec("07/T-12")
def test_a_filter_that_accepts_a_missing_attribute_is_refused_with_what_to_add():
    space = BoxSpace([Axis("x", 0, 100), Axis("y", 0, 100)])
    with pytest.raises(UnsupportedMapping) as refused:
        space.points_of(Filter("x > 3"))
    assert str(refused.value) == (
        "the filter 'x > 3' also matches events without the indexed attribute y, which have no "
        "place in this mapping; add 'exists y' to it, or make the mapping with catch_all=True"
    )
    for text in ("", "x is missing and y = 1", "x = 1 and y = 1 or y = 2"):
        with pytest.raises(UnsupportedMapping, match="exists x"):
            space.points_of(Filter(text))
    assert space.entry_of({"x": 1}) is None
    with pytest.raises(InvalidConfiguration):
        BoxSpace([])


@pytest.mark.spec("07/T-12")
def test_with_a_catch_all_it_is_kept_at_the_bottom_corner_as_well():
    space = BoxSpace([Axis("x", 0, 4), Axis("y", 0, 4)], catch_all=True, side=4)
    assert space.points_of(Filter("x = 2")) == [(0, 0, 0, 0), (2, 2, 0, 3)]
    assert space.points_of(Filter("x is missing")) == [(0, 0, 0, 0)]
    assert space.points_of(Filter("x = 2 and exists y")) == [(2, 2, 0, 3)]
    assert space.entry_of({"x": 2}) == (0, 0, 0, 0)
    assert space.box_of({"x": 2}) is None


# -- load


def gini(load: list[int]) -> float:
    """0 if all carry the same, nearly 1 if one carries everything."""
    ranked = sorted(load)
    n = len(ranked)
    return sum((2 * i - n + 1) * x for i, x in enumerate(ranked)) / (n * sum(ranked))


@pytest.mark.spec("07/T-11")
def test_load_is_skewed_as_half_of_the_plane_is_empty_and_wide_ranges_crowd_a_corner():
    rng = random.Random(3)
    space = BoxSpace([Axis("x", 0, 100)])
    anywhere = {n: (rng.randrange(SIDE), rng.randrange(SIDE)) for n in range(64)}
    plain, ours = Can.of(anywhere, 2), space.shared_by(range(64))

    def load(can: Can, low: tuple[float, float], high: tuple[float, float]) -> list[int]:
        ends = [sorted((rng.uniform(*low), rng.uniform(*high))) for _ in range(500)]
        kept: Counter[Any] = Counter()
        for a, b in ends:
            kept.update(map(can.owner, space.points_of(Filter(f"x between {a} and {b}"))))
        return [kept[broker] for broker in can]

    everywhere, wide = ((0, 100), (0, 100)), ((0, 20), (80, 100))
    mixed = load(plain, *everywhere)
    assert gini(mixed) > 0.5
    assert mixed.count(0) > 64 / 4
    # Joining where l <= h helps against the empty half ...
    better = load(ours, *everywhere)
    assert gini(better) < gini(mixed) - 0.1
    assert better.count(0) < mixed.count(0) / 2
    # ... but nothing helps against the crowd in the corner.
    for can in (plain, ours):
        crowded = load(can, *wide)
        assert gini(crowded) > 0.9
        assert crowded.count(0) > 0.8 * 64


# -- the router


def event(number: int = 0, **attributes: Any) -> Notification:
    return Notification(attributes, id=NotificationId("pub", 0, number))


def test_a_zone_passes_an_event_on_once_and_not_back():
    routers = {n: BoxRouter(n, BoxSpace([Axis("x", 0, 100)])) for n in range(8)}
    for a in routers:
        for b in routers:
            if a != b:
                routers[a].link_up(b)
    placement = routers[0].placement
    assert isinstance(placement, BoxPlacement)
    happened = event(x=50)
    entry = placement.entries(happened)[0]
    first = routers[entry].receive("elsewhere", Publication(happened, origin="elsewhere"))
    onward = [output.to for output in first if isinstance(output, Send)]
    assert onward == placement.onward(entry, happened) != []
    assert routers[entry].receive("elsewhere", Publication(happened, origin="elsewhere")) == []
    for output in first:
        assert isinstance(output, Send)
        answer = routers[output.to].receive(entry, output.message)
        assert entry not in [o.to for o in answer]


@pytest.mark.spec("07/T-01")
def test_a_publisher_in_whose_zone_the_subscription_is_gets_its_own_event_back():
    """Broker 0 publishes and keeps the subscription, but the event enters at broker 1."""
    net = network(3, seed=0)
    placement = net.router(0).placement
    content = {"x": 2, "y": 2.5}
    filter = Filter("x > 1 and y > 1")
    assert placement.homes(filter) == [0]
    assert placement.entries(Notification(content)) == [1]
    subscriber = net.client(at=2)
    subscriber.subscribe(filter)
    net.settle()
    id = net.client(at=0).publish(content)
    net.settle()
    assert [n.id for n in subscriber.received] == [id]


def test_a_subscription_is_sent_to_the_zone_of_its_point():
    a = BoxRouter("a", BoxSpace([Axis("x", 0, 100)]))
    assert isinstance(a, Router)
    a.link_up("b")
    can = a.placement.can
    for number, text in enumerate(("x = 1", "x > 50", "x < 99", "exists x", "x in (1, 99)")):
        points = a.space.points_of(Filter(text))
        outputs = a.subscribe(FilterId("ann", number), Filter(text))
        told = [o.to for o in outputs if isinstance(o, Send) and isinstance(o.message, Keep)]
        assert told == ["b"] * ("b" in map(can.owner, points))


FILTERS = (
    "x = 1",
    "x < 4",
    "x >= 4",
    "x != 3",
    "y between 2 and 6",
    "x > 1 and y > 1",
    "x = 1 or y = 7",
    "s prefix 'ab'",
    "s suffix 'b' and x > 0",
    "x is missing",
    "exists y",
    "",
    "x > 100",
    "x = 1 and x = 2",
)
values = st.one_of(st.integers(-2, 9), st.sampled_from([2.5, "text", 1000]))
contents = st.fixed_dictionaries(
    {}, optional={"x": values, "y": values, "s": st.sampled_from(["abc", "b"]), "z": st.just(1)}
).filter(bool)


def network(brokers: int, seed: int) -> Network:
    space = BoxSpace([Axis("x", 0, 8), Axis("y", 0, 8)], catch_all=True)

    def make(id: Any) -> Router:
        return BoxRouter(id, space)

    return Network({n: make(n) for n in range(brokers)}, None, seed=seed, make=make)


def check_exact(net: Network, subscribed: dict[Any, list[Filter]], events: list[dict[str, Any]]):
    """After all has settled, each event comes to exactly those whose filters match, once."""
    net.settle()
    publishers = [net.client(at=broker) for broker in net.brokers]
    for attributes in events:
        for publisher in publishers:
            before = {client: len(client.received) for client in subscribed}
            id = publisher.publish(attributes)
            net.settle()
            for client, filters in subscribed.items():
                new = [n.id for n in client.received[before[client] :]]
                assert new == [id] * any(f.matches(attributes) for f in filters)
    for client in [*publishers, *subscribed]:
        client.leave()
    net.settle()
    assert all(size.total == 0 for size in net.table_sizes().values())


@pytest.mark.spec("07/P-02", "07/P-06", "07/P-10")
@settings(max_examples=36)
@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(FILTERS)), max_size=8),
    st.lists(contents, min_size=1, max_size=3),
    st.integers(0, 99),
)
def test_a_static_network_delivers_exactly(brokers, wanted, events, seed):
    net = network(brokers, seed)
    subscribed: dict[Any, list[Filter]] = {net.client(at=n): [] for n in range(brokers)}
    clients = list(subscribed)
    for number, text in wanted:
        client = clients[number % brokers]
        client.subscribe(text)
        subscribed[client].append(Filter(text))
    check_exact(net, subscribed, events)


@pytest.mark.spec("07/P-05", "07/P-06", "07/P-10")
@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_after_churn_deliveries_are_exact_again(seed):
    rng = random.Random(seed)
    net = network(4, seed)
    subscribed: dict[Any, list[Filter]] = {}
    newcomers = iter(range(100, 200))
    for _ in range(30):
        action = rng.choice(("join", "fail", "remove", "flap", "subscribe", "publish", "step"))
        broker = rng.choice(net.brokers)
        others = [other for other in net.brokers if other != broker]
        if action == "join" and len(others) < 9:
            net.add_broker(next(newcomers))
        elif action in ("fail", "remove") and others:
            for client in [client for client in subscribed if client.at == broker]:
                del subscribed[client]
            net.fail_broker(broker) if action == "fail" else net.remove_broker(broker)
        elif action == "flap" and others:
            other = rng.choice(others)
            net.disconnect(broker, other)
            for _ in range(rng.randrange(6)):
                net.step()
            net.connect(broker, other)
        elif action == "subscribe":
            client, text = net.client(at=broker), rng.choice(FILTERS)
            client.subscribe(text)
            subscribed[client] = [Filter(text)]
        elif action == "publish":
            net.client(at=broker).publish({"x": rng.randrange(9), "y": 1})
        else:
            for _ in range(rng.randrange(8)):
                net.step()
    for client in subscribed:  # never twice, and nothing wrong, not even in between
        ids = [n.id for n in client.received]
        assert len(ids) == len(set(ids))
        assert all(subscribed[client][0].matches(n) for n in client.received)
    check_exact(net, subscribed, [{"x": 1, "y": 7}, {"x": 5}, {"z": 1}])
