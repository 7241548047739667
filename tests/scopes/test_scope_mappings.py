"""Mappings: sheet 04 §3.4, what becomes of a notification on an edge."""

import codecs
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shorthand import event, got, graph_of, receivers, wants

from stentor.errors import InvalidScopeGraph
from stentor.filters import Filter
from stentor.filters.expression import Arithmetic, Attribute, Constant
from stentor.model import Notification
from stentor.scopes import (
    ContentMapping,
    EdgeMapping,
    FunctionMapping,
    Interface,
    mapping_of,
    register_mapping,
)
from stentor.scopes.mappings import translated, undo


def tagged(name):
    return EdgeMapping(up=mapping_of({"tag": name}))


@pytest.mark.spec("04/E3", "R-04.21", "R-04.48", "04/A5", "04/T18", "05/E5", "R-05.04")
@pytest.mark.parametrize(
    "edges", ["C1>T C1>U T>S U>S C2>S", "C1>S T>S U>S C2>T C2>U", "C1>T C1>U C2>T C2>U"]
)
def test_two_paths_and_how_often_it_arrives(edges):
    g = graph_of(edges)
    n = event("n")
    counts = {
        mode: len([d for d in g.outcome(n, "C1", duplicates=mode).deliveries if d.consumer == "C2"])
        for mode in ("version", "origin", "per_path")
    }
    assert counts == {"version": 1, "origin": 1, "per_path": 2}


@pytest.mark.spec("04/E3", "R-04.48", "04/T8", "04/T18")
def test_two_versions_are_two_deliveries():
    g = graph_of("C1>T C1>U T>S U>S C2>S")
    for scope in ("T", "U"):
        g.set_edge(scope, "S", mapping=tagged(scope.lower()))
    tags = lambda **how: sorted(  # noqa: E731
        d.notification["tag"]
        for d in g.outcome(event("n"), "C1", **how).deliveries
        if d.consumer == "C2"
    )
    assert tags() == tags(duplicates="per_path") == ["t", "u"]
    assert len(tags(duplicates="origin")) == 1
    g.set_once("S", True)
    assert len(tags()) == 1


@pytest.mark.spec("04/E3", "04/A4")
def test_stacked_diamonds_cost_their_edges_not_their_paths():
    edges = ["p>L0"]
    for k in range(6):
        edges += [f"L{k}>A{k}", f"L{k}>B{k}", f"A{k}>L{k + 1}", f"B{k}>L{k + 1}"]
    g = graph_of(" ".join([*edges, "c>L6"]))
    found = [
        d for d in g.outcome(event("n"), "p", duplicates="per_path").deliveries if d.consumer == "c"
    ]
    assert len(found) == 2**6
    plain = g.outcome(event("n"), "p")
    # Climbing into each scope once, and coming down into each once.
    assert len(plain.reached) <= 2 * len(g.nodes)
    assert receivers(g, "p", event("n")) == ["c"]


@pytest.mark.spec("R-04.43", "04/T14", "04/T15", "05/8.22", "R-04.40", "R-04.45")
def test_each_side_of_an_edge_speaks_its_own_terms():
    up = mapping_of({"c": Arithmetic("-", Attribute("f"), Constant(30))}, drop=["f"])
    down = mapping_of({"f": Arithmetic("+", Attribute("c"), Constant(30))}, drop=["c"])
    g = graph_of("a>S b>S S>T d>T")
    g.set_interface("S", Interface.of(output="f > 70", input="f > 70"))
    g.set_edge("S", "T", selective=Interface.of(output="f < 90", input="f < 90"))
    g.set_edge("S", "T", imposed=Interface.of(output="c > 45", input="c > 45"))
    g.set_edge("S", "T", mapping=EdgeMapping(up, down))
    g.set_everyone("T", Interface.of(output="c < 55", input="c < 55"))
    assert [n for n in range(60, 100) if got(g, "a", Notification({"f": n}), "d")] == list(
        range(76, 85)
    )
    assert [n for n in range(20, 70) if got(g, "d", Notification({"c": n}), "a")] == list(
        range(46, 55)
    )
    wants(g, a="f = 80", b="c = 50")
    assert receivers(g, "d", Notification({"c": 50})) == ["a"]  # asked of what arrives
    assert got(g, "a", Notification({"f": 80}), "b") == []  # inside, nothing is mapped


