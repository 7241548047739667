"""Where a publisher is heard, found once for all that it says, is what the model says of each.

`EntryGraph` decides with reaches: filters of all interfaces on the way, asked for a whole batch in
an index, and one answer for each set of those that match. The model looks at one notification and
one edge after the other. Both are held equal here while memberships, edges and interfaces change.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidScopeGraph, StentorError
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, encode
from stentor.model.codec import decode_header
from stentor.model.stamp import Stamp
from stentor.scopes import Interface, MembershipRule, ScopeGraph, entry
from stentor.scopes.definition import (
    Change,
    GraphData,
    RuleData,
    ScopeData,
    difference,
    graph_of,
    records_of,
)
from stentor.scopes.entry import Component, EntryGraph
from stentor.scopes.graph import BY_HAND
from stentor.scopes.places import View, joined

HELD = pytest.mark.spec("R-05.02", "R-04.18", "04/P4", "04/P8")
#: The first whole number that a double cannot tell from the one before it.
LARGE = 2**53 + 1
FILTERS = (
    "kind = 'a'",
    "kind = 'b'",
    "kind in ('b', 'c')",
    "kind != 'a'",
    "not exists x",
    "x > 4",
    "x < 7",
    "x in (2, 3, 5)",
    f"x = {LARGE}",
    f"x >= {LARGE}",
    f"x < {LARGE}",
    f"x = {LARGE - 1}",
    f"x = {LARGE}.5 or x = {-LARGE}",
    "x < y",
    "kind = 'a' and x > 2",
    "name prefix 'ab' or name contains 'z'",
    "isa Quote",
    "isa Quote.Stock",
    "_producer = 'p0'",
    "false",
)
VALUES = (0, 2, 3, 5, 8, 4.0, LARGE, LARGE - 1, LARGE + 1, float(LARGE), -LARGE, True, "5", None)


def interface(r: Random, given: float) -> Interface:
    def half() -> Any:
        if r.random() >= given:
            return None
        return r.random() < 0.5 if r.random() < 0.25 else r.sample(FILTERS, r.randint(1, 4))

    return Interface.of(half(), half())


def terms(r: Random) -> dict[str, Interface]:
    return {"selective": interface(r, 0.2), "imposed": interface(r, 0.2)}


def notification(r: Random, producer: str, number: int) -> Notification:
    content = {
        name: value
        for name, value in {
            "kind": r.choice("abc"),
            "name": r.choice(("abc", "xz", "")),
            "x": r.choice(VALUES),
            "y": r.choice(VALUES),
        }.items()
        if r.random() < 0.8 and value is not None
    }
    type = r.choice((None, "Quote", "Quote.Stock", "Other"))
    return Notification({"n": number, **content}, type=type, id=NotificationId(producer, 1, number))


def first_graph(r: Random) -> ScopeGraph:
    g = ScopeGraph(open_by_default=r.random() < 0.3)
    for i in range(r.randint(2, 7)):
        g.create_scope(f"s{i}", interface=interface(r, 0.8), everyone=interface(r, 0.2))
        for j in range(i):
            if r.random() < 0.4:
                g.join(f"s{i}", f"s{j}", **terms(r))
        if r.random() < 0.7:
            rule(r, g, f"s{i}")
    for i in range(2):  # clients of these names are what the graph says
        if r.random() < 0.6:
            g.add_component(f"p{i}", interface=interface(r, 0.3))
            g.join(f"p{i}", r.choice(scopes(g)), **terms(r))
    return g


def scopes(g: ScopeGraph) -> list[str]:
    return [id for id, node in g.nodes.items() if node.is_scope]


def rule(r: Random, g: ScopeGraph, scope: str) -> None:
    among = (r.choice(scopes(g)),) if r.random() < 0.2 else ()
    where = Filter(r.choice(("tenant = 'red'", "tenant = 'blue'", "rank > 0", "exists tenant")))
    g.add_rule(MembershipRule(scope, where, "r", among=among, **terms(r)))


def altered(r: Random, g: ScopeGraph) -> ScopeGraph:
    """The same graph with one thing changed."""
    g = graph_of(records_of(g))
    if not scopes(g):
        return first_graph(r)
    scope, other = r.choice(scopes(g)), r.choice(scopes(g))
    match r.choice(
        ["interface", "everyone", "rule", "norule", "edge", "edge", "named", "destroy", "anew"]
    ):
        case "interface":
            g.set_interface(scope, interface(r, 0.8))
        case "everyone":
            g.set_everyone(scope, interface(r, 0.3))
        case "rule":
            rule(r, g, scope)
        case "norule":
            for each in g.rules.of_scope(scope):
                g.remove_rule(scope, each.label)
        case "edge":
            if other in g.parents(scope):
                g.leave(scope, other, label=BY_HAND)
            elif other < scope:
                g.join(scope, other, **terms(r))
        case "named":
            if "p0" in g and r.random() < 0.5:
                g.remove_component("p0")
            elif "p0" in g:
                g.join("p0", scope, **terms(r))
            else:
                g.add_component("p0", interface=interface(r, 0.3))
        case "destroy":
            if not any(scope in each.among for each in g.rules):
                g.destroy_scope(scope, force=True)
        case "anew" if r.random() < 0.3:
            return first_graph(r)
    return g


class Compared:
    """A broker's graph and its clients, beside the model with the same clients as components."""

    def __init__(self, r: Random) -> None:
        self.r = r
        self.clients = [
            Component(
                f"p{i}", f"p{i}", {"tenant": r.choice(("red", "blue")), "rank": r.randrange(3)}
            )
            if r.random() < 0.8
            else Component(f"p{i}", f"p{i}", {})
            for i in range(6)
        ]
        self.entry = EntryGraph()
        self.epoch = 0
        self.asked = 0

    def change(self, graph: ScopeGraph) -> None:
        self.epoch += 1
        self.entry.change(self.epoch, difference(self.entry.records, records_of(graph)))

    def check(self) -> None:
        """Batches of some publishers: who sees each, by the stamps, and by the model."""
        model = graph_of(self.entry.records)
        for client in self.clients:
            if client.name not in model:
                model.add_component(client.name, attributes=client.attributes)
        nowhere = {c.name for c in self.clients if not model.parents(c.name)}
        for publisher in self.r.sample(self.clients, 3):
            batch = [notification(self.r, publisher.producer, i) for i in range(1, 12)]
            marks = self.entry.marks(publisher, [decode_header(encode(n)) for n in batch])
            assert marks is not None
            for n, mark in zip(batch, marks, strict=True):
                # A publisher hears itself, whatever it is said to want.
                expected = receivers(model, n, publisher.name) | {publisher.name}
                if publisher.name in nowhere:
                    expected |= nowhere
                assert self.seen_by(mark.stamp) == expected
                ((stamp, version),), _ = self.entry.versions(publisher, n)
                assert (stamp, version) == (mark.stamp, None)
                self.asked += 1

    def seen_by(self, stamp: Any) -> set[str]:
        return {c.name for c in self.clients if self.entry.view(c).sees(stamp)}


