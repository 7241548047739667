"""What is found out once for all tables is what each would have found out by itself."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from strategies import events, filters

from stentor import Filter, Notification
from stentor.matching import commons
from stentor.matching.commons import SharedIndex, SharedRelations
from stentor.model import decode_headers, encode

FILTERS = tuple(
    map(
        Filter,
        (
            "",
            "x > 1",
            "x > 2",
            "x > 2 and y = 1",
            "y = 1",
            "x > 1 or y > 0",
            "x between 2 and 3",
            "x = 2 or x = 3",
            "x < 1 or x > 4",
        ),
    )
)


class Sharing(RuleBasedStateMachine):
    """Tables come to hold filters that others may hold already, and give them up."""

    which = st.integers(0, len(FILTERS) - 1)

    def __init__(self) -> None:
        super().__init__()
        self.index = SharedIndex()
        self.relations = SharedRelations()
        self.held = dict.fromkeys(FILTERS, 0)
        self.numbers: dict[int, Filter] = {}

    @rule(which=which)
    def add(self, which: int) -> None:
        filter = FILTERS[which]
        self.held[filter] += 1
        self.numbers[self.index.add(filter)] = filter
        self.relations.add(filter, filter)

    @rule(which=which)
    def remove(self, which: int) -> None:
        filter = FILTERS[which]
        if self.held[filter]:
            self.held[filter] -= 1
            self.index.remove(filter)
            self.relations.remove(filter)

    @invariant()
    def answers_are_those_of_every_pair(self) -> None:
        held = [filter for filter, count in self.held.items() if count]
        assert len(self.index) == len(self.relations) == len(held)
        for probe in FILTERS:
            assert set(self.relations.covering(probe)) == {f for f in held if f.covers(probe)}
            assert set(self.relations.covered(probe)) == {f for f in held if probe.covers(f)}
        ns = [Notification({"x": x, "y": y}) for x in range(5) for y in (0, 1)]
        for n, found in zip(ns, self.index.matching(ns), strict=True):
            assert all(number < self.index.breadth for number in found)
            assert sorted(set(found)) == list(found)
            assert {self.numbers[number] for number in found} == {f for f in held if f.matches(n)}


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=30, stateful_step_count=15)


@given(st.lists(filters, max_size=8), st.lists(events, min_size=1, max_size=8))
def test_an_event_matches_what_each_filter_says(
    held: list[Filter], given: list[dict[str, Any]]
) -> None:
    index = SharedIndex()
    numbers = {index.add(filter): filter for filter in held}
    ns = [Notification({**event, "always": 1}) for event in given]
    expected = [{f for f in held if f.matches(n)} for n in ns]
    for _ in range(2):  # found out, then remembered
        envelopes = decode_headers([encode(n) for n in ns])
        assert [{numbers[n] for n in found} for found in index.matching(envelopes)] == expected


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commons, "REMEMBERED", 2)
    index = SharedIndex()
    index.add(Filter("x > 1"))
    ns = [Notification({"x": x}) for x in range(5)]
    assert [len(found) for found in index.matching(ns)] == [0, 0, 1, 1, 1]
    assert len(index._found) == 2
    assert [len(found) for found in index.matching(ns)] == [0, 0, 1, 1, 1]
