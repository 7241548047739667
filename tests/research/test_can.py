"""CAN as a structure: zones tile the space, neighbors touch, greedy routing arrives."""

import random
from itertools import combinations, pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import (
    DuplicateBroker,
    InvalidConfiguration,
    InvalidTopology,
    UnknownBroker,
)
from stentor.research.rendezvous.can import SIDE, Box, Can, Zone

SMALL = 64


def volume(zone: Zone) -> int:
    return prod(high - low for low, high in zip(*zone, strict=True))


def overlapping(a: Zone, b: Zone) -> bool:
    return all(
        low < its_high and its_low < high
        for low, high, its_low, its_high in zip(*a, *b, strict=True)
    )


def share_a_face(a: Zone, b: Zone) -> bool:
    """By definition: in one dimension they abut, in all others they have a stretch in common."""
    stretches = [
        min(high, its_high) - max(low, its_low)
        for low, high, its_low, its_high in zip(*a, *b, strict=True)
    ]
    return sorted(stretches)[0] == 0 and all(stretch > 0 for stretch in sorted(stretches)[1:])


def check_tiling(can: Can) -> None:
    zones = {member: can.zone(member) for member in can}
    assert sum(map(volume, zones.values())) == can.side**can.dimensions
    assert not any(overlapping(a, b) for a, b in combinations(zones.values(), 2))
    for member, zone in zones.items():
        touching = {m for m, other in zones.items() if m != member and share_a_face(zone, other)}
        assert set(can.neighbors(member)) == touching


Step = tuple[str, int, tuple[int, ...]]


def take(can: Can, step: Step) -> bool:
    """Whether the step was possible: a single point cannot be shared, so its member never came."""
    action, member, point = step
    try:
        can.join(member, point) if action == "join" else can.leave(member)
    except (InvalidTopology, UnknownBroker):
        return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> tuple[Can, list[Step]]:
    """An empty space, and members that join at a point or leave."""
    dimensions = draw(st.integers(1, 4))
    points = st.tuples(*[st.integers(0, SMALL - 1)] * dimensions)
    steps: list[Step] = []
    present: list[int] = []
    for number in range(draw(st.integers(1, 24))):
        point = draw(points)
        if present and draw(st.integers(0, 2)) == 0:
            gone = draw(st.sampled_from(present))
            present.remove(gone)
            steps.append(("leave", gone, point))
        else:
            present.append(number)
            steps.append(("join", number, point))
    return Can(dimensions, SMALL), steps


@pytest.mark.spec("07/O10")
@given(histories())
def test_zones_tile_the_space_whatever_happens(history):
    can, steps = history
    for step in steps:
        if take(can, step) and len(can):
            check_tiling(can)


@pytest.mark.spec("07/O10")
@given(histories(), st.data())
def test_routing_reaches_the_owner_from_anywhere_and_comes_nearer_with_each_hop(history, data):
    can, steps = history
    for step in steps:
        take(can, step)
    if not len(can):
        return
    point = data.draw(st.tuples(*[st.integers(0, SMALL - 1)] * can.dimensions))
    owner = can.owner(point)
    assert can.zone(owner).contains(point)
    for start in can:
        way = can.route(start, point)
        assert way[0] == start
        assert way[-1] == owner
        distances = [can.zone(member).distance(point) for member in way]
        assert all(nearer < farther for farther, nearer in pairwise(distances))
        assert all(b in can.neighbors(a) for a, b in pairwise(way))


@pytest.mark.spec("07/O10")
@given(histories())
def test_join_changes_one_zone_and_leave_at_most_two(history):
    can, steps = history
    for step in steps:
        action, member, point = step
        before = {m: can.zone(m) for m in can}
        done = take(can, step)
        after = {m: can.zone(m) for m in can}
        if not done:
            assert after == before
            continue
        changed = [m for m in before if m in after and before[m] != after[m]]
        if action == "join":
            assert after[member].contains(point)
            assert len(changed) == (1 if before else 0)
            for other in changed:
                assert volume(after[other]) + volume(after[member]) == volume(before[other])
        else:
            assert member not in after
            assert len(changed) <= 2
            if after:
                heir = can.owner(before[member].low)
                assert heir in changed