def receivers(model: ScopeGraph, n: Notification, publisher: str) -> set[str]:
    """Whom the model delivers to; components that the graph does not name want everything."""
    return {each.consumer for each in model.outcome(n, publisher).deliveries}


@HELD
@pytest.mark.parametrize("few", [0, 3, 10_000])
@pytest.mark.parametrize("seed", range(6))
def test_reaches_say_what_the_model_says(seed, few, monkeypatch):
    monkeypatch.setattr(entry, "FEW_FILTERS", few)  # by the index always, as it is, and never
    r = Random(seed)
    for _ in range(4):
        compared, graph = Compared(r), first_graph(r)
        for _ in range(8):
            compared.change(graph)
            compared.check()
            graph = altered(r, graph)
        assert compared.asked > 200


@HELD
def test_a_large_batch_is_searched_in_the_index():
    r = Random(7)
    g = ScopeGraph()
    g.create_scope("world")
    g.add_rule(MembershipRule("world", Filter("reads = true"), "r"))
    texts = [f"x = {LARGE + i} and kind = 'a'" for i in range(400)]
    g.create_scope("desk", interface=Interface.of(False, texts))
    g.join("desk", "world")
    g.add_rule(MembershipRule("desk", Filter("reads = false"), "r"))
    entry_graph = EntryGraph()
    entry_graph.change(1, Change(list(records_of(g).values())))
    ann, bob = Component("ann", "ann", {"reads": False}), Component("bob", "bob", {"reads": True})
    batch = [
        Notification({"x": LARGE + r.randrange(-50, 450), "kind": r.choice("ab")}, id=None)
        for _ in range(300)
    ]
    marks = entry_graph.marks(ann, [decode_header(encode(n)) for n in batch])
    assert marks is not None
    seen = [entry_graph.view(bob).sees(mark.stamp) for mark in marks]
    wanted = [n["kind"] == "a" and LARGE <= n["x"] < LARGE + 400 for n in batch]
    assert seen == wanted
    assert 0 < sum(wanted) < 300


