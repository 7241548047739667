"""Collapsed filters say of every notification who gets it, as the model does."""

from random import Random

import pytest
from random_graphs import random_graph, random_notification
from shorthand import graph_of

from stentor.errors import InvalidScopeGraph
from stentor.scopes import EdgeMapping, mapping_of
from stentor.scopes.collapsed import collapsed


@pytest.mark.spec("05/4.7", "R-05.56")
@pytest.mark.parametrize("seed", range(8))
def test_a_collapsed_filter_matches_what_the_model_delivers(seed):
    r = Random(seed)
    for _ in range(25):
        g = random_graph(r)
        events = [random_notification(r) for _ in range(6)]
        for publisher in [id for id, node in g.nodes.items() if not node.is_scope]:
            filters = collapsed(g, publisher)
            for n in events:
                told = {id for id, each in filters.items() if each.matches(n)}
                assert told == {d.consumer for d in g.deliveries(n, publisher)}


def test_stacked_diamonds_do_not_double_the_work():
    stages = 40
    edges = " ".join(f"s{i}>l{i} s{i}>r{i} l{i}>s{i + 1} r{i}>s{i + 1}" for i in range(stages))
    g = graph_of(f"p>s0 {edges} c>s{stages}")
    assert set(collapsed(g, "p")) == {"p", "c"}


def test_what_filters_cannot_say_is_refused():
    g = graph_of("p>s c>s")
    g.set_edge("c", "s", mapping=EdgeMapping(down=mapping_of({"x": 1})))
    with pytest.raises(InvalidScopeGraph, match="mappings or policies"):
        collapsed(g, "p")
