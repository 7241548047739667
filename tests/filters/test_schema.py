"""Mandatory attributes: what may be dropped, that it is safe, and what it gains."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor import Filter, Notification
from stentor.errors import InvalidNotification, UnknownEventType
from stentor.filters.expression import And, Atom, Expression, Not, Or
from stentor.filters.schema import Schema, assuming
from stentor.model import EventTypes

VALUES: list[Any] = [None, -1, 0, 1, 2, 3, "a"]
UNIVERSE: list[dict[str, Any]] = [{"x": x, "y": y} for x, y in itertools.product(VALUES, VALUES)]
LEGAL = [n for n in UNIVERSE if n["x"] is not None]
TYPED = [n for n in LEGAL if n["x"] != "a"]

atoms = (
    st.builds(Atom, st.sampled_from("xy"), st.sampled_from(["exists", "missing"]))
    | st.builds(
        Atom,
        st.sampled_from("xy"),
        st.sampled_from(["=", "!=", "<", ">="]),
        st.sampled_from([(0,), (1,), (2,)]),
    )
    | st.builds(
        Atom, st.sampled_from("xy"), st.just("is"), st.sampled_from([("number",), ("int",)])
    )
)


def combined(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.builds(And, several) | st.builds(Or, several) | st.builds(Not, parts)


filters = st.recursive(atoms, combined, max_leaves=5).map(Filter.of_expression)


@pytest.mark.spec("R-02.27", "R-02.29")
@given(filters)
def test_a_simplified_filter_matches_the_same_legal_notifications(f: Filter) -> None:
    simple, typed = assuming(f, ["x"]), assuming(f, {"x": "number"})
    for n in LEGAL:
        assert simple.matches(n) is f.matches(n)
    for n in TYPED:
        assert typed.matches(n) is f.matches(n)
    assert assuming(simple, ["x"]) == simple
    assert assuming(f, []) == f


@pytest.mark.spec("R-02.27", "R-02.25")
@given(filters, filters)
def test_comparing_under_the_schema_is_sound_and_finds_no_less(f: Filter, g: Filter) -> None:
    one, other = assuming(f, ["x"]), assuming(g, ["x"])
    if one.covers(other):
        assert all(f.matches(n) for n in LEGAL if g.matches(n))
    if f.covers(g):
        assert one.covers(other)
    if not one.overlaps(other):
        assert not any(f.matches(n) and g.matches(n) for n in LEGAL)


@pytest.mark.spec("R-02.27")
def test_presence_of_a_mandatory_attribute_is_no_condition() -> None:
    assert assuming(Filter("exists x"), ["x"]) == Filter("")
    assert assuming(Filter("exists x and y = 1"), ["x"]) == Filter("y = 1")
    assert assuming(Filter("exists x and y = 1"), ["y"]) == Filter("exists x and y = 1")
    assert assuming(Filter("x > 1"), ["x"]) == Filter("x > 1")
    assert assuming(Filter("x is missing"), ["x"]).is_never
    assert assuming(Filter("x is missing or x > 1"), ["x"]) == Filter("x > 1")
    assert assuming(Filter("exists x or y = 1"), "x") == Filter("")


@pytest.mark.spec("R-02.29")
def test_a_whole_type_is_no_condition_where_the_type_is_known() -> None:
    types = EventTypes()
    types.declare("quote", attributes={"price": "number"})
    f = Filter("price < 5 or price >= 5")
    assert assuming(f, ["price"]) == f
    assert assuming(f, types.attributes("quote")) == Filter("")
    assert assuming(Filter("price = 'high'"), {"price": "number"}).is_never
    assert assuming(Filter("price is int"), {"price": "number"}) == Filter("price is int")


@pytest.mark.spec("R-02.27")
def test_coverings_that_need_the_schema() -> None:
    narrow, broad = Filter("x > 1"), Filter("x > 0 and exists y")
    assert not broad.covers(narrow)
    assert assuming(broad, ["y"]).covers(assuming(narrow, ["y"]))


# -- by event type ---------------------------------------------------------------------------


def types() -> EventTypes:
    known = EventTypes()
    known.declare("quote", attributes={"symbol": "string", "price": "number"})
    return known


@pytest.mark.spec("R-02.27", "R-02.22")
def test_subtypes_inherit_what_is_mandatory() -> None:
    schema = Schema({"quote": ["symbol"], "quote.stock": ["exchange"]}, EventTypes())
    assert schema.mandatory("quote") == {"symbol"}
    assert schema.mandatory("quote.stock.us") == {"symbol", "exchange"}
    assert schema.mandatory("trade") == frozenset()
    f = Filter("isa quote.stock and exists symbol and exists exchange")
    assert schema.simplified(f) == Filter("isa quote.stock")
    g = Filter("isa quote and exists symbol and exists exchange")
    assert schema.simplified(g) == Filter("isa quote and exists exchange")


@pytest.mark.spec("R-02.27")
def test_nothing_is_assumed_about_other_types() -> None:
    schema = Schema({"quote": ["symbol"]})
    for text in ("exists symbol", "isa trade and exists symbol", "not isa quote and exists symbol"):
        assert schema.simplified(Filter(text)) == Filter(text)
    mixed = Filter("isa quote and exists symbol and x = 1 or isa trade and exists symbol and x = 2")
    simple = Filter("isa quote and x = 1 or isa trade and exists symbol and x = 2")
    assert schema.simplified(mixed) == simple


@pytest.mark.spec("R-02.27")
def test_what_several_types_have_in_common_is_certain_for_their_union() -> None:
    schema = Schema({"quote": ["symbol", "price"], "trade": ["symbol"]})
    either = Filter("isa quote and exists symbol or isa trade and exists symbol")
    assert schema.simplified(either) == Filter("isa quote or isa trade")
    assert schema.covers(Filter("exists symbol"), Filter("isa quote or isa trade"))
    assert not schema.covers(Filter("exists price"), Filter("isa quote or isa trade"))
    assert not schema.covers(Filter("exists symbol"), Filter("isa quote or isa order"))
    # Where the types disagree about the values, only presence is certain.
    known = EventTypes()
    known.declare("quote", attributes={"id": "number"})
    known.declare("order", attributes={"id": "string"})
    schema = Schema({"quote": ["id"], "order": ["id"]}, known)
    both = Filter("isa quote or isa order")
    assert schema.covers(Filter("exists id"), both)
    assert not schema.covers(Filter("id is number"), both)
    assert schema.overlaps(Filter("id = 'x'"), both)


@pytest.mark.spec("R-02.27")
def test_covering_and_overlap_by_event_type() -> None:
    schema = Schema({"quote": ["symbol", "price"]}, types())
    quotes = Filter("isa quote")
    assert not Filter("exists symbol").covers(quotes)
    assert schema.covers(Filter("exists symbol"), quotes)
    assert schema.covers(Filter("exists symbol and price is number"), quotes)
    assert not schema.covers(Filter("exists exchange"), quotes)
    assert not schema.covers(Filter("exists symbol"), Filter("isa trade"))
    assert schema.covers(quotes, Filter("isa quote and symbol = 'IBM'"))
    assert not schema.overlaps(quotes, Filter("symbol is missing"))
    assert not schema.overlaps(quotes, Filter("symbol = 3"))
    assert schema.overlaps(quotes, Filter("symbol = 'IBM'"))
    assert schema.overlaps(Filter("isa trade"), Filter("symbol is missing"))


@pytest.mark.spec("R-02.27")
def test_publishers_are_held_to_the_schema() -> None:
    schema = Schema({"quote": ["symbol"]})
    schema.check(Notification({"symbol": "IBM"}, type="quote.stock"))
    schema.check(Notification({"x": 1}))
    with pytest.raises(InvalidNotification, match="always has 'symbol'"):
        schema.check(Notification({"x": 1}, type="quote.stock"))
    with pytest.raises(InvalidNotification, match="declared as string"):
        Schema({"quote": ["symbol"]}, types()).check(Notification({"symbol": 3}, type="quote"))


def test_a_schema_agrees_with_the_declarations() -> None:
    with pytest.raises(UnknownEventType, match="'volume' is not a declared attribute"):
        Schema({"quote": ["volume"]}, types())
    with pytest.raises(UnknownEventType, match="empty segment"):
        Schema({"a..b": ["x"]})
    with pytest.raises(InvalidNotification, match="empty segment"):
        assuming(Filter(""), ["a..b"])
