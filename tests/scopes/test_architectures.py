"""Every architecture delivers what the model does, on generated graphs and the printed examples."""

from itertools import pairwise
from random import Random

import pytest
from many_graphs import CHECKS, components, on_brokers, run, versions
from random_graphs import random_graph, random_notification
from shorthand import event, graph_of

from stentor.errors import InvalidConfiguration, InvalidScopeGraph, InvalidTopology
from stentor.scopes import OPEN, EdgeMapping, Interface, Kind, ScopeGraph, mapping_of, policy_of
from stentor.scopes.architectures import (
    IntegratedRouting,
    MappingComponents,
    RootedScopes,
    ScopeMedia,
    advise,
)


@pytest.mark.spec(
    "04/P10", "05/P1", "05/P2", "05/P14", "R-05.70", "R-05.80", "R-05.81", "R-05.90", "R-05.100"
)
@pytest.mark.spec("R-04.10", "04/A6", "R-05.53", "R-05.58", "R-05.59", "R-05.60", "R-05.103")
@pytest.mark.parametrize("implementation", CHECKS)
def test_deliveries_are_those_of_the_model(implementation: str) -> None:
    for seed in range(60):
        run(implementation, seed)


@pytest.mark.spec("R-04.27", "04/P2", "05/8.17", "04/A3")
def test_roots_decide_where_everything_is_open() -> None:
    r = Random(2)
    for _ in range(80):
        g = ScopeGraph(open_by_default=True)
        shape = random_graph(r)
        for id, node in shape.nodes.items():
            if node.is_scope:
                g.create_scope(id)
            else:
                g.add_component(id)
        for node in shape.nodes.values():
            for edge in node.parents.values():
                g.join(edge.child.id, edge.parent.id)
        system = RootedScopes(g)
        for publisher in components(g):
            n = random_notification(r)
            told = sorted({each.consumer for each in g.deliveries(n, publisher)})
            assert system.publish(publisher, n) == told
    closed = graph_of("x>s y>s")
    closed.set_interface("s", Interface.of(output=False))
    with pytest.raises(InvalidScopeGraph, match="every interface is open"):
        RootedScopes(closed)


@pytest.mark.spec("05/P3")
@pytest.mark.parametrize("mode", ["once", "gateway"])
def test_as_many_copies_as_paths_wherever_the_brokers_are(mode: str) -> None:
    r = Random(mode)
    for _ in range(60):
        g = random_graph(r)
        system, paths = on_brokers(g, r, mode), ScopeMedia(g)
        n, publisher = random_notification(r), r.choice(components(g))
        system.publish(publisher, n)
        paths.publish(publisher, n)
        assert system.copies == paths.copies


@pytest.mark.spec("05/P11", "05/P4")
def test_overlays_are_connected_and_paths_turn_once() -> None:
    r = Random(11)
    for _ in range(60):
        g = random_graph(r)
        system = on_brokers(g, r, "once")
        for scope, overlay in system.overlays.items():
            assert system.topology.span(overlay) == overlay
            for above in g.node(scope).parents:
                assert not overlay.isdisjoint(system.overlays[above])
        publisher = r.choice(components(g))
        for delivery in system.publish(publisher, random_notification(r)):
            up = [b in g.node(a).parents for a, b in pairwise(delivery.path)]
            assert up == sorted(up, reverse=True), "first up, then down"


# The printed example: S in T and U, six clients at five brokers (05/E3).
EDGES = "c1>S c3>S c4>S c2>T c6>T c5>U S>T S>U"
LINKS = [(1, 2), (2, 3), (2, 4), (1, 5)]
HOMES = {"c1": 1, "c2": 1, "c3": 3, "c4": 4, "c6": 4, "c5": 5}
GATEWAYS = {("S", "T"): 1, ("S", "U"): 1}
#: By publisher: messages everywhere, at the gateway, once, and combined; hops at the gateway and
#: once.
PRINTED = {
    "c1": ((10, 6, 6, 4), {"c2": (0, 0), "c3": (2, 2), "c4": (2, 2), "c5": (1, 1), "c6": (2, 2)}),
    "c2": ((11, 5, 5, 3), {"c1": (0, 0), "c3": (2, 2), "c4": (2, 2), "c6": (2, 2)}),
    "c3": ((10, 6, 6, 4), {"c1": (2, 2), "c2": (2, 2), "c4": (2, 2), "c5": (3, 3), "c6": (4, 2)}),
    "c4": ((10, 6, 6, 4), {"c1": (2, 2), "c2": (2, 2), "c3": (2, 2), "c5": (3, 3), "c6": (4, 0)}),
    "c5": ((4, 4, 4, 4), {"c1": (1, 1), "c3": (3, 3), "c4": (3, 3)}),
    "c6": ((11, 5, 5, 3), {"c1": (2, 2), "c2": (2, 2), "c3": (4, 2), "c4": (4, 0)}),
}


