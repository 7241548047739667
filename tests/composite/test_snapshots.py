"""The state of a detector as bytes, whole and damaged."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from stentor.composite import Detector, Pattern
from stentor.errors import DecodeError
from stentor.model import Notification

EVENTS = {"A": "n = 'a'", "B": "n = 'b'"}
PATTERNS = [
    Pattern("((A{2} distinct by x) ; B) within 60s partition by k", events=EVENTS),
    Pattern("A ; B", events=EVENTS),
]


def event(number: int, name: str) -> Notification:
    happened = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return Notification({"n": name, "x": number, "k": number % 3}, time=happened)


def detector() -> Detector:
    made = Detector(PATTERNS)
    made.feed([event(n, "a") for n in range(8)])
    return made


@pytest.mark.parametrize("state", [None, 7, b"\x00\x01", [], [[], [], [], [], [], []], {"a": 1}])
def test_what_is_no_state_is_told(state: object) -> None:
    with pytest.raises(DecodeError, match="this is not a snapshot of a detector"):
        Detector(PATTERNS).restore(msgspec.msgpack.encode([1, state]))


def test_damage_anywhere_is_told_and_changes_nothing() -> None:
    r = random.Random(1)
    whole = detector().snapshot()
    told = 0
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(r.randint(1, 3)):
            damaged[r.randrange(2, len(damaged))] = r.randrange(256)
        found = Detector(PATTERNS)
        found.feed([event(100, "a")])
        before = found.snapshot()
        try:
            found.restore(bytes(damaged))
        except DecodeError:
            told += 1
            assert found.snapshot() == before
        else:  # another value of an event, say; it goes on
            found.feed([event(200, "b")])
    assert told > 100


@pytest.mark.parametrize("length", range(0, 600, 37))
def test_a_state_that_was_cut_off_is_told(length: int) -> None:
    with pytest.raises(DecodeError):
        Detector(PATTERNS).restore(detector().snapshot()[:length])
