"""Many generated histories in one event table, so that one job of Spark looks at all of them."""

from __future__ import annotations

from random import Random
from typing import Any

from composite_histories import random_history, random_pattern

from stentor.composite import CompositeEvent, Pattern, detect_local
from stentor.composite.intervals import END, START
from stentor.filters import Filter
from stentor.model import Notification, NotificationId

SCHEMA = (
    "history long, n string, x long, host string, "
    "composite struct<start: timestamp, end: timestamp>, _id string, _time timestamp"
)


def within(pattern: Pattern, history: int | None) -> Pattern:
    """The pattern over the events of one history, or of each by itself."""
    events: dict[str, Any] = {}
    for name, meaning in pattern.events.items():
        if isinstance(meaning, Pattern):
            events[name] = within(meaning, history)
        elif history is None:
            events[name] = meaning
        else:
            events[name] = meaning & Filter(f"history = {history}")
    return pattern.replace(events=events, partition=("history", *pattern.partition))


def keyed(number: int, history: list[Any]) -> list[Notification]:
    """The events of a history, with its number."""
    return [
        each.event.replace(
            attributes={**each.event, "history": number},
            id=NotificationId(f"{number}{each.source}", *each.number),
            time=each.event[END],
        )
        for each in history
    ]


def row(event: Notification) -> tuple[Any, ...]:
    times = (event[START], event[END])
    plain = (event["history"], event["n"], event["x"], event["host"])
    return (*plain, times, str(event.id), event.time)


class Histories:
    """Patterns, histories, and what the reference finds: each history has a pattern of its own, or
    so many look at all of them.
    """

    def __init__(self, seeds: range, patterns: int | None = None) -> None:
        self.patterns: list[Pattern] = []
        self.events: list[Notification] = []
        self.expected: list[CompositeEvent] = []
        for seed in seeds:
            r = Random(seed)
            pattern, history = random_pattern(r), keyed(seed, random_history(r))
            self.events += history
            if patterns is None:
                self.patterns.append(within(pattern, seed))
                self.expected += detect_local(self.patterns[-1], history)
            elif len(self.patterns) < patterns:
                self.patterns = list(dict.fromkeys([*self.patterns, within(pattern, None)]))
        if patterns is not None:
            for pattern in self.patterns:
                self.expected += detect_local(pattern, self.events)

    @property
    def ids(self) -> list[str]:
        return sorted(str(each.id) for each in self.expected)


def shared(seeds: range, many: int) -> list[tuple[Pattern, list[Notification], list[str]]]:
    """A pattern, the events of many histories, and the ids of what there is in each by itself."""
    found = []
    for seed in seeds:
        r = Random(seed)
        pattern = within(random_pattern(r), None)
        histories = [keyed(number, random_history(r)) for number in range(many)]
        expected = [str(d.id) for each in histories for d in detect_local(pattern, each)]
        found.append((pattern, [event for each in histories for event in each], expected))
    return found