# -- one thing at a time


def entry_of(text: str) -> EntryGraph:
    found = EntryGraph()
    found.change(1, Change(list(records_of(ScopeGraph.loads(text)).values())))
    return found


def heard(
    graph: EntryGraph, publisher: Component, *others: Component, **content: Any
) -> list[bool]:
    """Which of the others see something that is published now."""
    envelope = decode_header(encode(Notification(content or {"x": 1})))
    marks = graph.marks(publisher, [envelope])
    assert marks is not None
    return [graph.view(each).sees(marks[0].stamp) for each in others]


def tenant(name: str, of: str) -> Component:
    return Component(name, name, {"tenant": of})


def many_filters() -> EntryGraph:
    """acme speaks to world through five filters, beta to nobody."""
    g = ScopeGraph()
    for name in ("world", "acme", "beta"):
        g.create_scope(name)
        g.add_rule(MembershipRule(name, Filter(f"tenant = '{name}'"), "r"))
    g.set_interface("acme", Interface.of(False, [f"x = {i}" for i in range(1, 6)]))
    g.join("acme", "world")
    graph = EntryGraph()
    graph.change(1, Change(list(records_of(g).values())))
    return graph


def test_who_is_heard_for_long_is_heard_after_many_others(monkeypatch):
    graph = many_filters()
    ann, bob, eve = tenant("ann", "acme"), tenant("bob", "world"), tenant("eve", "beta")
    assert heard(graph, ann, bob) == [True]
    monkeypatch.setattr(entry, "MAX_REACHES", 1)
    assert heard(graph, eve, bob) == [False]  # for its reach others are given up
    assert heard(graph, ann, bob, eve, x=2) == [True, False]
    assert heard(graph, ann, bob, eve, x=6) == [False, False]


@pytest.mark.parametrize("name", ["@ann", "4:acme r", "=bob", "!bob"])
def test_names_that_look_like_places_are_names(name):
    g = ScopeGraph()
    g.create_scope("acme")
    g.add_rule(MembershipRule("acme", Filter("tenant = 'acme'"), "r"))
    g.add_component(name)
    g.join(name, "acme")
    graph = EntryGraph()
    graph.change(1, Change(list(records_of(g).values())))
    ann, bob, other = tenant("ann", "acme"), tenant("bob", "acme"), tenant("o", "beta")
    own = Component("p", name, {})
    assert heard(graph, ann, bob, own, other) == [True, True, False]
    assert heard(graph, own, ann, bob, other) == [True, True, False]
    g.leave(name, "acme")
    graph.change(2, difference(graph.records, records_of(g)))
    assert heard(graph, ann, bob, own, other) == [True, False, False]


def test_a_name_cannot_hold_what_brokers_mark_places_with():
    with pytest.raises(InvalidScopeGraph, match="NUL"):
        ScopeGraph().add_component("\0bob")


def test_what_a_scope_has_become_in_one_change_counts():
    graph = EntryGraph()
    world = [ScopeData("world"), RuleData("world", "r", "tenant = 'world'")]
    rule = RuleData("acme", "r", "tenant = 'acme'")
    graph.change(1, Change([*world, ScopeData("acme", abstract=True), rule]))
    ann, bob = tenant("ann", "acme"), tenant("bob", "acme")
    assert heard(graph, ann, bob) == [False]
    graph.change(2, Change([ScopeData("acme"), rule], ["scope acme", rule.key]))
    assert heard(graph, ann, bob) == [True]
    graph.change(3, Change([ScopeData("acme", abstract=True), rule], ["scope acme", rule.key]))
    assert heard(graph, ann, bob) == [False]


