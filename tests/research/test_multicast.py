"""Multicast groups of brokers and of regions."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import (
    DuplicateBroker,
    InvalidConfiguration,
    InvalidTopology,
    UnknownBroker,
    UnknownClient,
)
from stentor.filters import Filter
from stentor.research.multicast import (
    GridGroups,
    Groups,
    Plan,
    Region,
    RegionGroups,
    Scheme,
    TwoLevel,
    clustered,
    ideal,
    interested,
    neighbor_matching,
    threshold_clustered,
)
from stentor.research.multicast.two_level import LanId
from stentor.routing.protocol import BrokerId
from stentor.routing.table import Local, Neighbor, RoutingTable

Edges = list[tuple[BrokerId, BrokerId]]


def split(brokers: int, clusters: int) -> list[range]:
    """So many brokers in clusters of equal size."""
    size = brokers // clusters
    return [range(i * size, (i + 1) * size) for i in range(clusters)]


# -- how many groups


@pytest.mark.spec("R-03.46", "03/A19", "03/5.4")
@pytest.mark.parametrize(
    ("brokers", "clusters", "of_ideal", "of_cgm", "of_tcgm"),
    [(10, 2, 1024, 64, 30), (12, 3, 4096, 48, 30), (20, 4, 1048576, 128, 60)],
)
def test_numbers_of_groups(
    brokers: int, clusters: int, of_ideal: int, of_cgm: int, of_tcgm: int
) -> None:
    parts = split(brokers, clusters)
    assert ideal(range(brokers)).count == of_ideal
    assert clustered(parts).count == of_cgm
    assert threshold_clustered(parts, 2).selective == of_tcgm


@pytest.mark.spec("R-03.46")
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 6))
def test_the_corrected_formulas(clusters: int, size: int, threshold: int) -> None:
    """The factor between ideal and CGM, and a group of all members for each cluster."""
    brokers = clusters * size
    parts = split(brokers, clusters)
    factor = 2 ** (brokers - size) / clusters
    assert ideal(range(brokers)).count == factor * clustered(parts).count
    scheme = threshold_clustered(parts, threshold)
    assert scheme.selective == clusters * sum(comb(size, i) for i in range(1, threshold + 1))
    assert scheme.count == scheme.selective + (clusters if threshold < size else 0)


@pytest.mark.spec("R-03.46")
def test_ten_brokers_in_two_clusters_save_sixteenfold_not_twofold() -> None:
    assert ideal(range(10)).count // clustered(split(10, 2)).count == 16


# -- where a notification goes


@st.composite
def _trees(draw: st.DrawFn) -> Edges:
    size = draw(st.integers(2, 10))
    return [(draw(st.integers(0, i - 1)), i) for i in range(1, size)]


def brokers_of(edges: Edges) -> list[BrokerId]:
    return list(dict.fromkeys(broker for edge in edges for broker in edge))


@st.composite
def _situations(draw: st.DrawFn) -> tuple[Edges, list[list[BrokerId]], BrokerId, set[BrokerId]]:
    """A tree, a division of its brokers into clusters, a sender and those interested."""
    edges = draw(_trees())
    brokers = brokers_of(edges)
    count = draw(st.integers(1, 3))
    clusters: list[list[BrokerId]] = [[] for _ in range(count)]
    for broker in brokers:
        clusters[draw(st.integers(0, count - 1))].append(broker)
    return (
        edges,
        [cluster for cluster in clusters if cluster],
        draw(st.sampled_from(brokers)),
        draw(st.sets(st.sampled_from(brokers))),
    )


def check_exactly_once(plan: Plan, sender: BrokerId, wanted: set[BrokerId]) -> None:
    received = plan.receivers
    assert len(received) == len(set(received))
    assert wanted - {sender} <= set(received)
    assert sender not in received


@pytest.mark.spec("R-03.46", "03/A19", "07/T-15")
@given(_situations(), st.integers(1, 4))
def test_every_interested_broker_is_reached_once(
    situation: tuple[Edges, list[list[BrokerId]], BrokerId, set[BrokerId]], threshold: int
) -> None:
    edges, clusters, sender, wanted = situation
    others = wanted - {sender}
    exact: list[Scheme] = [ideal(brokers_of(edges)), clustered(clusters), neighbor_matching(edges)]
    coarse: list[Scheme] = [
        threshold_clustered(clusters, threshold),
        neighbor_matching(edges, threshold),
    ]
    for scheme in exact + coarse:
        plan = scheme.plan(sender, wanted)
        check_exactly_once(plan, sender, wanted)
        assert plan.interested == others
        assert plan.crossings == len(plan.sends) + len(plan.receivers)
        assert not set(plan.vain) & others
        if scheme in exact:
            assert plan.vain == []


@pytest.mark.spec("R-03.46")
@given(_situations(), st.integers(1, 4))
def test_how_often_is_sent(
    situation: tuple[Edges, list[list[BrokerId]], BrokerId, set[BrokerId]], threshold: int
) -> None:
    edges, clusters, sender, wanted = situation
    others = wanted - {sender}
    assert len(ideal(brokers_of(edges)).plan(sender, wanted).sends) == bool(others)
    concerned = [cluster for cluster in clusters if others.intersection(cluster)]
    cgm, tcgm = clustered(clusters), threshold_clustered(clusters, threshold)
    assert len(cgm.plan(sender, wanted).sends) == len(concerned)
    sends = tcgm.plan(sender, wanted).sends
    assert len(sends) == len(concerned)
    for send, cluster in zip(sends, concerned, strict=True):
        chosen = others.intersection(cluster)
        assert set(send.group) == (chosen if len(chosen) <= threshold else set(cluster))


@pytest.mark.spec("R-03.46")
def test_threshold_counts_in_each_cluster() -> None:
    """Three receivers exceed T = 2 altogether, but in neither cluster."""
    scheme = threshold_clustered([(1, 2, 3), (4, 5, 6)], 2)
    assert [send.group for send in scheme.plan(6, [1, 2, 4]).sends] == [(1, 2), (4,)]
    plan = scheme.plan(6, [1, 2, 3, 4, 5])
    assert [send.group for send in plan.sends] == [(1, 2, 3), (4, 5)]


@pytest.mark.spec("07/T-15")
def test_who_gets_it_in_vain_must_match_again() -> None:
    scheme = threshold_clustered([(1, 2, 3, 4), (5, 6, 7)], 1)
    plan = scheme.plan(5, [1, 3, 6])
    assert [send.group for send in plan.sends] == [(1, 2, 3, 4), (6,)]
    assert plan.vain == [2, 4]
    # The sender is a member of its cluster's group, and does not hear itself.
    assert scheme.plan(1, [2, 3]).receivers == [2, 3, 4]


@pytest.mark.spec("R-03.46", "03/A19")
def test_neighbor_matching_crosses_links_to_multicast_routers_again() -> None:
    """A relay's link is crossed down and up again; one step reaches the same broker for less."""
    line: Edges = [(1, 2), (2, 3), (3, 4)]
    plan = neighbor_matching(line).plan(1, [4])
    assert [(send.sender, send.group) for send in plan.sends] == [(1, (2,)), (2, (3,)), (3, (4,))]
    assert plan.relays == {2, 3}
    assert plan.vain == []
    assert plan.crossings == 6
    assert ideal((1, 2, 3, 4)).plan(1, [4]).crossings == 2


