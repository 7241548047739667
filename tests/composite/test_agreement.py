"""The automata find what the reference finds, in every order of arrival; both forms agree."""

import pytest
from composite_histories import check, check_forms
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.spec("06/P3", "06/P4", "R-06.10", "R-06.32", "06/T1", "06/T5", "06/T6")
@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_generated_histories(random) -> None:  # type: ignore[no-untyped-def]
    check(random)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_runs_in_short_form_and_in_general_form_find_the_same(random) -> None:  # type: ignore[no-untyped-def]
    check_forms(random)


@pytest.mark.slow
@pytest.mark.spec("06/P3")
def test_many_generated_histories() -> None:
    assert sum(check(seed) for seed in range(20_000)) > 1_000
