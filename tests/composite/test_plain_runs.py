"""Runs in short form: what they hold on to, and when they give way to the general form."""

from __future__ import annotations

from event_tables import detected, history, pattern

from stentor.composite import Detector, Limits, Pattern
from stentor.composite.intervals import moment
from stentor.composite.plain_runs import MOST
from stentor.model import Notification, NotificationId

SECOND = 1_000_000


def test_a_partition_with_many_runs_takes_the_general_form_and_back() -> None:
    count = 2 * MOST
    first = [f"A{i / 10}" for i in range(count)]
    last = [f"B{(count + i) / 10}" for i in range(count)]
    found = detected(pattern("A ; B within 60s"), " ".join([*first, *last, "A90 B91 A95 B96"]))
    assert found == [f"A{i / 10:g} B{(count + i) / 10:g}" for i in range(count)] + [
        "A90 B91",
        "A95 B96",
    ]


def test_an_event_is_in_time_at_the_deadline_and_not_later() -> None:
    assert detected(pattern("A ; B within 3s"), "A0 B3") == ["A0 B3"]
    assert detected(pattern("A ; B within 3s"), "A0 A1 B3.5") == ["A1 B3.5"]


def test_what_is_late_opens_a_run_with_an_earlier_deadline() -> None:
    p = pattern("A ; B within 5s")
    detector = Detector([p])
    detector.feed(history("A10"))
    detector.feed(history("A8"))
    assert detector.status.runs == 2
    found = detector.feed(history("B14")).detections
    assert [[round(e.occurrence.high / SECOND) for e in each.events] for each in found] == [
        [10, 14]
    ]
    assert detector.status.runs == 0


def test_runs_are_small_and_end_in_time() -> None:
    p = Pattern("A ; B within 10s partition by host", events={"A": "n = 'a'", "B": "n = 'b'"})
    events = [
        Notification({"n": "a", "host": f"h{i}"}, time=moment(i * SECOND // 100))
        for i in range(1_000)
    ]
    detector = Detector([p])
    fed = detector.feed(events)
    assert detector.status.runs == detector.status.events == 1_000
    assert detector.status.memory <= 700 * 1_000
    assert fed.wake is not None
    assert fed.wake <= 10.01
    detector.advance(15)
    assert detector.status.runs == 500
    detector.advance(30)
    assert (detector.status.partitions, detector.status.memory, detector.due) == (0, 0, None)


def test_deadlines_of_what_is_complete_are_not_kept() -> None:
    detector = Detector([pattern("A ; B within 3600s")])
    for start in range(0, 20_000, 2_000):
        detector.feed(
            history(" ".join(f"{'AB'[i % 2]}{i / 100}" for i in range(start, start + 2_000)))
        )
    (loaded,) = detector._loaded.values()
    assert loaded.plain is not None
    assert len(loaded.plain._deadlines) <= 1_100


def test_partitions_without_room_are_given_up_oldest_first() -> None:
    p = Pattern("A ; B partition by host", events={"A": "n = 'a'", "B": "n = 'b'"})
    detector = Detector([p], limits=Limits(partitions=2))
    names = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]
    events = [
        Notification({"n": n, "host": host}, time=moment(i)) for i, (n, host) in enumerate(names)
    ]
    assert [found.key for found in detector.feed(events).detections] == [(2,), (3,)]
    assert detector.status.dropped == 1


def test_a_snapshot_finds_its_partitions_by_reserved_names_again() -> None:
    p = Pattern("A ; B partition by _producer", events={"A": "n = 'a'", "B": "n = 'b'"})
    first, last = (
        Notification({"n": n}, id=NotificationId("p", 1, i), time=moment(i))
        for i, n in enumerate("ab")
    )
    detector, copy = Detector([p]), Detector([p])
    detector.feed([first])
    copy.restore(detector.snapshot())
    assert copy.snapshot() == detector.snapshot()
    assert len(copy.feed([last]).detections) == 1
