"""Why a filter does not match."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor import Notification
from stentor.filters import Filter
from stentor.filters.mismatch import alternatives, nearest

ATOMS = st.sampled_from(
    ["x > 1", "x = 'a'", "exists y", "y is missing", "x in (1, 2)", "y < x", "z prefix 'a'"]
)
EVENTS = st.dictionaries(
    st.sampled_from("xyz"), st.one_of(st.integers(-3, 3), st.sampled_from("ab")), max_size=3
)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    terms = [
        " and ".join(draw(st.lists(ATOMS, min_size=1, max_size=3)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    return Filter(" or ".join(terms))


@given(filters(), EVENTS)
def test_an_event_matches_if_all_of_some_alternative_holds(
    filter: Filter, event: dict[str, Any]
) -> None:
    found = alternatives(filter, event)
    assert len(found) == len(filter.conjuncts)
    assert any(all(part.holds for part in parts) for parts in found) == filter.matches(event)
    failing = [sum(not part.holds for part in parts) for parts in found]
    assert failing == sorted(failing)
    for part in (part for parts in found for part in parts):
        assert Filter(part.text).matches(event) == part.holds


def test_it_says_what_there_is_instead() -> None:
    ((price, symbol),) = alternatives(
        Filter("price > 100 and symbol = 'IBM'"), {"price": "99", "symbl": "IBM"}
    )
    assert price.found == "price is '99', a string and not a number"
    assert symbol.found == "there is no 'symbol'; did you mean 'symbl'?"


@pytest.mark.parametrize(
    ("filter", "lines", "said"),
    [
        (
            "any line in lines: line.sku = 'A' and line.quantity > 10",
            [{"sku": "B", "quantity": 1}, {"sku": "A", "quantity": 9}],
            "element 2 is nearest: quantity is 9",
        ),
        (
            "all line in lines: line.quantity > 5",
            [{"quantity": 9}, {}],
            "element 2 fails: there is",
        ),
        ("not (any line in lines: line.q > 3)", [{"q": 4}], "element 1 fails: q is 4"),
        ("any line in lines: line.a < line.b", [{"a": 4, "b": 3}], "nearest: a is 4, b is 3"),
        ("any line in lines: line.sku = 'A'", [], "lines is []"),
        ("any line in lines: line.sku = 'A'", None, "there is no 'lines'"),
        ("some lines > 5", [1, 2], "lines is [1, 2]"),
    ],
)
def test_it_says_which_element_of_a_list_is_nearest(filter: str, lines: Any, said: str) -> None:
    ((asked, *_),) = alternatives(Filter(filter), {"lines": lines, "x": 1})
    assert said in asked.found


def test_nothing_can_match_a_contradiction() -> None:
    assert alternatives(Filter("x > 1 and x < 0"), {"x": 2}) == []


def test_it_says_which_event_type_was_asked_for() -> None:
    ((asked,),) = alternatives(Filter("isa quote.stock"), Notification({"x": 1}, type="order"))
    assert asked.text == "isa quote.stock"
    assert asked.found == "its event type is ['order']"


@given(filters(), EVENTS)
def test_the_nearest_event_matches(filter: Filter, event: dict[str, Any]) -> None:
    given = Notification(event or {"w": 0})
    found = nearest(filter, given)
    if found is not None:
        assert filter.matches(found)
    elif filter.conjuncts:  # missed only where attributes are compared, or where nothing is left
        asks = [c.residuals or set(event) <= {"y"} for c in filter.conjuncts]
        assert all(asks)


@pytest.mark.parametrize(
    ("filter", "event", "expected"),
    [
        (
            "price > 100 and symbol = 'IBM'",
            {"symbol": "IBM", "price": 99},
            {"symbol": "IBM", "price": 101},
        ),
        ("x > 1 and x < 2", {"x": 7}, {"x": 1.1}),
        ("x < 3 and x is missing or x < 3", {"x": 9}, {"x": 2}),
        ("x prefix 'IB' and x > 'IB'", {"x": "SAP"}, {"x": "IBa"}),
        ("tags has 'b'", {"tags": ["a"]}, {"tags": ("a", "b")}),
        ("tags subset of ('b')", {"tags": ["a"]}, {"tags": ()}),
        ("y is missing", {"y": 1, "x": 2}, {"x": 2}),
        (
            "any line in lines: line.sku = 'A' and line.quantity > 10",
            {"lines": [{"sku": "A", "quantity": 9}]},
            {"lines": ({"sku": "A", "quantity": 9}, {"sku": "A", "quantity": 11})},
        ),
    ],
)
def test_the_nearest_event_keeps_what_is_right(
    filter: str, event: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = nearest(Filter(filter), Notification(event))
    assert found is not None
    assert dict(found) == dict(Notification(expected))


def test_the_nearest_event_has_the_type_and_the_subject() -> None:
    found = nearest(
        Filter("isa quote.stock and _subject = 'a.b' and x = 1"), Notification({"y": 2})
    )
    assert found == Notification({"y": 2, "x": 1}, type="quote.stock", subject="a.b")


def test_nothing_is_near_a_contradiction() -> None:
    assert nearest(Filter("x > 1 and x < 0"), Notification({"x": 2})) is None
    assert nearest(Filter("x * y > 1000"), Notification({"x": 2, "y": 3})) is None
