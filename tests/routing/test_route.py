"""A batch is routed in one step, each of its notifications as if it were alone."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, filter_of, filter_texts
from test_configurations import EXACT, GRID, random_filter

from stentor.filters import Filter
from stentor.matching import BruteForce, Counting, Index
from stentor.matching.commons import SharedIndex
from stentor.model import Notification, decode_headers, encode
from stentor.routing import FilterId, Role, Strategy, TreeRouter
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate
from stentor.routing.protocol import BrokerId
from stentor.routing.shared_table import SharedTable
from stentor.routing.table import DESTINATION, Destination, Local, Neighbor, RoutingTable, Row

Targets = dict[Destination, list[int]]


def envelopes(ns: list[Notification]) -> Any:
    return decode_headers([encode(n) for n in ns])


def in_order(targets: Targets) -> Targets:
    assert all(targets.values()), "nobody is named for nothing"
    assert all(indexes == sorted(set(indexes)) for indexes in targets.values())
    return targets


# -- the table

TABLES: list[Callable[[], RoutingTable | SharedTable]] = [
    RoutingTable,
    *(partial(RoutingTable, engine) for engine in (Index, BruteForce, Counting)),
    lambda: SharedTable(_others()),
]


def _others() -> SharedIndex:
    """An index in which others have written."""
    index = SharedIndex()
    for text in ("", "always = 1", "x > 1"):
        index.add(Filter(text))
    return index


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=20))
def test_a_row_counts_the_entries_of_its_owners(steps: list[tuple[int, bool]]) -> None:
    row, expected = Row(Filter("x > 1")), Counter[Destination]()
    for which, comes in steps:
        owner = (Local("ann"), Local("bob"), Neighbor("ann"))[which]
        if comes:
            row.own(owner)
            expected[owner] += 1
        elif expected[owner]:
            row.disown(owner)
            expected[owner] -= 1
        held = +expected
        assert dict(row.owners) == held
        assert len(row) == len(held)
        assert row.sole == (next(iter(held)) if len(held) == 1 else None)


@pytest.mark.spec("R-03.09", "R-02.70", "02/P10")
@settings(max_examples=60)
@given(st.data())
def test_a_table_names_the_destinations_of_matching_filters(data: st.DataObject) -> None:
    owners = st.sampled_from([Local("ann"), Local("bob"), Neighbor("north"), Neighbor(2)])
    entries = data.draw(st.lists(st.tuples(owners, filter_texts()), max_size=12))
    batch = data.draw(st.lists(events, max_size=8))
    ns = [Notification({**event, "always": 1}) for event in batch]
    for make in TABLES:
        table = make()
        for key, (destination, text) in enumerate(entries):
            table.add(destination, key, filter_of(text))
        expected: Targets = {}
        for i, n in enumerate(ns):
            wanting = {d for d, text in entries if filter_of(text).matches(n)}
            assert table.targets(n) == wanting
            for destination in wanting:
                expected.setdefault(destination, []).append(i)
        assert in_order(table.targets_of(envelopes(ns))) == expected
        assert in_order(table.targets_of(ns)) == expected


@pytest.mark.spec("R-03.09")
@given(st.data(), st.integers(1, 400))
def test_a_table_names_the_targets_of_as_many_as_there_is_time_for(
    data: st.DataObject, most: int
) -> None:
    owners = st.sampled_from([Local(f"c{i}") for i in range(9)])
    entries = data.draw(st.lists(st.tuples(owners, filter_texts()), min_size=1, max_size=12))
    ns = [Notification({**event, "always": 1}) for event in data.draw(st.lists(events, min_size=1))]
    for make in TABLES:
        table = make()
        for key, (destination, text) in enumerate(entries):
            table.add(destination, key, filter_of(text))
        count, found = table.targets_of_leading(ns, most)
        assert in_order(found) == table.targets_of(ns[:count])
        cost = sum(DESTINATION + len(indexes) for indexes in found.values())
        assert count == 1 or cost <= most
        assert count == len(ns) or (DESTINATION + len(ns)) * len(table) > most


def test_a_destination_with_many_filters_is_named_once() -> None:
    table = RoutingTable()
    for i in range(100):
        table.add(Neighbor("north"), i, Filter(f"x >= {i}"))
        table.add(Local(f"c{i % 3}"), i, Filter(f"x >= {i}"))
    ns = [Notification({"x": x}) for x in (-1, 5, 50, 0)]
    for _ in range(2):
        everything = {Neighbor("north"), Local("c0"), Local("c1"), Local("c2")}
        found = in_order(table.targets_of(envelopes(ns)))
        assert set(found) == everything
        assert found[Neighbor("north")] == [1, 2, 3]
        assert found[Local("c2")] == [1, 2]


# -- the router

NEIGHBORS: tuple[BrokerId, ...] = (2, 3, "south")
ROLES = [
    Role(),
    Role(parent=2),
    Role(children=frozenset({3, "south"})),
    Role(parent=2, children=frozenset({3, "south"}), flooded=True),
]
CASES = [
    *((routing, None, role) for routing, role in product(("flooding", *EXACT), ROLES)),
    *((routing, advertisements, Role()) for routing, advertisements in product(EXACT, EXACT)),
    *((routing, "flooding", Role()) for routing in EXACT),
]


def targets(router: TreeRouter, n: Notification, source: BrokerId | None) -> set[Destination]:
    """Where a notification goes, asked of every filter by itself."""
    layer, role = router.plane.subscriptions, router.plane.role
    found = {d for d in layer.table.destinations if any(matching(layer.table.at(d), n))}
    for neighbor in router.neighbors:
        if layer.strategy.floods or role.always(neighbor):
            found.add(Neighbor(neighbor))
    return found - {Neighbor(source)} if source is not None else found


def matching(filters: Any, n: Notification) -> Iterator[bool]:
    return (filter.matches(n) for filter in filters.values())


@pytest.mark.spec("R-03.08", "R-03.10", "R-03.31", "R-03.33", "03/P11")
@pytest.mark.parametrize(("routing", "advertisements", "role"), CASES)
def test_a_batch_goes_where_its_notifications_go(
    routing: str, advertisements: str | None, role: Role
) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        offers = None if advertisements is None else Strategy(advertisements)
        router = TreeRouter(1, Strategy(routing), offers, role, lambda: Index(background=True))
        for neighbor in NEIGHBORS[: rng.randint(1, 3)]:
            router.link_up(neighbor)
        for number in range(rng.randrange(15)):
            filter = random_filter(rng)
            if rng.random() < 0.3:
                router.advertise(FilterId("producer", number), random_filter(rng))
            if rng.random() < 0.5:
                router.subscribe(FilterId(f"c{number % 3}", number), filter)
            else:
                neighbor = rng.choice(NEIGHBORS)
                key: Any = FilterId("far", number) if routing == "simple" else filter
                kind = rng.choice((SubscriptionUpdate, SubscriptionUpdate, AdvertisementUpdate))
                router.receive(neighbor, kind(((key, filter),), ()))
        if rng.random() < 0.3:
            router.link_down(rng.choice(NEIGHBORS))
        ns = [Notification(event) for event in rng.choices(GRID, k=rng.choice((0, 1, 2, 20)))]
        for source in (None, *NEIGHBORS):
            expected: Targets = {}
            for i, n in enumerate(ns):
                for destination in targets(router, n, source):
                    expected.setdefault(destination, []).append(i)
            assert in_order(router.route(envelopes(ns), source)) == expected
            assert in_order(router.route(ns, source)) == expected
