"""A correct service passes on every history; each broken one is caught, and for what it does."""

import pytest
from broken_services import BROKEN, CORRECT, LARGE, POSITIVE, Advertising, Service, Step
from hypothesis import given
from hypothesis import strategies as st
from trace_notation import written

from stentor.filters import Filter
from stentor.semantics import Condition, Oracle, Pub, check
from stentor.semantics.orders import ORDERS

_COMPONENTS = st.sampled_from(["a", "b", "c"])
_IDS = st.sampled_from([1, 2])
_FILTERS = st.sampled_from([POSITIVE, LARGE, Filter("x < 3"), Filter()])
_STEPS = st.one_of(
    st.tuples(st.just("sub"), _COMPONENTS, _IDS, _FILTERS),
    st.tuples(st.just("unsub"), _COMPONENTS, _IDS),
    st.tuples(st.just("adv"), _COMPONENTS, _IDS, _FILTERS),
    st.tuples(st.just("unadv"), _COMPONENTS, _IDS),
    st.tuples(st.just("pub"), _COMPONENTS, st.integers(-1, 9)),
    st.tuples(st.just("arrive")),
    st.tuples(st.just("settle")),
)
HISTORIES = st.lists(_STEPS, max_size=25)


def verdict(service: type[Service], history: list[Step], order: tuple[str, ...] = ()):
    trace = service().run(history)
    return check(trace, advertisements=service.advertisements, order=order)


@pytest.mark.spec("01/Q1", "01/Q2", "01/Q5", "R-01.22", "R-01.23")
@pytest.mark.parametrize("service", CORRECT)
@given(history=HISTORIES)
def test_a_correct_service_passes(service, history):
    report = verdict(service, history)
    assert report.ok, report


@pytest.mark.spec("R-01.29")
@given(history=HISTORIES)
def test_one_queue_keeps_every_order(history):
    report = verdict(Service, history, tuple(ORDERS))
    assert report.ok, report


@pytest.mark.spec("01/Q1", "R-01.25", "01/T-1", "01/T-2", "01/T-3", "01/T-4", "01/T-5", "01/T-6")
@pytest.mark.spec("01/T-9", "01/T-10", "01/T-11", "01/T-12", "01/T-13", "R-01.13", "R-01.14")
@pytest.mark.parametrize("service", BROKEN)
@given(history=HISTORIES)
def test_a_broken_service_is_caught(service, history):
    report = verdict(service, [*history, ("settle",), *service.provoked_by], service.order)
    assert service.breaks in report.conditions, report


@pytest.mark.parametrize("service", BROKEN)
def test_a_broken_service_is_caught_for_its_mistake_only(service):
    """What provokes it is harmless to a correct service, and breaks nothing else."""
    assert verdict(service, service.provoked_by, service.order).conditions == {service.breaks}
    correct = Advertising if service.advertisements else Service
    report = verdict(correct, service.provoked_by, service.order)
    assert report.ok, report


@pytest.mark.spec("01/Q3")
@given(history=HISTORIES)
def test_the_oracle_knows_who_is_notified_at_quiescence(history):
    """Of what is published when all has settled, exactly the interested are notified."""
    settled = [step for done in history for step in (done, ("settle",))]
    trace = Service().run(settled)
    oracle = Oracle()
    expected: dict[object, set[str]] = {}
    for action in trace:
        if isinstance(action, Pub):
            expected[action.id] = oracle.interested(action.notification)
            assert oracle.owed(action.component, action.notification) == expected[action.id]
        oracle.step(action)
    notified: dict[object, set[str]] = {id: set() for id in expected}
    for component, ids in oracle.delivered.items():
        for id in ids:
            notified[id].add(component)
    assert notified == expected


@pytest.mark.spec("01/T-7", "R-01.22")
def test_nothing_is_owed_right_after_subscribing():
    assert check(written("sub(Y,F) p(A,1) |")).owed == 0
    assert check(written("| sub(Y,F) p(A,1) | unsub(Y,F) |")).ok


@pytest.mark.spec("01/T-7")
def test_a_run_that_never_settles_shows_that_it_proved_nothing():
    never = check(written("sub(Y,F) p(A,1) p(A,2)"))
    once = check(written("sub(Y,F) | p(A,1) p(A,2)"))
    assert never.ok
    assert once.ok
    assert never.owed == once.owed == 0
    twice = check(written("sub(Y,F) | p(A,1) p(A,2) |"))
    assert twice.owed == 2
    assert twice.conditions == {Condition.LOST}


@pytest.mark.spec("01/T-8", "R-01.31")
def test_one_worker_per_link_keeps_fifo_and_breaks_causal_order():
    """B1 pauses after it sent n1 to B2; the answer n2 from there overtakes n1 to Y at B3."""
    trace = written("sub(Y,ALL) sub(B,ALL) p(A,1) n(B,1) p(B,2) n(B,2) n(Y,2) n(Y,1)")
    assert check(trace, order=["fifo"]).ok
    assert check(trace, order=["causal"]).conditions == {Condition.CAUSAL}


@pytest.mark.spec("01/T-11", "R-01.29")
def test_gaps_break_no_order():
    """Y is notified of the effect but never of the cause, which it did not subscribe to."""
    trace = written("sub(B,ALL) sub(Y,G) | p(A,1) n(B,1) p(B,3) n(B,3) n(Y,3) |")
    report = check(trace, order=ORDERS)
    assert report.ok, report
    assert report.owed == 3
