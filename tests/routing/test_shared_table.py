"""Tables of brokers in one process hold what tables of their own would hold."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stentor.filters import Filter
from stentor.matching.commons import SharedIndex
from stentor.model.notification import Notification
from stentor.routing.protocol import FilterId
from stentor.routing.shared_table import SharedTable
from stentor.routing.table import Destination, Local, Neighbor, RoutingTable, Row

TEXTS = ["x > 1", "x > 5", "x < 4", "y = 0", "x between 2 and 6 and y = 1", "x = 3 or y = 1", ""]
EVENTS = [Notification({"x": x, "y": y}) for x in range(8) for y in (0, 1)]
Entry = tuple[Destination, Any, str]


def held(table: RoutingTable | SharedTable) -> dict[Any, Any]:
    """All that a table says of itself."""
    destinations = sorted(table.destinations, key=str)
    return {
        "entries": {d: dict(table.at(d)) for d in destinations},
        "sizes": {d: table.size(d) for d in destinations},
        "rows": {row.filter: (dict(row.owners), row.sole) for row in table.rows()},
        "owners": {text: dict(table.owners(Filter(text))) for text in TEXTS},
        "held": {filter: dict(row.owners) for filter, row in table.held.items()},
        "counts": (len(table), table.count(Neighbor), table.count(Local), len(table.held)),
    }


def drawn(rng: random.Random, neighbors: int) -> Entry:
    text = rng.choice(TEXTS)
    number = FilterId("far", rng.randrange(3))
    destination: Destination = Neighbor(rng.randrange(neighbors))
    if rng.random() < 0.3:
        destination = Local(f"c{rng.randrange(3)}")
    named = isinstance(destination, Local) or rng.random() < 0.2
    return destination, number if named else Filter(text), text


def _seen(row: Row | None) -> Any:
    return None if row is None else (row.filter, dict(row.owners))


@pytest.mark.spec("R-03.09")
@pytest.mark.parametrize("seed", range(5))
def test_a_shared_table_is_a_routing_table(seed: int) -> None:
    rng = random.Random(seed)
    shared = SharedIndex()
    tables = [(RoutingTable(), SharedTable(shared)) for _ in range(3)]
    entries: list[dict[tuple[Destination, Any], str]] = [{} for _ in tables]
    for step in range(90):
        which = rng.randrange(len(tables))
        both, ours = tables[which], entries[which]
        if ours and rng.random() < (0.3 if step < 60 else 0.8):
            entry = rng.choice(list(ours))
            told = [_seen(table.remove(*entry)) for table in both]
            del ours[entry]
        else:
            destination, key, text = drawn(rng, 4)
            is_held = (destination, key) in ours
            assert [(destination, key) in table for table in both] == [is_held, is_held]
            told = [_seen(table.add(destination, key, Filter(text))) for table in both]
            assert (told[0] is None) == is_held
            ours.setdefault((destination, key), text)
        assert told[0] == told[1]
        assert held(both[0]) == held(both[1])
        batch = rng.choices(EVENTS, k=rng.choice((0, 1, 1, 2, 9, 40)))
        assert both[0].targets_of(batch) == both[1].targets_of(batch)
    for (_, table), ours in zip(tables, entries, strict=True):
        for entry in list(ours):
            table.remove(*entry)
        assert not len(table)
    assert not len(shared), "nothing is left of what nobody holds"


def test_there_may_be_more_neighbors_than_a_byte_can_stand_for() -> None:
    table = SharedTable(SharedIndex())
    neighbors = [Neighbor(n) for n in range(600)]
    filters = [Filter(f"x >= {n}") for n in range(600)]
    for neighbor, filter in zip(neighbors, filters, strict=True):
        table.add(neighbor, filter, filter)
    assert set(table.targets({"x": 400})) == set(neighbors[:401])
    assert table.targets_of([Notification({"x": x}) for x in (399, 0)])[neighbors[399]] == [0]
    for neighbor, filter in list(zip(neighbors, filters, strict=True))[:598]:
        assert (neighbor, filter) in table
        table.remove(neighbor, filter)
    table.add(neighbors[0], filters[0], filters[0])
    assert table.targets({"x": 10_000}) == {neighbors[0], *neighbors[598:]}
    assert len(table) == table.count(Neighbor) == 3


def test_what_one_neighbor_asks_for_takes_no_more_than_a_byte() -> None:
    table, neighbor = SharedTable(SharedIndex()), Neighbor("north")
    for n in range(50):
        filter = Filter(f"x >= {n}")
        table.add(neighbor, filter, filter)
    assert not table._rows
    assert not table._entries
    table.add(Local("ann"), 1, Filter("x >= 7"))
    assert table.targets({"x": 7}) == {neighbor, Local("ann")}
    assert [*table.at(neighbor)] == [*table.at(neighbor).values()]
    assert len(table.at(neighbor)) == 50