def test_halving_alternates_between_the_dimensions():
    can = Can(2, side=8)
    can.join("a", (0, 0))
    assert can.zone("a") == Zone((0, 0), (8, 8))
    can.join("b", (7, 0))
    assert (can.zone("a"), can.zone("b")) == (Zone((0, 0), (4, 8)), Zone((4, 0), (8, 8)))
    can.join("c", (7, 7))
    assert (can.zone("b"), can.zone("c")) == (Zone((4, 0), (8, 4)), Zone((4, 4), (8, 8)))
    assert can.neighbors("a") == ["b", "c"]


@pytest.mark.spec("07/O10")
def test_the_other_half_takes_over():
    can = Can.of({"a": (0, 0), "b": (7, 0), "c": (7, 7)}, 2, side=8)
    can.leave("c")
    assert can.zone("b") == Zone((4, 0), (8, 8))


@pytest.mark.spec("07/O10")
def test_where_the_other_half_is_divided_one_of_a_pair_moves():
    can = Can.of({"a": (0, 0), "b": (7, 0), "c": (7, 7)}, 2, side=8)
    can.leave("a")
    assert sorted(can) == ["b", "c"]
    assert {can.zone("b"), can.zone("c")} == {Zone((0, 0), (4, 8)), Zone((4, 0), (8, 8))}
    assert can.neighbors("b") == ["c"]


def test_a_zone_that_meets_a_box_shares_a_point_with_it():
    zone = Zone((2, 2), (4, 4))
    assert zone.meets(Box((0, 0), (2, 2)))
    assert zone.meets(Box((3, 3), (9, 9)))
    assert not zone.meets(Box((4, 0), (9, 9)))
    assert not zone.meets(Box((0, 0), (1, 9)))


def test_zones_that_meet_in_a_corner_only_are_no_neighbors():
    assert not Zone((0, 0), (1, 1)).touches(Zone((1, 1), (2, 2)))
    assert Zone((0, 0), (1, 1)).touches(Zone((1, 0), (2, 2)))
    assert not Zone((0, 0), (1, 1)).touches(Zone((2, 0), (3, 1)))


def test_more_dimensions_make_shorter_ways():
    """Ways have about d/4 times the d-th root of N hops (the space has borders: d/3)."""

    def mean_hops(dimensions: int) -> float:
        rng = random.Random(7)
        points = [tuple(rng.randrange(SIDE) for _ in range(dimensions)) for _ in range(128)]
        can = Can.of(dict(enumerate(points)), dimensions)
        ways = [can.route(rng.randrange(128), rng.choice(points)) for _ in range(200)]
        return sum(len(way) - 1 for way in ways) / len(ways)

    flat, deep = mean_hops(2), mean_hops(4)
    assert deep < flat < 2 / 3 * 128**0.5 * 1.5


def test_the_last_member_may_leave_and_another_one_come():
    can = Can(2, side=8)
    can.join("a", (3, 3))
    can.leave("a")
    assert len(can) == 0
    can.join("b", (1, 1))
    assert can.zone("b") == Zone((0, 0), (8, 8))


def test_errors_say_what_to_do():
    can = Can(2, side=1)
    with pytest.raises(UnknownBroker, match="no members yet"):
        can.owner((0, 0))
    can.join("a", (0, 0))
    with pytest.raises(DuplicateBroker, match="'a' has a zone already"):
        can.join("a", (0, 0))
    with pytest.raises(InvalidTopology, match="a single point"):
        can.join("b", (0, 0))
    assert list(can) == ["a"]
    assert can.zone("a") == Zone((0, 0), (1, 1))
    with pytest.raises(InvalidConfiguration, match="2 integers from 0 to 0"):
        can.join("b", (0, 1))
    with pytest.raises(InvalidConfiguration, match="2 integers"):
        can.join("b", (0,))
    with pytest.raises(UnknownBroker, match="'b' has no zone here"):
        can.leave("b")
    with pytest.raises(UnknownBroker):
        can.neighbors("b")
    with pytest.raises(InvalidConfiguration, match="empty"):
        Can(0)
