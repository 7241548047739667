"""Interfaces: sheet 04 §3.3, where a notification may pass."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shorthand import event, graph_of, kinds, receivers, wants

from stentor.filters import Filter
from stentor.model import Notification
from stentor.scopes import CLOSED, OPEN, Interface, ScopeGraph


@pytest.mark.spec("04/E2", "R-04.18", "R-04.19", "R-05.01", "05/8.18")
def test_what_comes_in_is_not_passed_on_to_other_superscopes():
    g = graph_of("Y>S W2>S S>T S>T' X>T W>T'")
    assert receivers(g, "Y", event("n1")) == ["W", "W2", "X"]
    assert receivers(g, "X", event("n2")) == ["W2", "Y"]
    reached = {each.scope: each.internal for each in g.outcome(event("n1"), "Y").reached}
    assert reached == {"S": True, "T": True, "T'": True}
    reached = {each.scope: each.internal for each in g.outcome(event("n2"), "X").reached}
    assert reached == {"T": True, "S": False}


@pytest.mark.spec("04/E17", "04/T3")
def test_a_way_down_and_up_again_is_no_delivery_path():
    g = graph_of("S>T S>T' T>R T'>R x>T y>T' a>S")
    found = g.outcome(event("n"), "x", duplicates="per_path").deliveries
    assert {d.path for d in found if d.consumer == "y"} == {("x", "T", "R", "T'", "y")}


@pytest.mark.spec("R-04.30", "04/T7")
def test_without_interfaces_only_roots_count():
    g = graph_of("a>S S>T T>R b>R c>Q")
    assert receivers(g, "a", event("n")) == ["b"]
    g.set_interface("S", CLOSED)
    assert receivers(g, "a", event("n")) == []
    assert g.visible("a", "b")  # who could see whom is a matter of structure


@pytest.mark.spec("R-04.31", "R-04.35", "R-05.05", "R-05.30", "04/T7")
def test_a_new_scope_is_closed_and_one_filter_is_enough():
    g = graph_of("b>R")
    g.create_scope("S")
    g.join("S", "R")
    g.add_component("a")
    g.join("a", "S")
    assert receivers(g, "a", event("n")) == []
    assert receivers(g, "b", event("n")) == []
    g.set_interface("S", Interface.of(output=kinds("x", "y")))
    assert receivers(g, "a", event("x")) == receivers(g, "a", event("y")) == ["b"]
    assert receivers(g, "a", event("z")) == receivers(g, "b", event("x")) == []
    g.set_interface("S", Interface.of(output=[]))
    assert receivers(g, "a", event("x")) == []
    opened = ScopeGraph(open_by_default=True)
    for scope in ("R", "S"):
        opened.create_scope(scope)
    opened.join("S", "R")
    for name, scope in (("a", "S"), ("b", "R")):
        opened.add_component(name)
        opened.join(name, scope)
    assert receivers(opened, "a", event("x")) == ["b"]


@pytest.mark.spec("04/E8", "R-04.32", "R-04.33", "R-04.34")
def test_selective_and_imposed_interfaces_concern_one_edge():
    def graph():
        return graph_of("C>S C>T d>S e>T other>S")

    g = graph()
    g.set_edge("C", "T", selective=Interface.of(output=kinds("A")))
    assert receivers(g, "C", event("A")) == ["d", "e", "other"]
    assert receivers(g, "C", event("B")) == ["d", "other"]
    g = graph()
    g.set_edge("C", "S", imposed=Interface.of(output=kinds("B")))
    assert receivers(g, "C", event("B")) == ["d", "e", "other"]
    assert receivers(g, "C", event("A")) == ["e"]
    assert receivers(g, "other", event("A")) == ["C", "d"]
    g.set_edge("C", "T", selective=Interface.of(output=kinds("A")))
    assert receivers(g, "C", event("A")) == ["e"]
    assert receivers(g, "C", event("B")) == ["d", "other"]
    g = graph()
    g.set_everyone("S", Interface.of(output=kinds("B"), input=kinds("B", "A")))
    assert receivers(g, "other", event("A")) == []
    assert receivers(g, "other", event("B")) == ["C", "d"]
    assert receivers(g, "C", event("A")) == ["e"]


@pytest.mark.spec("R-04.36", "R-04.12", "04/T1", "05/8.11")
def test_subscriptions_and_advertisements_are_the_interface_of_a_component():
    g = graph_of("a>S b>S c>S")
    wants(g, a="kind = 'x'", b="kind = 'x'", c=False)
    assert [d.consumer for d in g.deliveries(event("x"), "a")] == ["a", "b"]
    assert [d.consumer for d in g.deliveries(event("y"), "a")] == []
    g.set_interface("a", Interface.of(input=True, output=kinds("x")))
    assert receivers(g, "a", event("x")) == ["b"]
    assert receivers(g, "a", event("y")) == []  # what was not advertised stays at home
    quiet = graph_of("a>S b>S", self_delivery=False)
    assert [d.consumer for d in quiet.deliveries(event("x"), "a")] == ["b"]


@pytest.mark.spec("R-04.12", "04/P20", "R-04.08")
def test_scopes_go_with_every_way_to_subscribe():
    from stentor.filters.addressing import channel, event_type, subject

    g = graph_of("p>S by_type>S by_subject>S by_channel>S by_content>S far>T")
    wants(
        g,
        by_type=[event_type("quote")],
        by_subject=[subject("news.*")],
        by_channel=[channel("trades")],
        by_content="price > 5",
        far=True,
    )
    everything = Notification(
        {"price": 9}, type="quote.stock", subject="news.sport", channel="trades"
    )
    everyone = ["by_channel", "by_content", "by_subject", "by_type"]
    assert receivers(g, "p", everything) == everyone
    for name in everyone:
        g.leave(name, "S")
    assert receivers(g, "p", everything) == []
    for name in everyone:
        g.join(name, "S")
    assert receivers(g, "p", everything) == everyone


@pytest.mark.spec("04/E9", "05/E6", "R-04.37")
def test_a_selective_interface_may_let_things_overtake_each_other():
    g = graph_of("C>S C>T e>T S>Z T>Z")
    g.set_edge("C", "T", selective=Interface.of(output=kinds("A")))
    found = g.outcome(event("B"), "C", duplicates="per_path").deliveries
    assert [d.path for d in found if d.consumer == "e"] == [("C", "S", "Z", "T", "e")]
    found = g.outcome(event("A"), "C", duplicates="per_path").deliveries
    lengths = sorted(len(d.path) for d in found if d.consumer == "e")
    assert lengths == [3, 5]  # what is published later may be there first


@pytest.mark.spec("04/E18")
def test_other_systems_as_scopes():
    zone = graph_of("outer>W inner>Z Z>W")
    zone.set_interface("Z", Interface.of(input=True, output=False))
    assert receivers(zone, "outer", event("n")) == ["inner"]
    assert receivers(zone, "inner", event("n")) == []
    channels = graph_of("a>A b>B A>B")
    channels.set_interface("A", Interface.of(input=False, output=True))
    assert receivers(channels, "a", event("n")) == ["b"]
    assert receivers(channels, "b", event("n")) == []
    flat = graph_of("a>R b>R c>R")
    assert receivers(flat, "a", event("n")) == ["b", "c"]


@pytest.mark.spec("R-04.20", "R-05.61")
def test_what_stopped_a_notification_is_told():
    g = graph_of("a>S S>T b>T c>T")
    wants(g, c="kind = 'y'")
    g.set_interface("S", Interface.of(output=kinds("x")))
    told = [str(each) for each in g.outcome(event("z"), "a", explain=True).refusals]
    assert told == ["S → T: stopped by the output interface of S"]
    told = [str(each) for each in g.outcome(event("x"), "a", explain=True).refusals]
    assert told == ["T → c: stopped by no subscription of c"]


FILTERS = st.sampled_from([None, [], ["x > 2"], ["x < 5", "k = 'a'"], ["k = 'b'"], [""]])


@pytest.mark.spec("04/P5")
@settings(max_examples=50)
@given(st.permutations(range(4)), st.lists(FILTERS, min_size=4, max_size=4), st.integers(0, 8))
def test_filters_commute_where_nothing_is_mapped(order, filters, x):
    def passes(placed):
        g = graph_of("a>S b>S")
        base, selective, imposed, everyone = (Interface.of(output=each) for each in placed)
        g.set_interface("a", base)
        g.set_edge("a", "S", selective=selective, imposed=imposed)
        g.set_everyone("S", everyone)
        return receivers(g, "a", Notification({"x": x, "k": "a"}))

    assert passes(filters) == passes([filters[i] for i in order])


def test_interfaces_are_values():
    assert Interface.of(True, False) == Interface((Filter(),), ())
    assert Interface.of() != CLOSED != OPEN
