"""A search of a minute for filters that take long; `fuzz_filters` searches as long as asked."""

import pytest
from fuzz_filters import LIMIT, Fuzzer


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_filter_is_found_that_takes_long(seed):
    fuzzer = Fuzzer(seed, limit=4 * LIMIT)  # on a busy machine
    fuzzer.run(60)
    assert fuzzer.accepted > 20
    assert not fuzzer.findings
