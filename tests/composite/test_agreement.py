"""The automata find what the reference finds, in every order of arrival; both forms agree."""

import pytest
from composite_histories import check, check_forms
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.composite import Detector, Guaranteed, Pattern, detect_local
from stentor.composite.intervals import moment
from stentor.model import Notification, NotificationId


@pytest.mark.spec("06/P3", "06/P4", "R-06.10", "R-06.32", "06/T1", "06/T5", "06/T6")
@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_generated_histories(random) -> None:  # type: ignore[no-untyped-def]
    check(random)


def test_what_ends_at_one_moment_stays_together_in_short_calls() -> None:
    """`D(b)` precedes `a`, although a call deals with one event and `a` came first."""
    inner = Pattern("X", {"X": "n in ('a', 'b')"})
    pattern = Pattern("A followed by D within 5s", {"A": "n = 'a'", "D": inner})
    events = [
        Notification({"n": n}, time=moment(time), id=NotificationId("s", 1, place))
        for place, (n, time) in enumerate([("a", 1), ("b", 1), ("b", 2)])
    ]
    detector = Detector([pattern], policy=Guaranteed(("s",)), portion=1)
    found = detector.feed(events, source="s").detections
    found += detector.heartbeat("s", 9.0).detections
    while detector.is_behind:
        found += detector.catch_up(9.0).detections
    assert [each.interval for each in found] == [(1, 2)]
    assert found == detect_local(pattern, events)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_runs_in_short_form_and_in_general_form_find_the_same(random) -> None:  # type: ignore[no-untyped-def]
    check_forms(random)


@pytest.mark.slow
@pytest.mark.spec("06/P3")
def test_many_generated_histories() -> None:
    assert sum(check(seed) for seed in range(20_000)) > 1_000
