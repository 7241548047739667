"""Event types by path and by declaration (R-02.22, R-02.23, R-07.09, R-01.41)."""

import doctest
import importlib
import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import InvalidNotification, UnknownEventType
from stentor.model import EventTypes, Notification


@pytest.fixture
def types():
    return EventTypes()


def test_doctests():
    module = importlib.import_module("stentor.model.event_types")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.spec("R-02.23")
def test_paths_are_a_hierarchy_without_any_declaration(types):
    assert types.ancestors("quote.stock.ibm") == {"quote", "quote.stock", "quote.stock.ibm"}
    assert types.is_subtype("quote.stock", "quote")
    assert types.is_subtype("quote", "quote")
    assert not types.is_subtype("quote", "quote.stock")


@pytest.mark.spec("02/T6", "R-02.23")
def test_prefixes_end_at_segment_boundaries(types):
    assert not types.is_subtype("StockQuote", "Stock")
    assert not types.is_subtype("quote.stocks", "quote.stock")
    assert types.ancestors("StockQuote") == {"StockQuote"}


@pytest.mark.spec("R-02.22", "R-01.41")
def test_multiple_inheritance(types):
    types.declare("alert.urgent")
    types.declare("quote.halt", parents=["alert.urgent", "audit"])
    assert types.ancestors("quote.halt") == {
        "quote.halt",
        "quote",
        "alert.urgent",
        "alert",
        "audit",
    }
    assert types.is_subtype("quote.halt.volatility", "alert")


@pytest.mark.spec("R-02.22")
def test_a_parent_may_be_declared_after_its_children(types):
    types.declare("b", parents=["a"])
    assert types.ancestors("b.c") == {"a", "b", "b.c"}
    types.declare("a", parents=["root"])
    assert types.ancestors("b.c") == {"a", "b", "b.c", "root"}


def test_one_parent_may_be_given_as_a_string(types):
    types.declare("b", parents="alert")
    assert types.ancestors("b") == {"b", "alert"}


@pytest.mark.spec("R-02.22")
@pytest.mark.parametrize(
    "declarations",
    [
        [("a", ["a"])],
        [("a", ["a.b"])],
        [("a", ["b"]), ("b", ["a"])],
        [("a", ["b"]), ("b", ["c"]), ("c", ["a"])],
        [("a", ["b.c"]), ("b", ["a.x"])],
    ],
)
def test_cycles_are_refused(types, declarations):
    *good, bad = declarations
    for name, parents in good:
        types.declare(name, parents)
    before = {name: types.ancestors(name) for name in "abc"}
    with pytest.raises(UnknownEventType, match="cannot be a parent"):
        types.declare(*bad)
    assert {name: types.ancestors(name) for name in "abc"} == before
    assert types.declaration(bad[0]) is None


@pytest.mark.spec("R-02.22")
@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_subtyping_is_always_a_partial_order(rng: random.Random):
    types = EventTypes()
    names = ["a", "b", "c", "a.x", "b.x", "c.x", "a.x.y"]
    for name in rng.sample(names, 5):
        with suppress(UnknownEventType):  # a cycle
            types.declare(name, rng.sample(names, 2))
    for p in names:
        assert types.is_subtype(p, p)
        for q in names:
            if p != q and types.is_subtype(p, q):
                assert not types.is_subtype(q, p)
            for r in names:
                if types.is_subtype(p, q) and types.is_subtype(q, r):
                    assert types.is_subtype(p, r)


@pytest.mark.spec("R-02.22")
def test_attributes_include_those_of_all_supertypes(types):
    types.declare("base", attributes={"id": "number", "source": "string"})
    types.declare("tagged", attributes={"tags": "collection"})
    types.declare("base.location", parents=["tagged"], attributes={"place": "string"})
    assert types.attributes("base.location.indoor") == {
        "id": "number",
        "source": "string",
        "tags": "collection",
        "place": "string",
    }
    assert types.attributes("unheard.of") == {}


@pytest.mark.spec("07/E-19")
def test_an_attribute_declared_twice_with_different_types_is_refused(types):
    types.declare(
        "BaseEvent",
        attributes={"id": "string", "priority": "number", "source": "string", "timestamp": "time"},
    )
    with pytest.raises(UnknownEventType, match="'id' twice"):
        types.declare(
            "LocationEvent",
            parents=["BaseEvent"],
            attributes={"id": "number", "location": "string", "lastSighting": "number"},
        )
    assert types.declaration("LocationEvent") is None
    types.declare(
        "LocationEvent",
        parents=["BaseEvent"],
        attributes={"id": "string", "location": "string", "lastSighting": "number"},
    )
    assert types.is_subtype("LocationEvent", "BaseEvent")