def printed(mode: str) -> IntegratedRouting:
    g = graph_of(EDGES, self_delivery=False)
    return IntegratedRouting(g, LINKS, HOMES, mode=mode, gateways=GATEWAYS)


@pytest.mark.spec("05/8.4")
def test_copies_for_several_scopes_share_nothing_that_one_of_them_changes() -> None:
    """Identity mappings on both ways: what goes on from S to Z knows nothing of the way by T."""
    g = graph_of("p>S p>T S>Z T>Y z>Z y>Y q>S", self_delivery=False)
    n = event("n", x=1)
    system = IntegratedRouting(g, [(1, 2)], {"p": 1, "q": 2, "z": 2, "y": 2})
    paths = {each.consumer: each.path for each in system.publish("p", n)}
    assert paths == {"q": ("p", "S", "q"), "z": ("p", "S", "Z", "z"), "y": ("p", "T", "Y", "y")}
    assert n == event("n", x=1)


@pytest.mark.spec("05/8.12")
@pytest.mark.spec("05/E3", "05/4.10", "05/8.1", "05/P13", "R-05.82", "R-05.89", "R-05.91")
@pytest.mark.parametrize("publisher", PRINTED)
def test_the_printed_example_of_integrated_routing(publisher: str) -> None:
    (everywhere, gateway, once, combined), expected = PRINTED[publisher]
    system = printed("once")
    assert system.overlays == {"S": {1, 2, 3, 4}, "T": {1, 2, 4}, "U": {1, 5}}
    system.publish(publisher, event("n"))
    assert (system.messages, system.combined) == (once, combined)
    assert system.hops == {id: hops for id, (_, hops) in expected.items()}
    assert set(system.copies.values()) == {1}
    other = printed("gateway")
    other.publish(publisher, event("n"))
    assert other.messages == gateway
    assert other.hops == {id: hops for id, (hops, _) in expected.items()}
    many = printed("everywhere")
    many.publish(publisher, event("n"))
    assert many.messages == everywhere
    assert max(many.copies.values()) == (1 if publisher == "c5" else 3)


@pytest.mark.spec("05/E3.a", "05/8.2")
def test_crossing_once_looks_at_the_overlay_and_not_at_subscriptions() -> None:
    g = graph_of(EDGES, self_delivery=False)
    g.set_interface("c2", Interface.of(input=False))
    system = IntegratedRouting(g, LINKS, HOMES)
    system.publish("c1", event("n"))
    assert system.copies["c6"] == 1


@pytest.mark.spec("05/E3.e", "05/8.3")
def test_chained_crossings_at_one_broker_both_happen() -> None:
    g = graph_of("a>S b>T d>T e>V f>V S>T T>V", self_delivery=False)
    homes = {"a": 1, "b": 2, "d": 4, "e": 1, "f": 2, "S": 2}
    system = IntegratedRouting(g, [(1, 2), (2, 4)], homes)
    assert system.overlays == {"S": {1, 2}, "T": {2, 4}, "V": {1, 2}}
    system.publish("a", event("n"))
    assert system.copies == {"b": 1, "d": 1, "e": 1, "f": 1}