@pytest.mark.spec("R-03.46")
def test_neighbor_matching_with_a_threshold_sends_nothing_back() -> None:
    star: Edges = [("hub", n) for n in "abcde"]
    exact, coarse = neighbor_matching(star), neighbor_matching(star, 2)
    assert exact.count == 2**5 + 5 * 2**1
    # 15 small groups, that of all, five of all but one; each leaf has the group of its neighbor.
    assert coarse.count == (5 + 10) + 1 + 5 + 5
    plan = coarse.plan("a", ["b", "c", "d"])
    assert [send.group for send in plan.sends] == [("hub",), ("b", "c", "d", "e")]
    assert plan.vain == ["e"]
    assert [send.group for send in coarse.plan("hub", "abc").sends] == [tuple("abcde")]


@pytest.mark.spec("R-03.46")
@given(_trees(), st.data())
def test_neighbor_matching_uses_the_smallest_subtree(edges: Edges, data: st.DataObject) -> None:
    """It receives what filter-based routing would give it: the way to those interested."""
    brokers = brokers_of(edges)
    sender = data.draw(st.sampled_from(brokers))
    wanted = data.draw(st.sets(st.sampled_from(brokers)))
    needed = set(brokers)
    links = [set(edge) for edge in edges]
    while True:  # cut off leaves that nobody needs
        leaves = {b for b in needed if sum(b in link for link in links) <= 1}
        idle = leaves - wanted - {sender}
        if not idle:
            break
        needed -= idle
        links = [link for link in links if not link & idle]
    assert set(neighbor_matching(edges).plan(sender, wanted).receivers) == needed - {sender}