@pytest.mark.spec("R-04.41", "R-04.44", "04/T16", "04/P6")
def test_epsilon_blocks_wherever_it_comes_from():
    def broken(n):
        raise RuntimeError("no")

    for function in (lambda n: None, broken):
        g = graph_of("a>S b>S S>T c>T")
        g.set_edge("b", "S", mapping=EdgeMapping(down=FunctionMapping(function)))
        g.set_edge("S", "T", mapping=EdgeMapping(up=FunctionMapping(function)))
        assert receivers(g, "a", event("n")) == []
        assert [str(e) for e in g.outcome(event("n"), "a", explain=True).refusals] == [
            "S → T: stopped by the mapping",
            "S → b: stopped by the mapping",
        ] or receivers(g, "a", event("n")) == []
    nothing_left = mapping_of(keep=[])
    assert nothing_left.apply(Notification({"x": 1})) is None


@pytest.mark.spec("04/E16", "04/T2", "04/T9", "R-04.18")
def test_mapped_edges_neither_leak_nor_echo():
    g = graph_of("K>S K>T A>S B>T L>K")
    for scope in ("S", "T"):
        both = mapping_of({"via": scope})
        g.set_edge("K", scope, mapping=EdgeMapping(both, both))
    assert got(g, "A", event("n"), "L") == [{"kind": "n", "via": "S"}]
    assert got(g, "A", event("n"), "B") == []
    assert got(g, "A", event("n"), "A") == [{"kind": "n"}]
    assert got(g, "L", event("n"), "A") == [{"kind": "n", "via": "S"}]
    assert got(g, "L", event("n"), "B") == [{"kind": "n", "via": "T"}]
    assert got(g, "L", event("n"), "L") == [{"kind": "n"}]


@pytest.mark.spec("04/E11", "R-04.40")
def test_a_chain_of_formats():
    """Objects at the customer's, XML in the market, EBCDIC at the trading floor."""
    from xml.etree.ElementTree import Element, fromstring, tostring

    def to_xml(n):
        element = Element("order", {k: str(v) for k, v in n.items()})
        return n.replace(attributes={"xml": tostring(element, "unicode")})

    def from_xml(n):
        return n.replace(attributes=dict(fromstring(n["xml"]).attrib))

    def to_host(n):
        fields = dict(fromstring(n["xml"]).attrib)
        return n.replace(attributes={"record": codecs.encode(json.dumps(fields), "cp037")})

    def from_host(n):
        fields = json.loads(codecs.decode(n["record"], "cp037"))
        return n.replace(attributes={"xml": tostring(Element("order", fields), "unicode")})

    g = graph_of("pc>C C>M ME>TF DB>TF TF>M reader>M")
    g.set_edge("C", "M", mapping=EdgeMapping(FunctionMapping(to_xml), FunctionMapping(from_xml)))
    down_up = EdgeMapping(FunctionMapping(from_host), FunctionMapping(to_host))
    g.set_edge("TF", "M", mapping=down_up)
    order = Notification({"share": "SAP", "quantity": "10"})
    ((record,),) = [[n["record"]] for n in got(g, "pc", order, "DB")]
    assert json.loads(record.decode("cp037")) == dict(order)
    assert got(g, "pc", order, "reader") == [{"xml": '<order share="SAP" quantity="10" />'}]
    accept = Notification({"record": codecs.encode('{"accepted": "SAP"}', "cp037")})
    assert got(g, "ME", accept, "pc") == [{"accepted": "SAP"}]
    assert got(g, "ME", accept, "DB") == [dict(accept)]


