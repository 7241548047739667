"""A short search for filters that take long; `fuzz_filters` searches as long as asked."""

import pytest
from fuzz_filters import LIMIT, Fuzzer, Input, Trial


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
