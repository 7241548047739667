"""The ring: every key has one root, found in a few hops, by brokers that know few others."""

from __future__ import annotations

import random
from math import ceil, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import DuplicateBroker, InvalidConfiguration
from stentor.routing.protocol import BrokerId
from stentor.routing.rendezvous.pastry import BACKUPS, Pastry, key_of, number_of

SIZE = 1 << 128


def rings_of(brokers: list[int], **options: int) -> dict[int, Pastry]:
    rings = {broker: Pastry(broker, **options) for broker in brokers}  # type: ignore[arg-type]
    for ring in rings.values():
        for broker in brokers:
            ring.add(broker)
    return rings


def route(rings: dict[int, Pastry], start: int, key: int) -> list[int]:
    """The brokers that a message for the key passes."""
    way = [start]
    while (hop := rings[way[-1]].next_hop(key)) is not None:
        assert isinstance(hop, int)
        way.append(hop)
        assert len(way) <= len(rings), "a circle"
    return way


def distance(broker: BrokerId, key: int) -> tuple[int, int]:
    number = number_of(broker)
    return min((number - key) % SIZE, (key - number) % SIZE), number


def root(brokers: list[int], key: int) -> int:
    return min(brokers, key=lambda broker: distance(broker, key))


def fail(rings: dict[int, Pastry], broker: int) -> None:
    del rings[broker]
    for ring in rings.values():
        if ring.remove(broker):
            ring.refill(rings)


keys = st.integers(0, SIZE - 1)


@pytest.mark.spec("03/A18", "03/P16", "R-03.47", "R-03.48")
@settings(max_examples=40)
@given(st.integers(1, 40), st.sampled_from([1, 2, 4]), st.sampled_from([2, 4, 8]), keys, st.data())
def test_from_everywhere_a_key_leads_to_the_closest_broker(
    count: int, digit_bits: int, leaves: int, key: int, data: st.DataObject
) -> None:
    rings = rings_of(list(range(count)), digit_bits=digit_bits, leaves=leaves)
    start = data.draw(st.integers(0, count - 1))
    way = route(rings, start, key)
    assert way[-1] == root(list(rings), key)
    closeness = [distance(broker, key) for broker in way]
    assert closeness == sorted(closeness, reverse=True)


@pytest.mark.spec("03/P16", "R-03.47", "07/O9")
@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4]), st.sampled_from([2, 4]))
def test_it_stays_so_while_brokers_come_and_go(seed: int, digit_bits: int, leaves: int) -> None:
    chance = random.Random(seed)
    rings = rings_of(list(range(24)), digit_bits=digit_bits, leaves=leaves)
    for newcomer in range(24, 44):
        failing = min(chance.randrange(3), len(rings) - 1)  # one is always left
        for broker in chance.sample(sorted(rings), failing):
            fail(rings, broker)
        if chance.random() < 0.5:
            ring = rings[newcomer] = Pastry(newcomer, digit_bits=digit_bits, leaves=leaves)
            for other in list(rings):
                ring.add(other)
                rings[other].add(newcomer)
        key = chance.getrandbits(128)
        assert {route(rings, start, key)[-1] for start in rings} == {root(list(rings), key)}


@pytest.mark.spec("03/X-03.12", "07/E-10")
def test_figure_4_36() -> None:
    def number(broker: BrokerId) -> int:
        return int(str(broker), 4)

    names = ["021", "033", "102", "110", "121", "123", "130", "132", "203", "220"]
    names += ["231", "302", "311", "320", "323", "331", "332"]
    rings = {}
    # The table of 123 has 311 for all that begin with 3, by proximity.
    near = {"311": 1.0}
    for name in names:
        ring = rings[name] = Pastry(
            name,
            digit_bits=2,
            bits=6,
            leaves=4,
            number=number,
            proximity=lambda broker: near.get(str(broker), 2.0),
        )
        for other in names:
            ring.add(other)
    way = ["123"]
    while (hop := rings[way[-1]].next_hop(number("333"))) is not None:
        way.append(str(hop))
    assert way[1] == "311"
    assert way[-1] == "332"
    assert [abs(number(name) - number("333")) for name in way] == sorted(
        (abs(number(name) - number("333")) for name in way), reverse=True
    )


@pytest.mark.spec("07/E-08")
def test_a_hash_table_with_ten_places() -> None:
    rings = {n: Pastry(n, digit_bits=2, bits=4, leaves=2, number=int) for n in range(10)}
    for ring in rings.values():
        for broker in range(10):
            ring.add(broker)
    keyed = {x: route(rings, 7, x % 10)[-1] for x in (0, 1, 4, 9, 16, 25)}
    assert keyed == {0: 0, 1: 1, 4: 4, 9: 9, 16: 6, 25: 5}


