"""Structure and visibility: sheet 04 §3.2, the graph itself, without interfaces."""

import copy
import pickle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph, random_notification
from shorthand import event, graph_of, receivers

from stentor.errors import InvalidScopeGraph, UnknownScope
from stentor.filters import Filter
from stentor.scopes import OPEN, MembershipRule, ScopeGraph

FIG_6_2 = "X>S Y>S Y>T Z>T T>R U>R"


@pytest.mark.spec("R-04.14", "R-04.15", "04/E1")
def test_figure_6_2_answers_questions_about_structure():
    g = graph_of(FIG_6_2)
    assert set(g.parents("Y")) == {"S", "T"}
    assert g.is_below("Y", "R")
    assert not g.is_below("R", "R")
    assert "Z" in g.siblings("Y")
    assert {n: g.roots(n) for n in "XYZUT"} == {
        "X": {"S"},
        "Y": {"R", "S"},
        "Z": {"R"},
        "U": {"R"},
        "T": {"R"},
    }
    assert g.minimal() == {"X", "Y", "Z", "U"}
    assert g.maximal() == {"S", "R"}


@pytest.mark.spec("R-04.16", "04/E1", "04/T5", "04/T6")
def test_visibility_is_not_transitive():
    g = graph_of(FIG_6_2)
    assert all(g.visible(*pair) for pair in ("XY", "YU", "YZ", "ZU", "XX", "XS", "YX"))
    assert not any(g.visible(*pair) for pair in ("XZ", "XU", "XT"))
    g.add_component("alone")
    assert g.visible("alone", "alone")
    assert not g.visible("alone", "X")


@pytest.mark.spec("R-04.14", "R-04.22", "04/P19", "05/P7")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda g: g.join("R", "T"), "no cycles"),
        (lambda g: g.join("R", "R"), "itself"),
        (lambda g: g.join("T", "X"), "simple component"),
        (lambda g: g.create_scope("X"), "taken"),
        (lambda g: g.destroy_scope("T"), "has members"),
        (lambda g: g.remove_component("T"), "is a scope"),
    ],
)
def test_a_change_that_would_break_the_graph_changes_nothing(change, why):
    g = graph_of(FIG_6_2)
    before = {id: (set(n.parents), set(n.children)) for id, n in g.nodes.items()}
    with pytest.raises(InvalidScopeGraph, match=why):
        change(g)
    assert {id: (set(n.parents), set(n.children)) for id, n in g.nodes.items()} == before


def test_an_unknown_name_is_told_with_the_nearest_one():
    g = graph_of("ticker>market")
    with pytest.raises(UnknownScope, match="did you mean 'market'"):
        g.visible("ticker", "markt")
    with pytest.raises(UnknownScope, match="not a member"):
        g.leave("market", "ticker")


@pytest.mark.spec("R-04.22", "R-05.02")
def test_scopes_come_and_go_at_run_time():
    g = graph_of("X>S Y>S")
    assert receivers(g, "X", event("a")) == ["Y"]
    g.leave("Y", "S")
    assert receivers(g, "X", event("a")) == []
    assert g.roots("Y") == {"Y"}
    g.join("Y", "S")
    g.join("Y", "S")  # a repeat changes nothing
    assert receivers(g, "X", event("a")) == ["Y"]
    g.destroy_scope("S", force=True)
    assert "S" not in g
    assert g.parents("X") == ()


@pytest.mark.spec("R-04.24", "04/P17", "04/T20")
def test_with_leaf_only_no_scope_with_members_moves():
    g = ScopeGraph(leaf_only=True)
    for scope in "RST":
        g.create_scope(scope, interface=OPEN)
    g.join("S", "R")
    g.add_component("X")
    g.join("X", "S")
    with pytest.raises(InvalidScopeGraph, match="only leaves"):
        g.join("S", "T")
    with pytest.raises(InvalidScopeGraph, match="only leaves"):
        g.leave("S", "R")
    assert g.roots("X") == {"R"}