def test_interest_is_known_as_in_simple_routing() -> None:
    table = RoutingTable()
    for broker, text in enumerate(("x > 1", "x > 5", "y = 1", "x > 1 or y = 1"), start=1):
        table.add(Neighbor(broker), broker, Filter(text))
    table.add(Local("ann"), 9, Filter("x > 0"))
    wanted = interested(table, {"x": 3})
    assert wanted == {1, 4}
    assert ideal(range(1, 5)).plan(2, wanted).receivers == [1, 4]


def test_bad_groups_are_refused() -> None:
    with pytest.raises(DuplicateBroker, match="two clusters"):
        clustered([(1, 2), (2, 3)])
    with pytest.raises(DuplicateBroker, match="twice"):
        ideal([1, 1])
    with pytest.raises(InvalidConfiguration, match="1 or more"):
        threshold_clustered([(1, 2)], 0)
    with pytest.raises(InvalidConfiguration, match="1 or more"):
        neighbor_matching([(1, 2)], 0)
    with pytest.raises(UnknownBroker, match="7"):
        ideal([1, 2]).plan(1, [7])
    with pytest.raises(UnknownBroker, match="7"):
        neighbor_matching([(1, 2)]).plan(7, [1])
    for edges in ([(1, 2), (2, 3), (3, 1)], [(1, 2), (3, 4)], [(1, 1)], [(1, 2), (1, 2)]):
        with pytest.raises(InvalidTopology, match="tree"):
            neighbor_matching(edges)


def test_no_interest_no_send() -> None:
    groups = Groups((1, 2), threshold=1)
    assert groups.group([]) == ()
    for scheme in (ideal([1, 2]), neighbor_matching([(1, 2)], 1)):
        assert scheme.plan(1, [1]).sends == ()


# -- local networks

LANS: dict[LanId, list[BrokerId]] = {"A": [1, 2, 3], "B": [4], "C": [5, 6], "D": [7, 8]}


@pytest.mark.spec("07/O7")
def test_daemons_carry_it_to_the_networks_that_want_it() -> None:
    scheme = TwoLevel(LANS, [("A", "B"), ("B", "C"), ("C", "D"), ("D", "A")])
    assert scheme.count == 4
    plan = scheme.plan(2, [3, 5, 8])
    assert [(send.sender, send.receivers) for send in plan.sends] == [
        (2, (1, 3)),  # at home
        (1, (4,)),  # daemon to daemon, over the fewest connections
        (1, (7,)),
        (7, (8,)),
        (4, (5,)),  # 6 does not want it, and the daemon is reached already
    ]
    assert plan.relays == {1, 4, 7}
    assert plan.vain == []
    assert scheme.plan(2, [6]).vain == [3]
    assert scheme.plan(1, [6]).vain == []


@pytest.mark.spec("07/O7")
def test_trees_follow_the_connections_that_are_left() -> None:
    ring: list[tuple[LanId, LanId]] = [("A", "B"), ("B", "C"), ("C", "D"), ("D", "A")]
    for gone, ways in ((("B", "C"), [(1, (7,)), (7, (5,))]), (("C", "D"), [(1, (4,)), (4, (5,))])):
        scheme = TwoLevel(LANS, [link for link in ring if link != gone])
        assert [(send.sender, send.group) for send in scheme.plan(1, [5]).sends] == ways


