"""What the checker tells a person, and how it copes with long traces."""

from random import Random

import pytest
from trace_notation import named, written

from stentor.errors import InvalidConfiguration, InvalidNotification
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.semantics import (
    Condition,
    Internal,
    Notify,
    Oracle,
    Pub,
    Sub,
    Trace,
    check,
)
from stentor.semantics.orders import ORDERS


def why(trace: Trace, **options: object) -> list[str]:
    return [violation.why for violation in check(trace, **options).violations]


def test_an_order_may_be_asked_of_some_notifications_only():
    trace = written("sub(Y,ALL) sub(Z,ALL) p(A,1) p(B,2) p(A,3) n(Y,1) n(Y,2) n(Y,3) n(Z,2) n(Z,1)")
    order = ["fifo", "total_pairwise"]
    assert check(trace, order=order).conditions == {Condition.TOTAL_PAIRWISE}
    for among in ("x = 1", "x > 1", "x in (1, 3)"):
        assert check(trace, order=order, among=Filter(among)).ok
    # Everything else is asked of all, as ever.
    twice = written("sub(Y,ALL) p(A,1) n(Y,1) n(Y,1)")
    assert check(twice, order=order, among=Filter("x = 2")).conditions == {Condition.DUPLICATE}


def test_a_delivery_after_unsubscription_names_the_subscription():
    assert why(written("sub(Y,F) p(A,2) sub(Y,G) unsub(Y,G) unsub(Y,F) n(Y,2)")) == [
        "Y was notified of 2:0:0 at action 5, but its last matching subscription "
        "F (x in (1, 2)) was withdrawn at action 4"
    ]


def test_a_delivery_without_any_subscription():
    assert why(written("sub(Y,G) unsub(Y,G) p(A,1) n(Y,1)")) == [
        "Y was notified of 1:0:0 at action 3, but it had never had a matching subscription"
    ]


def test_a_phantom_a_duplicate_and_a_repetition():
    assert why(written("sub(Y,F) n(Y,1)")) == [
        "Y was notified of 1:0:0 at action 1, but nobody had published it"
    ]
    assert why(written("sub(Y,F) p(A,1) n(Y,1) . n(Y,1)")) == [
        "Y was notified of 1:0:0 at action 4, but had been notified of it at action 2"
    ]
    assert why(written("p(A,1) . p(B,1)")) == [
        "B published 1:0:0 at action 2, but A had published it at action 0"
    ]


@pytest.mark.spec("R-01.33")
def test_an_unadvertised_delivery_names_the_publisher():
    assert why(written("sub(Y,F) p(A,1) n(Y,1)"), advertisements=True) == [
        "Y was notified of 1:0:0 at action 2, but no advertisement of its publisher A matched "
        "when it was published at action 1"
    ]


@pytest.mark.spec("R-01.19")
def test_an_altered_notification_names_what_differs():
    n = Notification({"x": 1, "y": 1, "z": 1}, id=NotificationId("a", 0, 0))
    delivered = n.replace(attributes={"w": 0, "x": 1.0, "y": 1}, payload=b"!")
    trace = Trace([Sub("b", 1, Filter("x = 1")), Pub("a", n), Notify("b", delivered)])
    assert why(trace) == [
        "b was notified of a:0:0 at action 2, but a had published it at action 1 "
        "with another value of w, x, z, payload"
    ]


def test_an_altered_notification_counts_as_a_delivery_of_what_was_published():
    trace = written("sub(Y,F) | p(A,1)")
    trace.notify("Y", named("1").replace(attributes={"x": 7}))
    trace.quiescent()
    report = check(trace)
    assert report.conditions == {Condition.ALTERED}
    assert report.owed == 1


@pytest.mark.spec("01/A-3", "R-01.34")
def test_a_loss_names_the_filters_and_when_they_settled():
    trace = written("sub(Y,F) | adv(A,G) | p(A,2) | .")
    assert why(trace) == [
        "A published 2:0:0 at action 4, but Y was not notified of it by the last settling point, "
        "action 5, although its subscription F (x in (1, 2)) had settled at action 1"
    ]
    assert why(trace, advertisements=True) == [
        why(trace)[0] + " and the advertisement G (x in (2, 3)) had settled at action 3"
    ]


