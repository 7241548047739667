"""docs/composite.md is true, and the patterns that people recognize find what they should."""

import doctest
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stentor.composite import (
    Detector,
    Event,
    Limits,
    Pattern,
    detect_local,
    examples,
    sub_events,
)
from stentor.composite.drawing import svg
from stentor.errors import (
    DecodeError,
    DetectorFull,
    InvalidNotification,
    InvalidPattern,
    PatternSyntaxError,
)
from stentor.model import Notification, decode, encode

PAGE = Path(__file__).parents[2] / "docs" / "composite.md"


def at(seconds: float, **attributes: object) -> Notification:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return Notification(attributes, time=start + timedelta(seconds=seconds))


def test_the_page() -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert result.attempted > 15
    assert result.failed == 0


@pytest.mark.spec("R-01.74")
@pytest.mark.parametrize(
    ("pattern", "events", "expected"),
    [
        (examples.BRUTE_FORCE, [at(i, type="login_failed", account="a") for i in range(3)], 1),
        (
            examples.BRUTE_FORCE,
            [
                *(at(i, type="login_failed", account="a") for i in range(3)),
                at(9, type="login", account="a"),
            ],
            0,
        ),
        (
            examples.PRICE_SPIKE,
            [
                at(0, type="quote", symbol="x", price=100),
                at(1, type="quote", symbol="x", price=120),
                at(2, type="volume", symbol="x", volume=20_000),
            ],
            1,
        ),
        (
            examples.FAILING_MACHINE,
            [at(0, type="cpu", load=0.95, host="a"), at(5, type="disk", free=0.01, host="b")],
            0,
        ),
        (
            examples.MEETING,
            [
                at(i, type="entered", department="messaging", person=p, room=1)
                for i, p in enumerate("aabc")
            ],
            1,
        ),
        (
            examples.NETWORK_FAULT,
            [at(i, type="bandwidth", loss=0.9, segment=i % 4) for i in range(40)],
            0,
        ),
        (
            examples.NETWORK_FAULT,
            [at(i, type="bandwidth", loss=0.9, segment=i % 5) for i in range(9)],
            1,
        ),
        (examples.ESCALATION, [at(0, type="alarm", alarm=7)], 1),
        (
            examples.ESCALATION,
            [at(0, type="alarm", alarm=7), at(60, type="acknowledged", alarm=7)],
            0,
        ),
    ],
)
def test_examples(pattern: Pattern, events: list[Notification], expected: int) -> None:
    found = detect_local(pattern, events)
    assert len(found) == expected
    detector = Detector([pattern])
    assert detector.feed(events).detections + detector.finish().detections == found


@pytest.mark.spec("R-06.01", "R-06.02", "06/T8")
def test_a_composite_event_is_a_notification_and_part_of_others() -> None:
    inner = Pattern("A ; B", events={"A": "n = 'a'", "B": "n = 'b'"})
    outer = Pattern("X ; C", events={"X": inner, "C": "n = 'c'"})
    (found,) = detect_local(outer, [at(1, n="a"), at(2, n="b"), at(3, n="c")])
    assert [event["n"] for event in found.leaves()] == ["a", "b", "c"]
    published = decode(encode(found.notification()))
    assert published == found.notification()
    assert [event.type for event in sub_events(published)] == [inner.type, None]
    assert Pattern.load(outer.dump()) == outer
    assert svg(outer.automaton).startswith("<svg")


@pytest.mark.spec("R-06.04", "R-06.05")
@pytest.mark.parametrize(
    "text",
    [
        "A{4000} || A{4000}",
        "A ; " * 500 + "A",
        "A | " * 1_900 + "A",
        "(" * 200 + "A" + ")" * 200,
        "A ; B",
        "A | " * 9,
    ],
)
def test_hostile_patterns_are_refused(text: str) -> None:
    with pytest.raises(InvalidPattern):
        _ = Pattern(text, events={"A": "x = 1"}).automaton