@pytest.mark.spec("07/O7", "07/T-15")
@given(st.data())
def test_two_levels_reach_every_interested_broker_once(data: st.DataObject) -> None:
    names: list[LanId] = list("ABCD")
    links = [(data.draw(st.sampled_from(names[:i])), names[i]) for i in range(1, 4)]
    more = data.draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names))))
    brokers = [member for members in LANS.values() for member in members]
    sender, wanted = (
        data.draw(st.sampled_from(brokers)),
        data.draw(st.sets(st.sampled_from(brokers))),
    )
    plan = TwoLevel(LANS, links + more).plan(sender, wanted)
    check_exactly_once(plan, sender, wanted)
    concerned = [set(members) for members in LANS.values() if wanted & {*members} - {sender}]
    home = next(set(members) for members in LANS.values() if sender in members)
    assert set(plan.vain) <= home.union(*concerned)


def test_bad_networks_are_refused() -> None:
    with pytest.raises(InvalidTopology, match="daemon"):
        TwoLevel({"A": ()})
    with pytest.raises(DuplicateBroker, match="twice"):
        TwoLevel({"A": (1, 1)})
    with pytest.raises(DuplicateBroker, match="twice"):
        TwoLevel({"A": (1,), "B": (1,)}, [("A", "B")])
    with pytest.raises(InvalidTopology, match="connected"):
        TwoLevel({})
    for links in ([], [("A", "Z"), ("A", "B")]):
        with pytest.raises(InvalidTopology, match="connected"):
            TwoLevel({"A": (1,), "B": (2,)}, links)


# -- regions

TANK = Region.of((40, 60), (10, 20))


@pytest.mark.spec("07/E-15")
def test_e15_grid() -> None:
    groups = GridGroups(space=(100, 100), cell=(50, 50))
    assert groups.count == 4
    assert [group for _, group in groups.subscribe("tank", TANK).joined] == [(0, 0), (1, 0)]
    groups.publish("near", Region.of((55, 70), (15, 30)))
    near = groups.update("near")
    assert (near.groups, near.delivered, near.false) == (((1, 0),), ("tank",), ())
    groups.publish("far", Region.of((70, 80), (30, 40)))
    far = groups.update("far")
    assert (far.groups, far.delivered, far.false) == (((1, 0),), (), ("tank",))


@pytest.mark.spec("07/E-15")
def test_e15_regions() -> None:
    groups = RegionGroups(dimensions=2)
    groups.subscribe("tank", TANK)
    assert groups.publish("near", Region.of((55, 70), (15, 30))).joined == (("tank", "near"),)
    assert groups.publish("far", Region.of((70, 80), (30, 40))).joined == ()
    assert groups.count == 2
    near, far = groups.update("near"), groups.update("far")
    assert (near.groups, near.delivered, near.false) == (("near",), ("tank",), ())
    assert (far.groups, far.delivered, far.false) == ((), (), ())


@pytest.mark.spec("07/4.8")
def test_one_update_through_two_cells_is_taken_once() -> None:
    groups = GridGroups(space=(100, 100), cell=(50, 50))
    groups.subscribe("tank", TANK)
    groups.publish("near", Region.of((45, 55), (0, 5)))
    arrival = groups.update("near")
    assert (arrival.delivered, arrival.false, arrival.repeated) == ((), ("tank",), 1)
    groups.publish("near", Region.of((45, 55), (0, 15)))
    assert groups.update("near").delivered == ("tank",)
    assert groups.update("near").repeated == 1