@pytest.mark.spec("R-01.34")
@pytest.mark.parametrize(
    ("trace", "owed"),
    [
        ("sub(Y,ALL) adv(A,F) | p(A,1) n(Y,1) |", 1),
        ("sub(Y,ALL) | adv(A,F) p(A,1) |", 0),
        ("adv(A,F) | sub(Y,ALL) p(A,1) |", 0),
        ("sub(Y,ALL) adv(A,F) | p(A,1) unadv(A,F) |", 0),
        ("sub(Y,ALL) adv(B,F) | p(A,1) |", 0),
        ("sub(Y,ALL) adv(A,F) | p(A,3) |", 0),
        ("sub(Y,ALL) adv(A,F) adv(A,G) | unadv(A,F) p(A,2) n(Y,2) |", 1),
    ],
)
def test_what_is_owed_with_advertisements(trace, owed):
    report = check(written(trace), advertisements=True)
    assert report.ok, report
    assert report.owed == owed


def test_a_delivery_after_the_last_settling_point_comes_too_late():
    assert check(written("sub(Y,F) | p(A,1) | n(Y,1)")).conditions == {Condition.LOST}


def test_one_loss_per_component():
    """However many of its subscriptions match."""
    trace = written("sub(Y,F) sub(Y,ALL) sub(Z,F) | p(A,1) |")
    assert [v.condition for v in check(trace).violations] == [Condition.LOST] * 2


def test_orders_name_what_was_overtaken():
    trace = written("sub(Y,ALL) sub(B,ALL) p(A,1) n(B,1) p(B,2) n(Y,2) n(Y,1)")
    expected = "Y was notified of 1:0:0 at action 6, after 2:0:0, but 1:0:0 happened before 2:0:0"
    assert why(trace, order=["causal", "causal_printed"]) == [expected] * 2
    trace = written("sub(Y,ALL) p(A,1) p(A,2) n(Y,2) n(Y,1)")
    assert why(trace, order="fifo") == [
        "Y was notified of 1:0:0 at action 4, after 2:0:0, but A published 1:0:0 at action 1 "
        "and 2:0:0 at action 2"
    ]
    trace = written("sub(Y,ALL) sub(Z,ALL) p(A,1) p(B,2) n(Y,1) n(Y,2) n(Z,2) n(Z,1)")
    assert why(trace, order=["total_pairwise"]) == [
        "Z was notified of 1:0:0 at action 7, after 2:0:0, but Y of 1:0:0 before 2:0:0"
    ]


def test_a_contradiction_of_orders_is_shown_as_a_circle():
    trace = written(
        "sub(U,ALL) sub(V,ALL) sub(W,ALL) p(A,1) p(B,2) p(C,3) "
        "n(U,1) n(U,2) n(V,2) n(V,3) n(W,3) n(W,1)"
    )
    (violation,) = check(trace, order=["total_global"]).violations
    assert violation.position == 11
    assert violation.action == Notify("W", named("1"))
    assert set(violation.why.partition(": ")[2].split(", ")) == {
        "U was notified of 1:0:0 before 2:0:0",
        "V was notified of 2:0:0 before 3:0:0",
        "W was notified of 3:0:0 before 1:0:0",
    }


@pytest.mark.spec("R-01.26")
def test_the_order_of_a_producer_spans_its_epochs():
    old, new = (Notification({"x": 1}, id=NotificationId("a", *id)) for id in ((3, 9), (4, 0)))
    trace = Trace([Sub("b", 1, Filter()), Pub("a", old), Pub("a", new)])
    in_order = Trace([*trace, Notify("b", old), Notify("b", new)])
    reversed_ = Trace([*trace, Notify("b", new), Notify("b", old)])
    assert check(in_order, order=["fifo"]).ok
    assert check(reversed_, order=["fifo"]).conditions == {Condition.FIFO}


def test_violations_come_in_the_order_of_the_trace():
    report = check(written("sub(Y,F) | p(A,1) n(Z,1) p(A,2) n(Y,2) n(Y,2) |"))
    assert [(v.condition, v.position) for v in report.violations] == [
        (Condition.LOST, 2),
        (Condition.NOT_SUBSCRIBED, 3),
        (Condition.DUPLICATE, 6),
    ]