@pytest.mark.spec("R-03.47", "07/O9")
@pytest.mark.parametrize(("count", "digit_bits", "leaves"), [(64, 1, 4), (200, 2, 8), (200, 4, 16)])
def test_hops_and_knowledge_grow_with_the_logarithm(
    count: int, digit_bits: int, leaves: int
) -> None:
    rings = rings_of(list(range(count)), digit_bits=digit_bits, leaves=leaves)
    chance = random.Random(1)
    hops = [
        len(route(rings, chance.randrange(count), chance.getrandbits(128))) - 1 for _ in range(500)
    ]
    rows = ceil(log(count, 2**digit_bits))
    assert sum(hops) / len(hops) <= rows
    assert max(hops) <= rows + 3
    # Two more rows: a few brokers share more digits than one would expect.
    table = (rows + 2) * (2**digit_bits - 1) * (1 + BACKUPS)
    assert max(map(len, rings.values())) <= table + 2 * leaves
    if count > 100:
        assert max(map(len, rings.values())) < count


@pytest.mark.spec("07/P-06", "07/O9", "R-03.48")
@given(st.integers(2, 30), st.lists(keys, min_size=1, max_size=50))
@settings(max_examples=40)
def test_a_newcomer_takes_keys_and_moves_no_others(count: int, wanted: list[int]) -> None:
    rings = rings_of(list(range(count)), digit_bits=2, leaves=4)
    before = {key: route(rings, 0, key)[-1] for key in wanted}
    ring = rings[count] = Pastry(count, digit_bits=2, leaves=4)
    for other in list(rings):
        ring.add(other)
        rings[other].add(count)
    for key in wanted:
        assert route(rings, 0, key)[-1] in (before[key], count)


@pytest.mark.spec("R-03.48")
def test_names_spread_evenly() -> None:
    rings = rings_of(list(range(32)))
    roots = [route(rings, 0, key_of(f"type{n}"))[-1] for n in range(2000)]
    counts = [roots.count(broker) for broker in range(32)]
    assert min(counts) > 0
    assert max(counts) < 2000 / 32 * 6


@pytest.mark.spec("03/A18")
def test_of_several_brokers_the_nearest_gets_the_place() -> None:
    near = {40: 3.0, 44: 1.0, 50: 2.0}
    ring = Pastry(
        0,
        digit_bits=1,
        bits=6,
        leaves=2,
        number=int,
        proximity=lambda broker: near.get(int(broker), 9.0),
    )
    for broker in (1, 2, 63, 62, 40, 44, 50):
        ring.add(broker)
    assert ring.next_hop(41) == 44, "40 is closer to the key, but all have the right first digit"
    ring.remove(44)
    assert ring.next_hop(41) == 50
    ring.remove(50)
    assert ring.next_hop(41) == 40


@pytest.mark.spec("03/A18")
def test_ties_go_to_the_smaller_number() -> None:
    rings = {n: Pastry(n, digit_bits=1, bits=4, leaves=2, number=int) for n in (2, 6, 10)}
    for ring in rings.values():
        for broker in rings:
            ring.add(broker)
    assert {route(rings, start, 4)[-1] for start in rings} == {2}
    assert {route(rings, start, 8)[-1] for start in rings} == {6}
    assert {route(rings, start, 14)[-1] for start in rings} == {2}  # 14 is 4 from 10 and from 2


@pytest.mark.spec("03/A18", "R-03.35")
def test_the_leaf_set_is_the_neighborhood_on_the_ring() -> None:
    ring = Pastry(8, digit_bits=2, bits=4, leaves=4, number=int)
    for broker in (15, 1, 6, 11, 9, 3, 8):
        ring.add(broker)
    assert sorted(ring.leaf_set) == [3, 6, 9, 11]
    ring.remove(9)
    assert sorted(ring.leaf_set) == [3, 6, 11, 15]


def test_a_lonely_broker_is_the_root_of_everything() -> None:
    ring = Pastry("only")
    ring.add("only")
    assert ring.next_hop(key_of("x")) is None
    assert len(ring) == 0
    assert ring.remove("stranger") is False


def test_two_brokers_in_one_place() -> None:
    ring = Pastry(1, digit_bits=1, bits=3, number=lambda broker: int(broker) % 8)
    with pytest.raises(DuplicateBroker, match="same place"):
        ring.add(9)
    ring.add(3)
    with pytest.raises(DuplicateBroker, match="rename"):
        ring.add(11)


@pytest.mark.parametrize("options", [{"digit_bits": 3}, {"bits": 7, "digit_bits": 2}])
def test_digits_must_fit(options: dict[str, int]) -> None:
    with pytest.raises(InvalidConfiguration, match="whole digits"):
        Pastry("a", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("leaves", [0, 1, 7])
def test_leaf_sets_have_two_sides(leaves: int) -> None:
    with pytest.raises(InvalidConfiguration, match="even number"):
        Pastry("a", leaves=leaves)


def test_numbers_and_texts_are_different_brokers() -> None:
    assert number_of(7) != number_of("7")
