"""The checker against the definitions, on any trace; and the laws of the model (Q4 to Q10)."""

from collections import Counter

import pytest
import trace_definitions
from hypothesis import assume, given
from hypothesis import strategies as st
from trace_definitions import Faults
from trace_notation import COMPONENTS, TRACES, subscribed

from stentor.filters import Filter
from stentor.semantics import (
    Adv,
    Condition,
    Internal,
    Oracle,
    Pub,
    Quiescent,
    Report,
    Sub,
    Trace,
    Unadv,
    Unsub,
    check,
)
from stentor.semantics.orders import ORDERS

MODES = pytest.mark.parametrize("advertisements", [False, True])


def faults(report: Report) -> Faults:
    return Counter((violation.condition, violation.position) for violation in report.violations)


def moved(report: Report, inserted: int, at: int = 0) -> Faults:
    """The faults, if so many actions had been put before a position."""
    return Counter(
        (violation.condition, violation.position + (inserted if violation.position >= at else 0))
        for violation in report.violations
    )


def full_check(trace: Trace, *, advertisements: bool = False) -> Report:
    return check(trace, advertisements=advertisements, order=ORDERS)


@pytest.mark.spec("01/A-2", "01/Q1")
@MODES
@given(trace=TRACES)
def test_safety_is_as_defined(trace, advertisements):
    expected = trace_definitions.safety(trace, advertisements=advertisements)
    assert faults(check(trace, advertisements=advertisements, settling=False)) == expected


@pytest.mark.spec("01/A-3", "01/Q2")
@MODES
@given(trace=TRACES | TRACES.map(subscribed))
def test_liveness_is_as_defined(trace, advertisements):
    report = check(trace, advertisements=advertisements)
    found = {fault: k for fault, k in faults(report).items() if fault[0] is Condition.LOST}
    assert found == trace_definitions.liveness(trace, advertisements=advertisements)
    assert sum(found.values()) <= report.owed


@pytest.mark.spec("01/A-4", "01/A-5", "01/A-6")
@pytest.mark.parametrize("order", ORDERS)
@given(trace=TRACES)
def test_order_is_as_defined(trace, order):
    report = check(trace, order=[order])
    found = {fault: k for fault, k in faults(report).items() if fault[0] == order.upper()}
    assert found == trace_definitions.ORDERS[order](trace)


@pytest.mark.spec("01/A-3")
@MODES
@given(trace=TRACES)
def test_the_oracle_foresees_what_is_owed(trace, advertisements):
    """If nothing is withdrawn, each publication owes what the oracle says when it is made."""
    kept = Trace(action for action in trace if not isinstance(action, Unsub | Unadv))
    kept.quiescent()
    oracle = Oracle(advertisements=advertisements)
    owed = 0
    for action in kept:
        if isinstance(action, Pub) and action.id not in oracle.published:
            to = oracle.owed(action.component, action.notification)
            assert to <= oracle.interested(action.notification)
            owed += len(to)
        oracle.step(action)
    assert check(kept, advertisements=advertisements).owed == owed


@pytest.mark.spec("01/Q4", "R-01.07", "R-01.08", "R-01.11", "R-01.12")
@pytest.mark.spec("R-04.01", "R-04.03", "04/T23")
@MODES
@given(trace=TRACES, data=st.data())
def test_operations_are_idempotent(trace, advertisements, data):
    repeatable = [i for i, a in enumerate(trace) if isinstance(a, Sub | Unsub | Adv | Unadv)]
    assume(repeatable)
    at = data.draw(st.sampled_from(repeatable)) + 1
    again = Trace([*trace[:at], trace[at - 1], *trace[at:]])
    expected = moved(full_check(trace, advertisements=advertisements), 1, at)
    assert faults(full_check(again, advertisements=advertisements)) == expected