def test_a_change_that_is_refused_leaves_everything_as_it_was():
    graph = many_filters()
    ann, bob, eve = tenant("ann", "acme"), tenant("bob", "world"), tenant("eve", "beta")
    assert heard(graph, ann, bob, eve) == [True, False]
    before, records = heard(graph, ann, bob, eve, x=6), list(graph.records)
    wrong = Change([RuleData("acme", "all", ""), RuleData("nowhere", "r", "")])
    with pytest.raises(StentorError):
        graph.change(2, wrong)
    assert heard(graph, ann, bob, eve) == [True, False]
    assert heard(graph, ann, bob, eve, x=6) == before == [False, False]
    assert list(graph.records) == records


def test_one_name_at_two_brokers_is_one_component_only_if_the_graph_names_it():
    text = "DEFINE SCOPE acme AS ALL FROM ann, bob; DEPLOY acme; {}"
    here, there = entry_of(text.format("")), entry_of(text.format(""))
    one, two = Component("ann@desk", "ann", {}), Component("ann@home", "ann", {})
    bob, eve = Component("bob", "bob", {}), Component("eve@desk", "eve", {})
    assert heard(here, one, bob, eve) == heard(there, two, bob, eve) == [True, False]
    # The other of that name is the component itself, to which nothing comes back as to a member.
    assert heard(here, one, two) == [False]
    assert heard(here, bob, one, two) == [True, True]
    # By rule, everybody is a component of its own, whatever it is called.
    rules = many_filters()
    one = Component("ann@desk", "ann", {"tenant": "acme"})
    two = Component("ann@home", "ann", {"tenant": "acme"})
    three = Component("ann@away", "ann", {"tenant": "beta"})
    assert heard(rules, one, two, three) == [True, False]
    # A claim to the name, which nobody vouches for, is another name.
    assert heard(here, bob, Component("ann@desk", "ann@desk", {})) == [False]


def test_a_default_scope_is_refused():
    graph = EntryGraph()
    with pytest.raises(InvalidScopeGraph, match="default scope"):
        graph.change(1, Change([GraphData(default_scope="all"), ScopeData("all")]))


def test_what_a_change_does_not_concern_is_asked_for_as_before():
    graph = many_filters()
    ann, eve = tenant("ann", "acme"), tenant("eve", "beta")
    asked, others = graph.view(ann).constraint, graph.view(eve).constraint
    # Another rule takes in who was there already, and one more: a span follows upon the other.
    where = "tenant in ('acme', 'new')"
    graph.change(2, Change([RuleData("acme", "r", where)]))
    assert graph.view(eve).constraint is others
    assert graph.view(ann).constraint == asked
    assert graph.view(tenant("new", "new")).constraint != asked
    graph.change(3, Change([RuleData("acme", "r", "tenant = 'new'")]))
    assert graph.view(ann).constraint != asked
    assert graph.view(eve).constraint is others


@given(data=st.data())
def test_what_is_visible_is_asked_for_in_few_words(data: st.DataObject) -> None:
    epochs = st.integers(0, 6)
    places: dict[str, tuple[tuple[int, int], ...]] = {}
    for n in range(data.draw(st.integers(0, 40))):
        spans = data.draw(st.lists(st.tuples(epochs, epochs), min_size=1, max_size=2))
        last = [(since, -1) for since, _ in spans[-1:]] if data.draw(st.booleans()) else spans[-1:]
        spans = [(since, until) for since, until in spans[:-1] + last if since < until or until < 0]
        places[f"1:s r{n}"] = joined(spans)
    view = View("ann@g", {key: spans for key, spans in places.items() if spans}, False)
    assert len(view.constraint.conjuncts) <= 2
    for _ in range(10):
        keys = data.draw(st.lists(st.sampled_from([*places, "@ann@g", "@eve@g"]), max_size=3))
        publisher = data.draw(st.sampled_from(("ann@g", "eve@g")))
        stamp = Stamp(data.draw(epochs), publisher, tuple(sorted(set(keys))))
        if view.sees(stamp):
            assert view.constraint.matches(stamp.facts)
