"""The traces of the specification with their verdicts (sheet 01, §5.2 and §5.3)."""

import pytest
from trace_notation import written

from stentor.semantics import Condition, check
from stentor.semantics.orders import ORDERS

SAFETY = {
    "S1": ("sub(Y,F) pub(A,1) notify(Y,1)", None),
    "S2": ("sub(Y,F) pub(A,1) unsub(Y,F) notify(Y,1)", "NOT_SUBSCRIBED"),
    "S3": ("sub(Y,F) sub(Y,G) pub(A,2) unsub(Y,F) notify(Y,2)", None),
    "S4": ("sub(Y,F) sub(Y,G) pub(A,2) notify(Y,2) notify(Y,2)", "DUPLICATE"),
    "S5": ("sub(Y,F) pub(A,1) notify(Y,1) unsub(Y,F) sub(Y,F) notify(Y,1)", "DUPLICATE"),
    "S6": ("sub(Y,F) sub(Y,F) unsub(Y,F) pub(A,1) notify(Y,1)", "NOT_SUBSCRIBED"),
    "S7": ("pub(A,1) sub(Y,F) notify(Y,1)", None),
    "S8": ("sub(Y,F) notify(Y,1)", "PHANTOM"),
    "S9": ("pub(A,1) pub(A,1)", "REPEATED_PUBLICATION"),
    "S10": ("sub(A,F) pub(A,1) notify(A,1)", None),
    "S11": ("sub(Y,F) unsub(Y,F) pub(A,1) sub(Y,F) notify(Y,1)", None),
}
ADVERTISED = {
    "V1": ("sub(Y,ALL) pub(A,1) notify(Y,1)", "UNADVERTISED"),
    "V2": ("sub(Y,ALL) adv(A,F) pub(A,1) notify(Y,1)", None),
    "V3": ("sub(Y,ALL) adv(A,F) pub(A,3) notify(Y,3)", "UNADVERTISED"),
    "V4": ("sub(Y,ALL) pub(A,1) adv(A,F) notify(Y,1)", "UNADVERTISED"),
    "V5": ("sub(Y,ALL) adv(A,F) pub(A,1) unadv(A,F) notify(Y,1)", None),
    "V6": ("sub(Y,ALL) adv(B,F) pub(A,1) notify(Y,1)", "UNADVERTISED"),
    "V7": ("sub(Y,ALL) adv(A,F) adv(A,G) unadv(A,F) pub(A,2) notify(Y,2)", None),
}
# Holds or breaks, in the columns of the sheet, which are those of `ORDERS` but for the second and
# third.
COLUMNS = ("fifo", "causal_printed", "causal", "total_pairwise", "total_global")
ORDER = {
    "O1": ("p(A,1) p(A,2) n(B,2) n(B,1)", "✗✓✗✓✓"),
    "O2": ("p(A,1) n(B,1) p(B,2) n(Y,2) n(Y,1)", "✓✗✗✓✓"),
    "O3": ("p(A,1) n(B,1) p(B,2) n(C,2) p(C,3) n(Y,3) n(Y,1)", "✓✗✗✓✓"),
    "O4": ("p(A,1) n(B,1) p(B,2) n(Y,1) n(Y,2)", "✓✓✓✓✓"),
    "O5": ("p(A,1) p(A,1x) n(B,1x) p(B,2) n(Y,2) n(Y,1)", "✓✓✗✓✓"),
    "O6": ("p(A,1) n(B,1) p(B,2) p(B,3) n(Y,3) n(Y,2)", "✗✓✗✓✓"),
    "O7": ("p(A,1) p(B,2) n(Y,1) n(Y,2) n(Z,2) n(Z,1)", "✓✓✓✗✗"),
    "O8": ("p(A,1) p(A,2) n(Y,2) n(Y,1) n(Z,2) n(Z,1)", "✗✓✗✓✓"),
    "O9": ("p(A,1) p(B,2) p(C,3) n(U,1) n(U,2) n(V,2) n(V,3) n(W,3) n(W,1)", "✓✓✓✓✗"),
    "O10": ("p(A,1) p(B,2) n(B,1) n(Y,2) n(Y,1)", "✓✓✓✓✓"),
}


def _params(vectors):
    return [
        pytest.param(*vector, id=name, marks=pytest.mark.spec(f"01/{name}"))
        for name, vector in vectors.items()
    ]


@pytest.mark.spec("01/A-2", "R-01.16", "R-01.18", "R-01.19", "R-01.20", "R-01.23")
@pytest.mark.parametrize(("trace", "verdict"), _params(SAFETY))
def test_safety_vector(trace, verdict):
    report = check(written(trace))
    assert [violation.condition for violation in report.violations] == (
        [verdict] if verdict else []
    )
    # The fault is always the last action of the vector.
    assert all(violation.position == report.actions - 1 for violation in report.violations)


@pytest.mark.spec("01/A-2", "R-01.33", "R-01.35", "01/T-12")
@pytest.mark.parametrize(("trace", "verdict"), _params(ADVERTISED))
def test_advertisement_vector(trace, verdict):
    report = check(written(trace), advertisements=True)
    assert [violation.condition for violation in report.violations] == (
        [verdict] if verdict else []
    )


@pytest.mark.spec("R-01.36")
@pytest.mark.parametrize("vector", ADVERTISED)
def test_without_advertisements_nobody_needs_one(vector):
    assert check(written(ADVERTISED[vector][0])).ok


@pytest.mark.spec("01/A-4", "01/A-5", "01/A-6", "R-01.26", "R-01.27", "R-01.28", "R-01.32")
@pytest.mark.parametrize(("trace", "verdicts"), _params(ORDER))
def test_order_vector(trace, verdicts):
    report = check(written(trace), order=COLUMNS)
    broken = {column for column in COLUMNS if Condition(column.upper()) in report.conditions}
    assert broken == {c for c, sign in zip(COLUMNS, verdicts, strict=True) if sign == "✗"}


@pytest.mark.parametrize("order", ORDERS)
def test_each_order_is_asked_for_by_itself(order):
    reports = [check(written(trace), order=[order]) for trace, _ in ORDER.values()]
    orders = {Condition(name.upper()) for name in ORDERS}
    found = set().union(*(report.conditions & orders for report in reports))
    assert found == {Condition(order.upper())}


@pytest.mark.spec("R-01.24", "R-04.06")
@pytest.mark.parametrize("vector", ORDER)
def test_no_order_is_demanded_by_default(vector):
    assert check(written(ORDER[vector][0])).conditions <= {Condition.NOT_SUBSCRIBED}