@pytest.mark.spec("R-04.25", "R-05.03", "04/E7")
def test_attributes_are_kept_as_they_are_given():
    g = graph_of("X>S")
    g.set_attributes("S", {"name": "ItsMe", "creation": "2004-12-20 12:22"})
    assert g.node("S").attributes == {"name": "ItsMe", "creation": "2004-12-20 12:22"}


@pytest.mark.spec("R-04.26", "04/E15", "04/P15", "04/T22", "05/P5")
def test_abstract_scopes_group_and_carry_nothing():
    g = graph_of("X>S1 Y>S2")
    g.create_scope("D", abstract=True, attributes={"owner": "ops"})
    for name in "XY":
        g.join(name, "D")
    g.create_scope("inside", interface=OPEN)
    g.join("D", "inside")
    assert not g.visible("X", "Y")
    assert g.roots("X") == {"S1"}
    assert set(g.members("D")) == {"X", "Y"}
    assert all(g.node("D").attributes == {"owner": "ops"} for _ in g.members("D"))
    assert receivers(g, "X", event("a")) == []
    with pytest.raises(InvalidScopeGraph, match="no cycles"):
        g.join("inside", "D")


@pytest.mark.spec("R-04.29", "05/E3.f")
def test_a_scope_may_refuse_who_wants_to_join():
    g = ScopeGraph()
    g.create_scope("vault", interface=OPEN, admits=Filter("clearance >= 2"))
    g.add_component("guest", attributes={"clearance": 1})
    g.add_component("officer", attributes={"clearance": 3})
    g.join("officer", "vault")
    with pytest.raises(InvalidScopeGraph, match="does not admit 'guest'"):
        g.join("guest", "vault")
    assert g.members("vault") == ("officer",)


@pytest.mark.spec("R-05.105", "05/P18")
def test_who_is_in_no_scope_is_in_the_default_one():
    g = ScopeGraph(default_scope="everybody")
    g.create_scope("S", interface=OPEN)
    for name in ("a", "b", "c"):
        g.add_component(name)
    assert receivers(g, "a", event("x")) == ["b", "c"]
    g.join("c", "S")
    assert receivers(g, "a", event("x")) == ["b"]
    assert receivers(g, "c", event("x")) == []
    g.leave("c", "S")
    assert receivers(g, "a", event("x")) == ["b", "c"]
    g.join("b", "S")
    g.destroy_scope("S", force=True)
    assert receivers(g, "a", event("x")) == ["b", "c"]
    with pytest.raises(InvalidScopeGraph, match="default scope"):
        g.destroy_scope("everybody", force=True)


@pytest.mark.spec("R-04.13", "04/P20")
def test_rules_make_members_by_what_components_say_of_themselves():
    g = ScopeGraph(default_scope="lobby")
    for tenant in ("acme", "globex"):
        g.create_scope(tenant)
        g.add_rule(MembershipRule(tenant, Filter(f"tenant = '{tenant}'")))
    g.add_component("a1", attributes={"tenant": "acme"})
    g.add_component("a2", attributes={"tenant": "acme"})
    g.add_component("b1", attributes={"tenant": "globex"})
    g.add_component("stranger")
    assert receivers(g, "a1", event("x")) == ["a2"]
    assert receivers(g, "stranger", event("x")) == []
    g.set_attributes("b1", {"tenant": "acme"})
    assert receivers(g, "a1", event("x")) == ["a2", "b1"]
    assert g.members("globex") == ()
    g.remove_rule("acme", "rule")
    assert set(g.members("lobby")) == {"a1", "a2", "b1", "stranger"}


def test_a_membership_stays_as_long_as_something_wants_it():
    g = ScopeGraph()
    g.create_scope("S")
    g.add_rule(MembershipRule("S", Filter("x = 1"), label="one"))
    g.add_rule(MembershipRule("S", Filter("y = 1"), label="two"))
    g.add_component("c", attributes={"x": 1, "y": 1})
    g.set_attributes("c", {"y": 1})
    assert g.members("S") == ("c",)
    g.set_attributes("c", {})
    assert g.members("S") == ()


