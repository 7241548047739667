"""What an inbox asks for, and how routers hear of a change of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.filters import Filter
from stentor.node.interest import Interest

FILTERS = [Filter(text) for text in ("x = 1", "x = 2", "x > 0", "x < 9", "y = 1", "x > 0 or y = 1")]
SOME = st.lists(st.sampled_from(FILTERS), max_size=4)
WITHIN = st.sampled_from([None, Filter("x = 1"), Filter("x in (1, 2)"), Filter("tenant = 'acme'")])


@given(SOME, WITHIN, st.lists(st.tuples(SOME, SOME), max_size=5))
def test_routers_are_told_exactly_what_changes(
    first: list[Filter], within: Filter | None, amendments: list[tuple[list[Filter], list[Filter]]]
) -> None:
    interest = Interest(first)
    interest.within = within
    for added, removed in amendments:
        before = set(interest.narrowed(interest))
        asked, unasked = interest.narrowed_changes(*interest.amend(added, removed))
        after = set(interest.narrowed(interest))
        assert set(asked) == after - before
        assert set(unasked) == before - after
        assert len(asked) == len(set(asked))
        assert len(unasked) == len(set(unasked))
        assert interest.weight == sum(filter.weight for filter in interest)


def test_only_what_is_new_is_narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """To work out what two filters match together may take a millisecond."""
    narrowed: list[Filter] = []
    both = Filter.__and__
    monkeypatch.setattr(
        Filter, "__and__", lambda one, other: narrowed.append(one) or both(one, other)
    )
    many = [Filter(f"x = {i}") for i in range(50)]
    interest = Interest(many)
    interest.within = Filter("tenant = 'acme'")
    assert len(interest.narrowed(interest)) == len(narrowed) == len(many)
    new = [Filter("x > 60"), Filter("x > 70")]
    interest.narrowed_changes(*interest.amend(new, many[:20]))
    assert narrowed[len(many) :] == new
    interest.within = Filter("tenant = 'beta'")
    assert len(interest.narrowed(interest)) == len(interest)
    assert len(narrowed) == len(many) + len(new) + len(interest)
