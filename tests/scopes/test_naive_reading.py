"""The router against a literal reading of the definitions, on generated graphs."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive import deliveries, related
from random_graphs import random_graph, random_notification

from stentor.scopes import EdgeMapping, FunctionMapping, ScopeGraph


def blocking(n):
    """ε for half of what there is, and a new version of the rest."""
    return None if n.get("x", 0) % 2 else n.replace(attributes={**n, "seen": True})


def generated(r) -> ScopeGraph:
    g = random_graph(r, mappings=r.random() < 0.7)
    for node in list(g.nodes.values()):
        for edge in list(node.parents.values()):
            if r.random() < 0.08:
                mapping = EdgeMapping(FunctionMapping(blocking), edge.mapping.down)
                g.set_edge(edge.child.id, edge.parent.id, mapping=mapping)
    if r.random() < 0.3:
        g.create_scope("group", abstract=True)
        for id in list(g.nodes)[:5]:
            if id != "group":
                g.join(id, "group")
    return g


class Told:
    """Subscriptions as an index would tell them: who wants it, without looking at scopes."""

    def __init__(self, g: ScopeGraph) -> None:
        self._wants = {id: n.interface.input for id, n in g.nodes.items() if not n.is_scope}

    def matching(self, notification):
        return [id for id in self._wants if self.subscribed(id, notification)]

    def subscribed(self, component, notification):
        half = self._wants[component]
        return half is None or any(each.matches(notification) for each in half)


def compare(r) -> None:
    g = generated(r)
    publishers = [id for id, node in g.nodes.items() if not node.is_scope]
    x, n = r.choice(publishers), random_notification(r)
    expected = deliveries(g, x, n)
    for interests in (None, Told(g)):
        by_path = g.outcome(n, x, duplicates="per_path", interests=interests)
        assert sorted((d.consumer, d.path) for d in by_path.deliveries) == sorted(
            (consumer, path) for consumer, _, path in expected
        )
        versions = {(consumer, arrived) for consumer, arrived, _ in expected}
        assert {(d.consumer, d.notification) for d in by_path.deliveries} == versions
        once_each = g.outcome(n, x, duplicates="version", interests=interests).deliveries
        assert len(once_each) == len(versions)
        assert {(d.consumer, d.notification) for d in once_each} == versions
        first = g.outcome(n, x, duplicates="origin", interests=interests).deliveries
        assert sorted(d.consumer for d in first) == sorted({consumer for consumer, _ in versions})
        assert {(d.consumer, d.notification) for d in first} <= versions
    reached = {(each.notification, each.scope) for each in by_path.reached}
    scopes = {(v, y) for v, y in related(g, x, n) if y in g.nodes and g.node(y).is_scope}
    assert reached == scopes
    assert all(g.visible(x, consumer) for consumer, _, _ in expected)


GENERATED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
RANDOM = st.randoms(use_true_random=False)
ENTRIES = (
    *("R-04.12", "R-04.18", "R-04.20", "R-04.21", "R-04.34", "R-04.43", "R-04.44", "R-04.47"),
    *("R-04.48", "R-05.01", "R-05.04", "05/P1", "05/P2", "05/P3", "05/P4", "04/P2", "04/P3"),
)


@pytest.mark.spec(*ENTRIES)
@settings(max_examples=60, **GENERATED)
@given(RANDOM)
def test_deliveries_are_those_of_a_literal_reading(r):
    compare(r)


@pytest.mark.slow
@pytest.mark.spec(*ENTRIES)
@settings(max_examples=10_000, **GENERATED)
@given(RANDOM)
def test_deliveries_of_ten_thousand_graphs_are_those_of_a_literal_reading(r):
    compare(r)


@pytest.mark.spec("04/P4", "04/T9", "R-04.30")
@settings(max_examples=30, **GENERATED)
@given(RANDOM)
def test_echoes_add_nobody_where_nothing_is_mapped(r):
    g = random_graph(r)
    x, n = r.choice([id for id in g.nodes if id[0] == "c"]), random_notification(r)
    plain = {d.consumer for d in g.outcome(n, x).deliveries}
    assert {d.consumer for d in g.outcome(n, x, echo=True, explain=True).deliveries} - {x} <= plain


@pytest.mark.spec("04/P4")
@settings(max_examples=30, **GENERATED)
@given(RANDOM)
def test_a_narrower_interface_never_adds_a_receiver(r):
    from stentor.scopes import Interface

    g = random_graph(r)
    x, n = r.choice([id for id in g.nodes if id[0] == "c"]), random_notification(r)
    before = {d.consumer for d in g.outcome(n, x).deliveries}
    id = r.choice(list(g.nodes))
    g.set_interface(id, Interface((), g.node(id).interface.output))
    assert {d.consumer for d in g.outcome(n, x).deliveries} <= before