def test_a_change_of_one_edge_does_not_look_at_the_rest():
    """Counted, not timed: nodes that a change touches in a graph of many scopes."""
    g = ScopeGraph()
    g.create_scope("root")
    for number in range(2_000):
        g.create_scope(f"s{number}", interface=OPEN)
        g.join(f"s{number}", "root")
    g.add_component("c")
    looked: list[str] = []

    class Looking(dict):  # type: ignore[type-arg]
        def __getitem__(self, key):
            looked.append(key)
            return super().__getitem__(key)

        def __iter__(self):
            looked.extend(self.keys())
            return super().__iter__()

        def values(self):
            looked.extend(self.keys())
            return super().values()

    g.nodes = Looking(g.nodes)
    g.nodes["root"].children = Looking(g.nodes["root"].children)
    looked.clear()
    g.join("c", "s7")
    g.leave("c", "s7")
    assert len(looked) < 20


# -- properties on random graphs


@st.composite
def random_edges(draw):
    """Acyclic: an edge leads from a lower number to a higher one."""
    scopes = draw(st.integers(1, 6))
    pairs = st.tuples(st.integers(0, scopes - 1), st.integers(0, scopes - 1))
    between = draw(st.sets(pairs, max_size=8))
    edges = {(f"S{a}", f"S{b}") for a, b in between if a < b}
    for number in range(draw(st.integers(1, 6))):
        for parent in draw(st.sets(st.integers(0, scopes - 1), max_size=3)):
            edges.add((f"c{number}", f"S{parent}"))
    return sorted(edges)


def build(edges):
    g = graph_of("", " ".join(f"S{n}" for n in range(6)))
    for number in range(6):
        g.add_component(f"c{number}")
    for child, parent in edges:
        g.join(child, parent)
    return g


@pytest.mark.spec("04/P1", "R-04.16", "04/A2")
@given(random_edges())
def test_visible_means_that_roots_overlap(edges):
    g = build(edges)
    for x in g.nodes:
        assert g.visible(x, x)
        for y in g.nodes:
            assert g.visible(x, y) == g.visible(y, x) == bool(g.roots(x) & g.roots(y))


@pytest.mark.spec("04/P1")
@given(random_edges(), st.data())
def test_an_edge_more_never_hides_anything(edges, data):
    g = build(edges)
    if not edges:
        return
    child, parent = data.draw(st.sampled_from(edges))
    with_it = {(x, y) for x in g.nodes for y in g.nodes if g.visible(x, y)}
    g.leave(child, parent)
    without = {(x, y) for x in g.nodes for y in g.nodes if g.visible(x, y)}
    assert without <= with_it


@pytest.mark.spec("04/P2", "04/P3", "R-04.17", "R-04.18")
@given(random_edges())
def test_with_open_interfaces_all_who_are_visible_receive(edges):
    g = build(edges)
    for number in range(6):
        x = f"c{number}"
        found = g.deliveries(event("a"), x, duplicates="per_path")
        assert {d.consumer for d in found} == {
            y for y in g.nodes if y[0] == "c" and g.visible(x, y)
        }
        for delivery in found:
            assert len(set(delivery.path)) == len(delivery.path)
            steps = [
                "up" if b in g.parents(a) else "down"
                for a, b in zip(delivery.path, delivery.path[1:], strict=False)
            ]
            assert steps == sorted(steps, reverse=True)  # up comes before down


def test_a_graph_can_be_copied_and_sent_however_deep_it_is():
    r = Random(3)
    for _ in range(20):
        g = random_graph(r, mappings=True)
        twin = pickle.loads(pickle.dumps(g))
        n = random_notification(r)
        for publisher in g.minimal():
            assert twin.outcome(n, publisher) == g.outcome(n, publisher)
        assert (twin.epoch, twin.is_plain) == (g.epoch, g.is_plain)
    deep = graph_of(" ".join(f"s{i}>s{i + 1}" for i in range(3_000)) + " p>s0 c>s3000")
    twin = copy.deepcopy(deep)
    twin.leave("p", "s0")
    assert receivers(deep, "p", event("a")) == ["c"]
    assert receivers(twin, "p", event("a")) == []