def test_a_long_report_shows_the_first_violations():
    trace = Trace([Notify("Y", named(f"1n{i}")) for i in range(30)])
    lines = str(check(trace)).splitlines()
    assert lines[0] == "60 violations (30 actions, 0 publications, 30 deliveries, 0 owed)"
    assert lines[1].startswith("  PHANTOM at action 0: Y was notified of 1n0:0:0 at action 0")
    assert lines[-1] == "  and 40 more"
    assert len(lines) == 22


def test_an_unknown_order_is_refused():
    with pytest.raises(InvalidConfiguration, match="no order 'lifo'; choose from fifo, causal"):
        check(Trace(), order=["fifo", "lifo"])


@pytest.mark.spec("R-01.13")
def test_a_notification_needs_an_id():
    for action in (Pub, Notify):
        with pytest.raises(InvalidNotification, match="without an id"):
            action("a", Notification({"x": 1}))


def test_an_empty_trace_conforms():
    report = check(Trace(), order=ORDERS)
    assert report.ok
    assert str(report) == "conforms (0 actions, 0 publications, 0 deliveries, 0 owed)"


def test_a_trace_is_a_sequence_of_actions():
    trace = written("sub(Y,f:F) adv(A,F) . p(A,1) n(Y,1) | unsub(Y,f) unadv(A,F)")
    assert str(trace).splitlines() == [
        "0  sub(Y, f: x in (1, 2))",
        "1  adv(A, F: x in (1, 2))",
        "2  internal()",
        "3  pub(A, 1:0:0)",
        "4  notify(Y, 1:0:0)",
        "5  quiescent",
        "6  unsub(Y, f)",
        "7  unadv(A, F)",
    ]
    assert trace[2] == Internal()
    assert trace[3:5] == Trace([Pub("A", named("1")), Notify("Y", named("1"))])
    assert trace != Trace(trace[1:])


@pytest.mark.spec("R-01.14")
def test_equal_filters_under_two_ids_are_two_subscriptions():
    oracle = Oracle()
    for action in written("sub(Y,f:F) sub(Y,g:F) unsub(Y,f)"):
        oracle.step(action)
    assert oracle.interested(named("1")) == {"Y"}
    assert oracle.interested(named("3")) == set()


@pytest.mark.spec("R-01.07")
def test_the_first_filter_under_an_id_stays():
    oracle = Oracle()
    for action in written("sub(Y,f:F) sub(Y,f:G)"):
        oracle.step(action)
    assert oracle.interested(named("1")) == {"Y"}
    assert oracle.interested(named("3")) == set()


@pytest.mark.spec("R-01.14")
def test_ids_of_different_components_are_different():
    oracle = Oracle()
    for action in written("sub(Y,F) sub(Z,F) unsub(Y,F)"):
        oracle.step(action)
    assert oracle.interested(named("1")) == {"Z"}


def test_the_oracle_goes_on_after_a_violation():
    oracle = Oracle()
    for action in written("sub(Y,F) n(Y,1) n(Y,2) n(Y,1)"):
        oracle.step(action)
    assert [str(id) for id in oracle.delivered["Y"]] == ["1:0:0", "2:0:0", "1:0:0"]


def test_a_long_correct_run_conforms():
    """Thirty thousand actions, every condition: out of reach for anything quadratic."""
    random = Random(1)
    trace = Trace()
    clients = [f"c{number}" for number in range(40)]
    limits = {client: random.randrange(100) for client in clients}
    for client, limit in limits.items():
        trace.sub(client, "s", Filter(f"x > {limit}"))
    trace.quiescent()
    owed = 0
    for number in range(1500):
        producer = random.choice(clients)
        n = Notification({"x": random.randrange(100)}, id=NotificationId(producer, 0, number))
        trace.pub(producer, n)
        for client, limit in limits.items():
            if n["x"] > limit:
                trace.notify(client, n)
                owed += 1
    trace.quiescent()
    report = check(trace, order=ORDERS)
    assert report.ok, report
    assert report.owed == report.deliveries == owed > 25_000
