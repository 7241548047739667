"""Composite events as notifications: what parts their events, and what has no room in them."""

import pytest

from stentor.composite import CompositeEvent, Pattern, detect_local, interval_of
from stentor.composite.distribution import decompose
from stentor.composite.intervals import moment
from stentor.errors import InvalidPattern
from stentor.model import MAX_DEPTH, MAX_NAME_BYTES, Notification, NotificationId, decode, encode

EVENTS = {"A": "n = 'a'", "B": "n = 'b'"}


def pair(partition: str, **more: object) -> CompositeEvent:
    """An A and a B of one source, detected by a pattern that parts events by this."""
    history = [
        Notification(
            {"n": name, **more},
            type="cpu",
            subject="rack",
            channel="news",
            priority=7,
            id=NotificationId("sensor", 1, place),
            time=moment(0),
            expires=moment(9),
        )
        for place, name in enumerate("ab")
    ]
    parted = Pattern(f"A || B partition by {partition}", EVENTS)
    (found,) = detect_local(parted, history)
    return found


@pytest.mark.spec("R-06.02")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_producer", "sensor"),
        ("_type", "cpu"),
        ("_subject", "rack"),
        ("_channel", "news"),
        ("_priority", 7),
        ("_time", moment(0)),
        ("_expires", moment(9)),
    ],
)
def test_events_are_parted_by_what_is_no_attribute(name: str, value: object) -> None:
    found = pair(name)
    again = decode(encode(found.notification()))
    assert again[f"composite.{name[1:]}"] == value
    assert again.id == found.id
    assert again.id.producer == found.pattern.type


def test_what_a_composite_event_says_of_itself_stays_so() -> None:
    """Its events may be composite, and be parted by what they say."""
    own = {"composite.start": moment(-3), "composite.end": moment(0), "composite.pattern": "x"}
    found = pair("composite.pattern, composite.start", **own)
    notification = found.notification()
    assert interval_of(notification) == found.interval
    assert notification["composite.pattern"] == found.pattern.label


def test_names_without_room_are_left_out() -> None:
    deep, long = ".".join("x" * MAX_DEPTH), "y" * MAX_NAME_BYTES
    found = pair("n2", n2=1, **{deep: 1, long: 2, "fits": 3})
    notification = found.notification()
    assert {"A.n", "A.n2", "A.fits", "A.count"} == {n for n in notification if n[:2] == "A."}
    assert deep in found.events[0].event


def test_what_nothing_can_be_parted_by() -> None:
    for name in ("_types", "_offset", "_prodcuer"):
        with pytest.raises(InvalidPattern, match=f"parted by '{name}'"):
            Pattern("A ; B", EVENTS, partition=[name])


def test_parts_have_a_producer_of_their_own() -> None:
    text, events = "(A ; B) | C", {**EVENTS, "C": "n = 'c'"}
    by_host = Pattern(text, events, partition=["host"])
    assert decompose(by_host) is not by_host
    by_producer = Pattern(text, events, partition=["host", "_producer"])
    assert decompose(by_producer) is by_producer