@pytest.mark.spec("07/4.8")
def test_moving_updates_churns_region_groups_only() -> None:
    grid, regions = GridGroups(space=(100, 100), cell=(50, 50)), RegionGroups(dimensions=2)
    for federation in (grid, regions):
        federation.subscribe("tank", TANK)
        federation.publish("plane", Region.of((0, 10), (0, 10)))
    there = Region.of((50, 55), (10, 12))
    assert len(grid.publish("plane", there)) == 0
    assert regions.publish("plane", there).joined == (("tank", "plane"),)
    assert len(grid.publish("plane", Region.of((0, 10), (0, 10)))) == 0
    assert regions.publish("plane", Region.of((0, 10), (0, 10))).left == (("tank", "plane"),)
    # A subscription that moves costs joins in both, in a grid only when it crosses cells.
    assert len(grid.subscribe("tank", Region.of((42, 62), (10, 20)))) == 0
    moved = grid.subscribe("tank", Region.of((60, 70), (10, 20)))
    assert (moved.joined, moved.left) == ((), (("tank", (0, 0)),))
    assert regions.subscribe("tank", Region.of((5, 6), (5, 6))).joined == (("tank", "plane"),)


_sides = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda s: (min(s), max(s)))
_regions = st.builds(Region.of, _sides, _sides)
_moves = st.lists(
    st.tuples(st.sampled_from(("subscribe", "publish", "leave")), st.sampled_from("abcd"), _regions)
)


@pytest.mark.spec("07/4.8", "07/E-15", "07/T-15")
@given(_moves)
def test_those_that_want_an_update_get_it(moves: list[tuple[str, str, Region]]) -> None:
    """Both ways deliver the same; only a grid reaches others; groups are what regions say."""
    grid, regions = GridGroups(space=(12, 12), cell=(5, 4)), RegionGroups(dimensions=2)
    wanted: dict[str, Region] = {}
    offered: dict[str, Region] = {}
    members: dict[int, set[tuple[str, object]]] = {0: set(), 1: set()}
    for act, federate, region in moves:
        for number, federation in enumerate((grid, regions)):
            if act == "leave":
                churn = federation.leave(federate)
            elif act == "subscribe":
                churn = federation.subscribe(federate, region)
            else:
                churn = federation.publish(federate, region)
            assert members[number].isdisjoint(churn.joined)
            assert members[number].issuperset(churn.left)
            members[number] = members[number].difference(churn.left).union(churn.joined)
        if act == "leave":
            wanted.pop(federate, None), offered.pop(federate, None)
        else:
            (wanted if act == "subscribe" else offered)[federate] = region
        for publisher, area in offered.items():
            receivers = {f for f, r in wanted.items() if f != publisher and r.intersects(area)}
            for federation in (grid, regions):
                arrival = federation.update(publisher)
                assert set(arrival.delivered) == receivers
                assert len(arrival.delivered) == len(receivers)
                assert not receivers.intersection(arrival.false)
            assert (arrival.false, arrival.repeated) == ((), 0)  # of the region groups
    for number, federation in enumerate((grid, regions)):
        assert members[number] == {(f, g) for f in wanted for g in federation.groups_of(f)}


def test_the_upper_border_belongs_to_the_last_cell() -> None:
    groups = GridGroups(space=(10,), cell=(5,))
    assert groups.subscribe("a", Region.of((10, 10))).joined == (("a", (1,)),)
    assert groups.subscribe("b", Region.of((5, 5))).joined == (("b", (1,)),)


def test_bad_regions_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="lower bound first"):
        Region.of((2, 1))
    with pytest.raises(InvalidConfiguration, match="lower bound first"):
        Region.of((float("nan"), 1))
    with pytest.raises(InvalidConfiguration, match="do not cut up"):
        GridGroups(space=(10, 10), cell=(5,))
    with pytest.raises(InvalidConfiguration, match="do not cut up"):
        GridGroups(space=(10,), cell=(0,))
    grid = GridGroups(space=(10,), cell=(5,))
    with pytest.raises(InvalidConfiguration, match="outside"):
        grid.subscribe("a", Region.of((5, 11)))
    with pytest.raises(InvalidConfiguration, match="dimensions"):
        grid.publish("a", Region.of((1, 2), (1, 2)))
    with pytest.raises(UnknownClient, match="update region"):
        grid.update("a")
