"""Live brokers and the scope model agree, whatever is changed and whatever fails meanwhile."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scope_histories import run_scope_history

HELD = pytest.mark.spec("R-05.02", "R-04.18", "04/P8", "04/P9", "04/P10")


@HELD
def test_scope_histories() -> None:
    for seed in range(25):
        run_scope_history(seed)


@HELD
@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_any_scope_history(seed: int) -> None:
    run_scope_history(seed)


@pytest.mark.slow
@HELD
def test_three_thousand_scope_histories() -> None:
    for seed in range(1_000, 4_000):
        run_scope_history(seed)
