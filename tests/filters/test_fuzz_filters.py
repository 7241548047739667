"""A short search for filters that take long; `fuzz_filters` searches as long as asked."""

import pytest
from fuzz_filters import LIMIT, Fuzzer, Input, Trial

from stentor.errors import FilterTooComplex
from stentor.filters import Filter, describe
from stentor.matching import Index
from stentor.matching.index import checks


def fuzzer(seed: int) -> Fuzzer:
    return Fuzzer(seed, limit=4 * LIMIT)  # on a busy machine


@pytest.mark.parametrize("seed", [1, 2])
def test_no_input_is_found_that_takes_long(seed):
    search = fuzzer(seed)
    for _ in range(25):
        search.try_input(search.input())
    assert search.accepted
    assert search.findings == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_no_input_is_found_in_a_longer_search(seed):
    search = fuzzer(seed)
    search.run(60)
    assert search.accepted
    assert search.findings == []


def test_every_language_goes_through_all_steps():
    """A search that refuses everything would find nothing."""
    for input in (
        Input("filter", "x > 1 or y like 'a%b_'"),
        Input("selector", "x > 1 OR y NOT LIKE 'a%'"),
        Input("pattern", '{"x": [{"numeric": [">", 1]}, {"wildcard": "a*b"}]}'),
    ):
        trial = Trial(("x = 3",))
        assert trial.run(input) is not None
        assert {"read", "read again", "covers", "merge", "merging, withdrawn"} <= set(trial.seconds)
        assert not trial.faults


def test_what_would_be_printed_as_very_many_intervals_is_not_printed(monkeypatch):
    """The text is short enough, and what neighbors would have to read is not."""
    described = []
    piece = describe._piece
    monkeypatch.setattr(describe, "_piece", lambda *args: described.append(args) or piece(*args))
    listed = ", ".join(f"'v{i}'" for i in range(4_000))
    text = f"not ((not (not (x in ({listed}) and x superset of (7, 'k7')))) or x regex '^a{{3,5}}')"
    with pytest.raises(FilterTooComplex):
        Filter.received(text)
    assert len(described) < 2_000


def test_boxes_of_a_filter_share_their_checks(monkeypatch):
    """Each may have a long list that has to be made ready."""
    made = []
    listed = checks._listed
    monkeypatch.setattr(checks, "_listed", lambda given: made.append(given) or listed(given))
    values = ", ".join(f"'aba{i}'" for i in range(30))
    index = Index()
    index.add("a", Filter(f"f like '%k_' and some h in ({values}) and a in (0, 8, 'k')"))
    assert index.match({"f": "k1", "h": ("aba3",), "a": 8}) == ["a"]
    assert index.match({"f": "k1", "h": ("abc",), "a": 8}) == []
    assert 0 < len(made) < 10