@pytest.mark.spec("R-06.22")
def test_what_is_built_is_what_is_written() -> None:
    a, b, c = (Event(name, f"n = '{name}'") for name in "ABC")
    built = {
        "A ; B": b.after(a),
        "A B": b.loosely_after(a),
        "A followed by B within 1h": a.followed_by(b, within="1h"),
        "A not followed by B within 1h": a.not_followed_by(b, within="1h"),
        "(A | B) || C within 10s": ((a | b) & c).within(10),
        "A{2,} ; B": a.repeated(2, None).followed_by(b),
        "(A{3} distinct by x) ; B": a.repeated(3, distinct_by="x").followed_by(b),
        "A ; B where B.x > A.x and A.x > 1": a.followed_by(b).where("B.x > A.x and A.x > 1"),
    }
    for text, made in built.items():
        pattern = made.pattern()
        assert pattern == Pattern(text, made.events)
        assert Pattern.load(pattern.dump()) == pattern == pickle.loads(pickle.dumps(pattern))


def test_what_is_built_has_the_bounds_of_what_is_written() -> None:
    a, long = Event("A", "x = 1"), Event("B", "x = 2")
    for _ in range(300):
        long = long.followed_by(a)
    with pytest.raises(InvalidPattern, match="more than 200 events and operators"):
        long.pattern()
    for least, most in ((0, 0), (-1, None), (5, 2), (2.5, None), (10**9, None)):
        with pytest.raises(InvalidPattern, match="counts are whole numbers"):
            a.repeated(least, most).pattern()  # type: ignore[arg-type]
    for name in ("within", "Followed_By", "a.b", "_a", "2"):
        with pytest.raises(InvalidPattern, match="not a name for an event"):
            Event(name, "x = 1").pattern()
    with pytest.raises(InvalidPattern, match="named twice"):
        a.pattern(partition_by=["host", "host"])
    with pytest.raises(InvalidPattern, match="cannot be parted by 5"):
        a.pattern(partition_by=[5])  # type: ignore[list-item]
    assert a.pattern(partition_by="host").partition == ("host",)


def test_who_gives_something_else_is_told_what_to_give() -> None:
    events: dict[str, Any] = {"A": "x = 1"}
    with pytest.raises(InvalidPattern, match="events is a list; write a dict"):
        Pattern("A", events=[("A", "x = 1")])  # type: ignore[arg-type]
    with pytest.raises(InvalidPattern, match="takes a Pattern, not a str"):
        detect_local("A", [])  # type: ignore[arg-type]
    with pytest.raises(InvalidPattern, match="takes a Pattern, not a str"):
        Detector("A")  # type: ignore[arg-type]
    with pytest.raises(InvalidNotification, match=r"this is a dict; write Notification"):
        detect_local(Pattern("A", events), [events])  # type: ignore[list-item]


def test_long_labels_have_room_in_a_drawing() -> None:
    names = {"A": "x = 1", "B": "x = 2"}
    short, long = (
        svg(Pattern(text, names).automaton)
        for text in ("A ; B", "(A ; B) where B.price > A.price * 1.1")
    )
    assert width_of(long) > width_of(short) + 100


def width_of(drawing: str) -> int:
    return int(drawing.partition(' width="')[2].partition('"')[0])


def test_limits() -> None:
    pattern = Pattern("A ; B", events={"A": "n = 'a'", "B": "n = 'b'"})
    events = [at(i, n="a") for i in range(10)]
    detector = Detector([pattern], limits=Limits(runs=3))
    detector.feed(events)
    assert (detector.status.runs, detector.status.dropped) == (3, 7)
    assert detector.status.memory > 0
    strict = Detector([pattern], limits=Limits(runs=3, when_full="raise"))
    with pytest.raises(DetectorFull):
        strict.feed(events)
    with pytest.raises(DecodeError):
        strict.restore(b"\x00")
    with pytest.raises(PatternSyntaxError):
        Pattern("A within 3 parsecs", events={"A": "x = 1"})