@pytest.mark.spec("07/E-19")
def test_contradictions_between_parents_and_through_late_parents(types):
    types.declare("a", attributes={"x": "number"})
    types.declare("b", attributes={"x": "string"})
    with pytest.raises(UnknownEventType, match="'x' twice"):
        types.declare("c", parents=["a", "b"])
    types.declare("d.e", attributes={"y": "number"})
    with pytest.raises(UnknownEventType, match="'y' twice"):
        types.declare("d", attributes={"y": "string"})
    assert types.attributes("d.e") == {"y": "number"}


def test_declaring_again(types):
    first = types.declare("a", ["b"], {"x": "number"})
    assert types.declare("a", ("b",), {"x": "number"}) == first
    assert types.declaration("a") == first
    assert hash(types.declaration("a")) == hash(first)
    with pytest.raises(UnknownEventType, match="already declared"):
        types.declare("a", ["b"], {"x": "string"})
    with pytest.raises(TypeError):
        first.attributes["x"] = "string"


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "a\nb", "x" * 256, 5, None])
def test_impossible_names_are_refused(types, name):
    with pytest.raises(UnknownEventType, match="event type"):
        types.declare(name)
    with pytest.raises(UnknownEventType, match="event type"):
        types.declare("fine", parents=[name])
    with pytest.raises(UnknownEventType, match="event type"):
        types.ancestors(name)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"x": "integer"}, "not a value type"),
        ({"x": int}, "not a value type"),
        ({"": "number"}, "empty"),
        ({"_type": "string"}, "reserved"),
        ({"_mine": "string"}, "reserved"),
    ],
)
def test_impossible_attributes_are_refused(types, attributes, message):
    with pytest.raises(UnknownEventType, match=message):
        types.declare("a", attributes=attributes)
    assert types.declaration("a") is None


@pytest.mark.spec("R-07.09", "R-02.22")
def test_type_safety_of_notifications(types):
    types.declare("quote", attributes={"price": "number", "open": "bool"})
    types.declare("quote.stock", attributes={"symbol": "string"})
    types.check(Notification({"price": 1}, type="quote.stock.nyse"))
    types.check(Notification({"price": 1.5, "extra": b""}, type="quote"))
    types.check(Notification({"price": "none of our business"}))
    types.check(Notification({"price": "nor this"}, type="other"))
    with pytest.raises(InvalidNotification, match=r"'price' .* is a string"):
        types.check(Notification({"price": "1"}, type="quote.stock"))
    with pytest.raises(InvalidNotification, match=r"'open' .* is a number; declared as bool"):
        types.check(Notification({"open": 1}, type="quote"))
    with pytest.raises(InvalidNotification, match="'symbol'"):
        types.check(Notification({"symbol": ["a"]}, type="quote.stock.nyse"))


@pytest.mark.spec("R-07.09")
def test_strict_type_safety(types):
    types.declare("quote", attributes={"price": "number"})
    types.check(Notification({"price": 1}, type="quote"), strict=True)
    with pytest.raises(InvalidNotification, match="'extra' is not a declared attribute"):
        types.check(Notification({"price": 1, "extra": 2}, type="quote"), strict=True)
    with pytest.raises(UnknownEventType, match="never declared"):
        types.check(Notification({"price": 1}, type="quote.stock"), strict=True)
    with pytest.raises(UnknownEventType, match="no event type"):
        types.check(Notification({"price": 1}), strict=True)


@pytest.mark.spec("R-07.09")
def test_no_event_has_an_abstract_type(types):
    types.declare("quote", abstract=True)
    types.check(Notification({}, type="quote.stock"))
    with pytest.raises(InvalidNotification, match="abstract"):
        types.check(Notification({}, type="quote"))


def test_the_memory_of_ancestors_is_bounded(types):
    for i in range(10_000):
        types.ancestors(f"t{i}")
    assert len(types._ancestors) <= 4096
    assert types.ancestors("t1.x") == {"t1", "t1.x"}
