"""No filter that matches is passed over."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strategies import events, filters

from stentor import Filter, Notification
from stentor.semantics.candidates import Candidates


@given(st.lists(filters, max_size=10), events)
def test_all_that_match_are_among_them(given: list[Filter], event: dict[str, Any]) -> None:
    notification = Notification({**event, "always": 1})
    found = Candidates(given).of(notification)
    assert found == sorted(set(found))
    assert {i for i, f in enumerate(given) if f.matches(notification)} <= set(found)


def test_a_filter_is_filed_under_the_equality_that_fewest_share() -> None:
    held = [Filter(f"place = 'oslo' and symbol = 's{i}'") for i in range(10)]
    found = Candidates([*held, Filter("price > 1")])
    assert found.of(Notification({"place": "oslo", "symbol": "s3"})) == [3, 10]