@pytest.mark.spec("01/Q4", "01/T-5")
@given(trace=TRACES, data=st.data())
def test_subscriptions_are_not_counted(trace, data):
    """Subscribing again while subscribed changes nothing, least of all the unsubscription."""
    subs = [i for i, action in enumerate(trace) if isinstance(action, Sub)]
    assume(subs)
    first = data.draw(st.sampled_from(subs))
    sub = trace[first]
    assert isinstance(sub, Sub)
    until = next(
        (i for i in range(first, len(trace)) if trace[i] == Unsub(sub.component, sub.id)),
        len(trace),
    )
    at = data.draw(st.integers(first + 1, until))
    again = Trace([*trace[:at], sub, *trace[at:]])
    assert faults(full_check(again)) == moved(full_check(trace), 1, at)


@pytest.mark.spec("01/Q7", "R-01.29")
@given(trace=TRACES)
def test_stronger_orders_imply_weaker_ones(trace):
    broken = full_check(trace).conditions
    if Condition.CAUSAL not in broken:
        assert not {Condition.FIFO, Condition.CAUSAL_PRINTED} & broken
    if Condition.TOTAL_GLOBAL not in broken:
        assert Condition.TOTAL_PAIRWISE not in broken


@pytest.mark.spec("01/Q8", "R-01.36")
@given(trace=TRACES)
def test_no_advertisements_is_everything_advertised(trace):
    everything = [Adv(component, "everything", Filter()) for component in COMPONENTS]
    advertised = full_check(Trace([*everything, *trace]), advertisements=True)
    assert faults(advertised) == moved(full_check(trace), len(everything))


@pytest.mark.spec("01/Q9", "R-01.35")
@given(trace=TRACES, data=st.data())
def test_a_withdrawn_advertisement_revokes_nothing(trace, data):
    """Deliveries are judged by the advertisements at publication, whatever comes after."""
    last = max((i for i, action in enumerate(trace) if isinstance(action, Pub)), default=-1)
    at = data.draw(st.integers(last + 1, len(trace)))
    withdrawn = [Unadv(component, id) for component in COMPONENTS for id in (0, 1)]
    revoked = Trace([*trace[:at], *withdrawn, *trace[at:]])
    before = check(trace, advertisements=True, settling=False)
    after = check(revoked, advertisements=True, settling=False)
    assert faults(after) == moved(before, len(withdrawn), at)


@pytest.mark.spec("01/Q9", "R-01.33")
@given(trace=TRACES)
def test_what_was_not_advertised_is_delivered_to_nobody(trace):
    """Without the faulty deliveries, every delivery is of what conformed."""
    flawed = {v.position for v in check(trace, advertisements=True, settling=False).violations}
    kept = Trace(action for i, action in enumerate(trace) if i not in flawed)
    oracle = Oracle(advertisements=True)
    assert not [violation for action in kept for violation in oracle.step(action)]
    for ids in oracle.delivered.values():
        assert all(oracle.published[id].conforms for id in ids)


@pytest.mark.spec("01/Q10", "R-01.15")
@MODES
@given(trace=TRACES, data=st.data())
def test_internal_actions_change_no_verdict(trace, advertisements, data):
    at = data.draw(st.integers(0, len(trace)))
    stutter = [Internal("forward")] * data.draw(st.integers(1, 3))
    stuttering = Trace([*trace[:at], *stutter, *trace[at:]])
    before = full_check(trace, advertisements=advertisements)
    after = full_check(stuttering, advertisements=advertisements)
    assert faults(after) == moved(before, len(stutter), at)
    assert [v.action for v in after.violations] == [v.action for v in before.violations]
    assert after.owed == before.owed


@pytest.mark.spec("R-01.25")
@given(trace=TRACES)
def test_safety_and_liveness_are_both_needed(trace):
    """Never notifying is always safe; what is not delivered is what was owed, no more."""
    silent = Trace(a for a in subscribed(trace) if isinstance(a, Pub | Quiescent | Sub))
    silent.quiescent()
    report = check(silent)
    lost = sum(v.condition is Condition.LOST for v in report.violations)
    assert lost == report.owed == len(COMPONENTS) * report.publications
    assert check(silent, settling=False).conditions <= {Condition.REPEATED_PUBLICATION}