@pytest.mark.spec("05/E3.b", "05/E3.c", "05/E3.d", "05/P12")
def test_overlays_follow_members_that_come_and_go() -> None:
    g = graph_of(EDGES)
    homes = HOMES | {"c7": 5, "c8": 3}
    for member, scope in (("c7", "T"), ("c8", "U")):
        g.add_component(member)
        g.join(member, scope)
    overlays = IntegratedRouting(g, LINKS, homes).overlays
    assert overlays == {"S": {1, 2, 3, 4}, "T": {1, 2, 4, 5}, "U": {1, 2, 3, 5}}
    for member, scope in (("c7", "T"), ("c8", "U"), ("c6", "T")):
        g.leave(member, scope)
    system = IntegratedRouting(g, LINKS, homes)
    assert system.overlays == {"S": {1, 2, 3, 4}, "T": {1}, "U": {1, 5}}
    system.publish("c4", event("n"))
    assert system.hops["c2"] == 2


@pytest.mark.spec("05/E2", "05/P16", "R-05.62", "R-05.72")
@pytest.mark.parametrize("length", [3, 4, 5])
def test_accesses_of_media_follow_from_the_length_of_the_path(length: int) -> None:
    scopes = [f"s{i}" for i in range(length - 2)]
    edges = " ".join(f"{a}>{b}" for a, b in pairwise(scopes))
    g = graph_of(f"p>s0 c>{scopes[-1]} {edges}", self_delivery=False)
    for medium, accesses in (("direct", length - 1), ("addressed", length - 2)):
        system = ScopeMedia(g, medium=medium)
        assert [each.consumer for each in system.publish("p", event("n"))] == ["c"]
        assert system.accesses == accesses


@pytest.mark.spec("05/E5", "R-05.71", "05/8.18", "05/4.8")
def test_copies_behind_diamonds() -> None:
    twice = ScopeMedia(graph_of("C>A C>B A>Z B>Z c>Z", self_delivery=False))
    assert len(twice.publish("C", event("n"))) == 1
    assert twice.copies == {"c": 2}
    diamond = graph_of("p>S q>S S>A S>B A>Z B>Z a>A z>Z", self_delivery=False)
    system = ScopeMedia(diamond)
    system.publish("p", event("n"))
    assert system.copies == {"q": 1, "a": 2, "z": 2}


@pytest.mark.spec("R-05.92", "04/P11", "05/8.6")
def test_administrators_with_direct_media_apply_policies() -> None:
    g = graph_of("p>S m1>S m2>S m3>S", self_delivery=False)
    g.set_policy("S", Kind.INTERNAL, policy_of("round_robin", ()))
    system = ScopeMedia(g)
    chosen = [system.publish("p", event("n", x=x))[0].consumer for x in range(4)]
    assert chosen == [g.deliveries(event("n", x=x), "p")[0].consumer for x in range(4)]
    with pytest.raises(InvalidScopeGraph, match="make it direct"):
        ScopeMedia(g, medium="addressed")
    for refused in (MappingComponents, lambda g: IntegratedRouting(g, [], {})):
        with pytest.raises(InvalidScopeGraph, match="polic"):
            refused(g)


@pytest.mark.spec("04/E16", "04/T2")
def test_mapping_components_neither_leak_nor_ping_pong() -> None:
    g = graph_of("A>S B>T L>K K>S K>T", self_delivery=False)
    for scope in "ST":
        tag = mapping_of({"via": scope})
        g.set_edge("K", scope, mapping=EdgeMapping(up=tag, down=tag))
    system = MappingComponents(g)
    assert versions(system.publish("A", event("n"))) == {("L", event("n", via="S"))}
    assert versions(system.publish("L", event("n"))) == {
        ("A", event("n", via="S")),
        ("B", event("n", via="T")),
    }


@pytest.mark.spec("R-05.63", "05/4.11", "R-05.50")
def test_the_advisor_names_what_can_do_what_is_needed() -> None:
    assert advise(["mappings", "distribution", "enforcement"]) == [
        "broker scopes",
        "integrated routing",
    ]
    assert advise(["changes"], {"infrastructure": 1}) == [
        "addressing scopes",
        "central hub",
        "broker scopes",
        "integrated routing",
    ]
    with pytest.raises(InvalidConfiguration, match="'speed'"):
        advise(weights={"speed": 1})


def test_brokers_that_form_no_tree_are_refused() -> None:
    g = graph_of("a>S", self_delivery=False)
    g.create_scope("alone", interface=OPEN)
    for links in ([(1, 2), (2, 3), (3, 1)], [(1, 2), (3, 4)]):
        with pytest.raises(InvalidTopology, match="tree"):
            IntegratedRouting(g, links, {"a": 1})
