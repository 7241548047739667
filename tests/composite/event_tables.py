"""Histories as people write them in a table: `A1 B2`, or `A[1;3] B[2;4]`, in seconds."""

from __future__ import annotations

import re

from stentor.composite import CompositeEvent, Detector, Pattern, detect_local
from stentor.composite.intervals import END, START, moment
from stentor.composite.reference import Mode
from stentor.model import Notification

_WORD = re.compile(r"([A-Za-z_]+?)(?:\[(-?[\d.]+);(-?[\d.]+)\]|(-?[\d.]+))(?:\{(.*?)\})?$")


def history(text: str) -> list[Notification]:
    """Events by their names; `A1{x=3}` has a further attribute."""
    found = []
    for word in text.split():
        match = _WORD.match(word)
        assert match, word
        name, low, high, point, more = match.groups()
        attributes: dict[str, object] = {"n": name}
        for pair in (more or "").split(",") if more else ():
            key, value = pair.split("=")
            attributes[key] = int(value) if value.lstrip("-").isdigit() else value
        first, last = (point, point) if low is None else (low, high)
        start, end = moment(round(float(first) * 1e6)), moment(round(float(last) * 1e6))
        if start != end:
            attributes |= {START: start, END: end}
        found.append(Notification(attributes, time=end))
    return found


def pattern(text: str, **events: str) -> Pattern:
    """Names stand for events that are called so, if nothing else is said."""
    names = set(re.findall(r"[A-Za-z_]+", text))
    return Pattern(text, {**{name: f"n = '{name}'" for name in names}, **events})


def told(found: list[CompositeEvent]) -> list[str]:
    """What was detected, like `A1 B3`; an interval stands where it is not a point."""
    lines = []
    for each in found:
        words = []
        for sub in each.events:
            low, high = sub.occurrence.low / 1e6, sub.occurrence.high / 1e6
            place = f"{high:g}" if low == high else f"[{low:g};{high:g}]"
            words.append(f"{sub.event['n']}{place}")
        lines.append(" ".join(words))
    return lines


def detected(p: Pattern, events: str, mode: Mode = "standing") -> list[str]:
    """By the reference and by the automaton, which agree."""
    expected = detect_local(p, history(events), mode=mode)
    detector = Detector([p], mode=mode)
    found = detector.feed(history(events)).detections + detector.finish().detections
    assert found == expected
    assert [each.id for each in found] == [each.id for each in expected]
    return told(expected)
