"""Policies: sheet 04 §3.5, who of those that may have it gets it, and when."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph, random_notification
from shorthand import event, graph_of, receivers, wants

from stentor.errors import InvalidScopeGraph
from stentor.scopes import Answer, Interface, Kind, policy_of, register_policy
from stentor.scopes.policies import Broadcast


def put(g, scope, kind, name, *arguments):
    g.set_policy(scope, Kind(kind), policy_of(name, arguments))


@pytest.mark.spec("04/E13", "R-04.65", "R-04.67", "04/P12", "04/A9")
def test_round_robin_among_those_who_want_it():
    g = graph_of("p>T S>T m1>S m2>S m3>S")
    put(g, "S", "delivery", "round_robin")
    assert [receivers(g, "p", event("n", i=i))[0] for i in range(4)] == ["m1", "m2", "m3", "m1"]
    g = graph_of("p>T S>T m1>S m2>S m3>S")
    put(g, "S", "delivery", "round_robin")
    wants(g, m2=False)
    assert [receivers(g, "p", event("n", i=i))[0] for i in range(4)] == ["m1", "m3", "m1", "m3"]


@pytest.mark.spec("R-04.62", "04/T8")
def test_a_second_way_is_asked_about_where_a_policy_looks_at_the_way():
    g = graph_of("p>W S>W A>W S>A x>S")
    put(g, "S", "delivery", "through", "A")
    assert receivers(g, "p", event("n")) == ["x"], "the way past A is shorter, and refused"


@pytest.mark.spec("04/E13", "R-04.64", "R-04.19", "04/T10", "05/8.5", "R-05.92")
def test_what_comes_from_inside_and_from_outside_are_two_things():
    g = graph_of("X>S Y>S S>T t>T")
    put(g, "S", "internal", "none")
    assert receivers(g, "Y", event("n")) == ["t"]
    assert receivers(g, "t", event("n")) == ["X", "Y"]


@pytest.mark.spec("04/E13", "R-04.62", "R-04.60", "R-04.63")
def test_a_publishing_policy_chooses_superscopes():
    g = graph_of("X>S Y>S S>T t>T")
    put(g, "S", "publishing", "none")
    assert receivers(g, "Y", event("n")) == ["X"]
    g = graph_of("Y>S S>low S>high l>low h>high")
    g.set_attributes("low", {"privilege": 1})
    g.set_attributes("high", {"privilege": 3})
    put(g, "S", "publishing", "require_privilege", 2)
    assert receivers(g, "Y", event("n")) == ["h"]
    g = graph_of("trader>M1 trader>M2 a>M1 b>M2")
    put(g, "trader", "publishing", "only", "M2")
    assert receivers(g, "trader", event("n")) == ["b"]
    with pytest.raises(InvalidScopeGraph, match="only have a publishing policy"):
        put(g, "trader", "delivery", "none")


@pytest.mark.spec("04/E13", "R-04.65", "04/A9")
def test_a_chain_of_handlers():
    g = graph_of("p>S h1>S h2>S h3>S")
    put(g, "S", "internal", "chain", "h1", "h2", "h3")
    assert [receivers(g, who, event("n")) for who in ("p", "h1", "h2", "h3")] == [
        ["h1"],
        ["h2"],
        ["h3"],
        [],
    ]


@pytest.mark.spec("04/E13", "R-04.67", "04/T11")
def test_a_rate_limit_counts_for_each_consumer():
    g = graph_of("p>S a>S")
    put(g, "S", "internal", "rate_limit", 10)
    times = [t for t in (0, 3, 9, 10, 12, 20) if receivers(g, "p", event("n", t=t), now=t)]
    assert times == [0, 10, 20]


@pytest.mark.spec("04/E13", "R-04.67", "R-04.70", "04/T13", "04/P14")
def test_a_delay_asks_again_when_it_is_over():
    def delayed():
        g = graph_of("p>S a>S b>T S>T")
        put(g, "S", "internal", "delay", "60s")
        return g

    g = delayed()
    assert receivers(g, "p", event("n"), now=0) == ["b"]
    assert g.advance(59) == []
    assert [d.consumer for d in g.advance(60)] == ["a"]
    assert g.advance(1_000) == []
    g = delayed()
    g.deliveries(event("n"), "p", now=0)
    wants(g, a=False)
    assert g.advance(60) == []
    g = delayed()
    g.deliveries(event("n"), "p", now=0)
    g.leave("a", "S")
    assert g.advance(60) == []
    g = delayed()
    wants(g, a=False)
    assert not g.outcome(event("n"), "p", now=0).postponed  # only what may pass is put off


@pytest.mark.spec("04/E13", "R-04.68", "R-04.67")
@pytest.mark.parametrize(("end", "expected"), [("commit", [0, 1, 2]), ("abort", [])])
def test_what_is_held_goes_on_or_is_dropped(end, expected):
    g = graph_of("p>S a>S")
    wants(g, a="exists number")
    put(g, "S", "internal", "hold", "tx", "kind = 'commit'", "kind = 'abort'")
    for number in range(3):
        assert receivers(g, "p", event("work", tx=7, number=number)) == []
    assert receivers(g, "p", event("work", number=9)) == ["a"]  # without the attribute
    assert receivers(g, "p", event("commit", tx=8)) == []
    found = g.deliveries(event(end, tx=7), "p")
    numbers = [d.notification["number"] for d in found if d.consumer == "a"]
    assert numbers == expected
    assert g.postponed == []


@pytest.mark.spec("R-04.61", "R-04.67", "04/A9")
def test_policies_may_look_at_more_than_filters():
    g = graph_of("p>S q>S a>S b>S S>T T>U u>U")
    g.set_attributes("p", {"clearance": 3})
    put(g, "S", "internal", "by_producer", "clearance >= 2")
    assert receivers(g, "p", event("n")) == ["a", "b", "q", "u"]
    assert receivers(g, "q", event("n")) == ["u"]
    put(g, "T", "publishing", "avoiding", "S")
    assert receivers(g, "q", event("n")) == []
    put(g, "T", "publishing", "through", "S")
    assert receivers(g, "q", event("n")) == ["u"]
    g.set_attributes("a", {"load": 5})
    g.set_attributes("b", {"load": 2})
    put(g, "S", "internal", "top_k", "load", 1, "asc")
    assert receivers(g, "p", event("n")) == ["b", "u"]
    put(g, "S", "internal", "one_of_n", "least_loaded")
    assert receivers(g, "p", event("n")) == ["b", "u"]
    put(g, "S", "internal", "key_affine", "customer")
    chosen = {c: receivers(g, "p", event("n", customer=c)) for c in range(20)}
    assert all(chosen[c] == receivers(g, "p", event("n", customer=c, again=1)) for c in chosen)
    assert len({tuple(names) for names in chosen.values()}) > 1


@pytest.mark.spec("R-04.61", "R-05.42", "R-05.34")
def test_a_policy_of_ones_own_is_given_its_arguments():
    def every(asked, state, count):
        seen = (state or 0) + 1
        return Answer(asked.eligible if seen % count == 0 else (), seen)

    register_policy("scope-test-every", every)
    g = graph_of("p>S a>S")
    put(g, "S", "internal", "scope-test-every", 3)
    assert [bool(receivers(g, "p", event("n", i=i))) for i in range(6)] == [False, False, True] * 2
    with pytest.raises(InvalidScopeGraph, match="no policy 'scope-test-none'"):
        policy_of("scope-test-none", ())


@pytest.mark.spec("04/P11", "04/T11", "R-04.60")
def test_behind_a_fork_one_of_n_still_gives_it_to_one():
    g = graph_of("C1>T C1>U T>S U>S a>S b>S")
    put(g, "S", "internal", "deep_one_of_n")
    assert [receivers(g, "C1", event("n", i=i)) for i in range(4)] == [["a"], ["b"]] * 2


@pytest.mark.spec("04/T12", "04/A9")
def test_one_of_n_can_look_for_somebody_below():
    g = graph_of("p>T S>T A>S B>S b>B", scopes="A")
    put(g, "S", "delivery", "round_robin")
    assert [receivers(g, "p", event("n", i=i)) for i in range(2)] == [[], ["b"]]
    put(g, "S", "delivery", "deep_one_of_n")
    assert [receivers(g, "p", event("n", i=i)) for i in range(2)] == [["b"], ["b"]]


@pytest.mark.spec("04/E14", "04/A8", "R-04.66", "04/T24")
@pytest.mark.parametrize(
    ("wanting", "closed", "broadcast", "top_down", "bottom_up"),
    [
        ("abc", False, "abc", "a", "c"),
        ("bc", False, "bc", "b", "c"),
        ("ab", False, "ab", "a", "b"),
        ("ac", True, "a", "a", "a"),
        ("", False, "", "", ""),
    ],
)
def test_traverse(wanting, closed, broadcast, top_down, bottom_up):
    for order, expected in (("", broadcast), ("top_down", top_down), ("bottom_up", bottom_up)):
        g = graph_of("p>R S>R a>S S1>S b>S1 S2>S1 c>S2")
        wants(g, **{name: name in wanting for name in "abc"})
        if closed:
            g.set_interface("S1", Interface.of(False, True))
        if order:
            put(g, "S", "traverse", order)
        assert receivers(g, "p", event("n")) == list(expected)


@pytest.mark.spec("04/A8", "R-04.66")
def test_a_search_ends_where_another_policy_reigns():
    g = graph_of("p>R S>R S1>S b>S1 S2>S c>S2")
    put(g, "S", "traverse", "top_down")
    assert receivers(g, "p", event("n")) == ["b"]
    put(g, "S", "traverse", "top_down", "all")
    assert receivers(g, "p", event("n")) == ["b", "c"]
    put(g, "S1", "traverse", "bottom_up")
    assert receivers(g, "p", event("n")) == ["c"]
    put(g, "S", "traverse", "top_down", "all", "broadcast")
    assert receivers(g, "p", event("n")) == ["b", "c"]


@pytest.mark.spec("R-04.46", "R-04.70")
def test_to_ask_changes_nothing():
    g = graph_of("p>S a>S b>S")
    put(g, "S", "internal", "round_robin")
    first = g.outcome(event("n"), "p")
    assert [d.consumer for d in g.outcome(event("n"), "p").deliveries] == ["p", "a"]
    g.commit(first)
    assert receivers(g, "p", event("n", i=2)) == ["b"]


def with_policies(r):
    g = random_graph(r, mappings=True)
    scopes = [id for id, node in g.nodes.items() if node.is_scope]
    return g, scopes


@pytest.mark.spec("04/P11", "R-04.60")
@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_policy_only_takes_away(r):
    g, scopes = with_policies(r)
    x, n = r.choice([id for id in g.nodes if id[0] == "c"]), random_notification(r)
    before = {(d.consumer, d.notification) for d in g.outcome(n, x).deliveries}
    for scope in scopes:
        g.set_policy(scope, r.choice([Kind.DELIVERY, Kind.INTERNAL, Kind.PUBLISHING]), Broadcast())
    assert {(d.consumer, d.notification) for d in g.outcome(n, x).deliveries} == before
    for scope in scopes:
        kind = r.choice([Kind.DELIVERY, Kind.INTERNAL, Kind.PUBLISHING])
        name, *given = r.choice([("round_robin",), ("none",), ("top_k", "load", 1), ("only", "c1")])
        g.set_policy(scope, kind, policy_of(name, tuple(given)))
    assert {(d.consumer, d.notification) for d in g.outcome(n, x).deliveries} <= before


@pytest.mark.spec("04/P13", "R-04.66")
@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_search_finds_somebody_if_there_is_anybody(r):
    g, scopes = with_policies(r)
    top = scopes[-1]
    g.create_scope("above")
    g.join(top, "above")
    g.set_interface(top, Interface.of(True, True))
    g.add_component("outside", interface=Interface.of(False, True))
    g.join("outside", "above")
    n = random_notification(r)
    everyone = {(d.consumer, d.notification) for d in g.outcome(n, "outside").deliveries}
    for order in ("top_down", "bottom_up"):
        put(g, top, "traverse", order)
        found = {(d.consumer, d.notification) for d in g.outcome(n, "outside").deliveries}
        assert found <= everyone
        assert bool(found) == bool(everyone)


@pytest.mark.spec("04/A7", "R-04.22")
def test_operations_are_refused_or_repeated_without_harm():
    g = graph_of("a>S")
    g.join("a", "S")
    assert g.members("S") == ("a",)
    with pytest.raises(KeyError, match="not a member"):
        g.leave("S", "S")
    with pytest.raises(InvalidScopeGraph, match="has members"):
        g.destroy_scope("S")
    g.leave("a", "S")
    g.destroy_scope("S")
    assert g.roots("a") == {"a"}
