"""Why a filter does not match."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stentor.filters import Filter
from stentor.filters.mismatch import alternatives

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


def test_nothing_can_match_a_contradiction() -> None:
    assert alternatives(Filter("x > 1 and x < 0"), {"x": 2}) == []