@pytest.mark.spec("R-04.50", "R-04.51", "R-04.69", "04/P16", "05/P15", "04/T17")
def test_a_mapping_sees_content_and_cannot_change_who_published():
    from stentor.model import NotificationId

    seen = []

    def curious(n):
        seen.append(dict(n))
        return n.replace(attributes={**n, "x": 2}, id=NotificationId("mallory", 1, 1))

    g = graph_of("a>S S>T b>T")
    g.set_edge("S", "T", mapping=EdgeMapping(up=FunctionMapping(curious)))
    n = Notification({"x": 1}, id=NotificationId("a", 1, 7))
    (arrived,) = [d.notification for d in g.deliveries(n, "a") if d.consumer == "b"]
    assert (dict(arrived), arrived.id) == ({"x": 2}, n.id)
    assert seen == [{"x": 1}]  # no scope, no path, no state


def test_functions_are_found_by_name():
    register_mapping("scope-test-a", lambda n: n, inverse="scope-test-b")
    assert undo(FunctionMapping("scope-test-a")) == FunctionMapping("scope-test-b")
    assert undo(FunctionMapping("scope-test-b")) == FunctionMapping("scope-test-a")
    with pytest.raises(InvalidScopeGraph, match="no mapping 'unheard-of'"):
        _ = FunctionMapping("unheard-of").call
    with pytest.raises(InvalidScopeGraph, match="cannot be loaded"):
        _ = FunctionMapping("json:no_such_function").call


NUMBERS = st.integers(-50, 50)
MAPPINGS = st.one_of(
    st.builds(
        lambda o, c: ContentMapping((("x", Arithmetic(o, Attribute("x"), Constant(c))),)),
        st.sampled_from("+-*"),
        NUMBERS,
    ),
    st.just(mapping_of(rename={"x": "y"})),
    st.just(mapping_of({"k": "new"})),
    st.just(mapping_of(drop=["x"])),
    st.just(mapping_of(keep=["k"])),
    st.just(FunctionMapping(lambda n: n.replace(attributes={**n, "x": 9}))),
)


@pytest.mark.spec("04/P18", "R-04.49")
@settings(max_examples=80)
@given(
    MAPPINGS,
    st.sampled_from(
        ["x > 3", "y > 3", "k = 'new'", "x > 3 and k = 'a'", "x < 2 or y = 1", "x = (y)"]
    ),
    NUMBERS,
)
def test_a_translated_filter_matches_whatever_matches_once_mapped(mapping, text, x):
    n = Notification({"x": x, "k": "a"})
    mapped = mapping.apply(n)
    if mapped is not None and Filter(text).matches(mapped):
        assert translated(Filter(text), mapping).matches(n)


@pytest.mark.spec("R-04.42", "04/P6", "R-05.33")
@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("+-"), NUMBERS), min_size=1, max_size=3), NUMBERS)
def test_an_inverse_takes_back_what_was_done(steps, x):
    expression = Attribute("x")
    for sign, constant in steps:
        expression = Arithmetic(sign, expression, Constant(constant))
    mapping = ContentMapping((("y", expression),), drop=("x",))
    back = mapping.inverse()
    assert dict(back.apply(mapping.apply(Notification({"x": x, "k": "a"})))) == {"x": x, "k": "a"}
    # In a graph, up and down are applied in opposite orders.
    g = graph_of("a>S S>T T>U b>U")
    other = mapping_of(rename={"y": "z"})
    g.set_edge("S", "T", mapping=EdgeMapping(mapping, back))
    g.set_edge("T", "U", mapping=EdgeMapping(other, other.inverse()))
    (there,) = got(g, "a", Notification({"x": x}), "b")
    assert set(there) == {"z"}
    assert got(g, "b", Notification(there), "a") == [{"x": x}]
