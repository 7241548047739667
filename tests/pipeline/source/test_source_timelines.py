"""Batches take what is earliest in all journals; told by times that need not rise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import inf

from hypothesis import given
from hypothesis import strategies as st
from journal_filling import Windows

from stentor.pipeline.source import timelines
from stentor.pipeline.source.timelines import Timelines
from stentor.protocol.messages import Stretch

#: Times by journal; None for what the filter leaves out.
Journals = dict[str, list[float | None]]


class Brokers:
    """Tells times, in stretches of any length, and counts the questions."""

    def __init__(self, journals: Journals, stretch: int) -> None:
        self._journals = journals
        self._stretch = stretch
        self.asked: list[tuple[str, int]] = []
        self.questions = 0

    def times(self, stream: str, first: int, last: int) -> Iterator[Stretch]:
        self.questions += 1
        for at in range(first, last + 1, self._stretch):
            through = min(at + self._stretch - 1, last)
            self.asked += [(stream, offset) for offset in range(at, through + 1)]
            found = [
                (offset, time)
                for offset in range(at, through + 1)
                if (time := self._journals[stream][offset - 1]) is not None
            ]
            yield Stretch(
                1,
                stream,
                [offset for offset, _ in found],
                [],
                through,
                len(self._journals[stream]),
                times=[time for _, time in found],
                sizes=[size_of(offset) for offset, _ in found],
            )


def size_of(offset: int) -> int:
    return offset * 7 % 50


@st.composite
def disordered(draw: st.DrawFn) -> tuple[Journals, float]:
    """Journals of very different lengths in which no event is behind by more than a delay."""
    delay = draw(st.sampled_from([0.0, 1.0, 7.0]))
    found: Journals = {}
    for name in "abcd"[: draw(st.integers(1, 4))]:
        rate = draw(st.sampled_from([0.0, 0.1, 1.0, 20.0]))
        jump = draw(st.sampled_from([0.0, 0.0, 500.0]))
        at = draw(st.floats(-10.0, 10.0))
        times: list[float | None] = []
        for behind in draw(st.lists(st.none() | st.floats(0.0, 1.0), max_size=60)):
            at += rate
            times.append(None if behind is None else round(at - behind * delay, 2))
        if times and times[-1] is not None:
            times[-1] += jump  # such as by a clock that is wrong
        found[name] = times
    return found, delay


@given(disordered(), st.integers(1, 70), st.integers(1, 30), st.integers(1, 30))
def test_what_is_not_late_in_its_own_journal_is_not_late(
    drawn: tuple[Journals, float], limit: int, stretch: int, least: int
) -> None:
    journals, delay = drawn
    brokers = Brokers(journals, stretch)
    lines = Timelines(brokers.times)
    positions = dict.fromkeys(journals, 1)
    windows = Windows(5.0, delay)
    read: list[tuple[str, int]] = []
    before, timelines.LEAST = timelines.LEAST, least  # type: ignore[misc]
    try:
        while True:
            heads = {s: len(t) for s, t in journals.items() if positions[s] <= len(t)}
            left = sum(head + 1 - positions[s] for s, head in heads.items())
            if left == 0:
                break
            if left <= limit:
                taken = {s: head + 1 - positions[s] for s, head in heads.items()}
            else:
                waiting = {s: positions[s] for s in heads}
                asked = brokers.questions
                taken = lines.earliest(waiting, heads, limit)
                assert sum(taken.values()) == limit
                assert brokers.questions - asked <= (limit // least + 2) * len(heads)
                assert_earliest(journals, waiting, taken)
            batch = [
                (s, offset)
                for s, n in taken.items()
                for offset in range(positions[s], positions[s] + n)
            ]
            read += batch
            windows.add(t for s, o in batch if (t := journals[s][o - 1]) is not None)
            for stream, count in taken.items():
                positions[stream] += count
    finally:
        timelines.LEAST = before  # type: ignore[misc]
    assert sorted(read) == sorted((s, o + 1) for s, t in journals.items() for o in range(len(t)))
    assert len(brokers.asked) == len(set(brokers.asked))
    assert windows.late == 0
    assert windows.counts.total() == sum(t is not None for ts in journals.values() for t in ts)


@given(disordered(), st.integers(1, 200), st.integers(1, 70), st.integers(1, 30))
def test_as_many_are_taken_as_fit_into_the_bytes(
    drawn: tuple[Journals, float], most: int, limit: int, least: int
) -> None:
    journals, delay = drawn
    lines = Timelines(Brokers(journals, 7).times, sized=True)
    positions = dict.fromkeys(journals, 1)
    windows = Windows(5.0, delay)
    before, timelines.LEAST = timelines.LEAST, least  # type: ignore[misc]

    def size(taken: dict[str, int]) -> int:
        return sum(
            size_of(offset)
            for s, count in taken.items()
            for offset in range(positions[s], positions[s] + count)
            if journals[s][offset - 1] is not None
        )

    try:
        while heads := {s: len(t) for s, t in journals.items() if positions[s] <= len(t)}:
            waiting = {s: positions[s] for s in heads}
            left = sum(head + 1 - positions[s] for s, head in heads.items())
            taken = lines.within(waiting, heads, limit, most)
            count = sum(taken.values())
            assert 1 <= count <= min(limit, left)
            assert size(taken) <= most or count == 1
            if count < min(limit, left):
                assert size(lines.earliest(waiting, heads, count + 1)) > most
            batch: list[float | None] = []
            for stream, n in taken.items():
                batch += journals[stream][positions[stream] - 1 : positions[stream] - 1 + n]
                positions[stream] += n
            windows.add(t for t in batch if t is not None)
    finally:
        timelines.LEAST = before  # type: ignore[misc]
    assert windows.counts.total() == sum(t is not None for ts in journals.values() for t in ts)


def assert_earliest(journals: Journals, waiting: dict[str, int], taken: dict[str, int]) -> None:
    """Nothing is left that ranks lower than what was taken.

    What was there before reading came here may count, but need not.
    """
    taken_ranks, left_ranks = [], []
    for stream, at in waiting.items():
        times = [-inf if time is None else time for time in journals[stream]]
        taken_ranks += accumulate(times[at - 1 : at - 1 + taken[stream]], max)
        left_ranks += list(accumulate(times, max))[at - 1 + taken[stream] :]
    assert min(left_ranks, default=inf) >= max(taken_ranks)


def test_a_million_events_of_one_time_are_read_in_batches() -> None:
    journals: Journals = {"a": [5.0] * 1_000_000, "b": [4.0, 5.0, 6.0], "c": [5.0] * 10}
    brokers = Brokers(journals, 100_000)
    lines = Timelines(brokers.times)
    heads = {stream: len(times) for stream, times in journals.items()}
    first = lines.earliest(dict.fromkeys(journals, 1), heads, 1_000)
    assert (first["b"], first["c"]) == (2, 10)
    assert sum(first.values()) == 1_000
    second = lines.earliest({s: 1 + n for s, n in first.items() if s != "c"}, heads, 1_000)
    assert second == {"a": 1_000, "b": 0}
    assert brokers.questions <= 6
    assert lines.earliest({"a": 999_999, "b": 3}, heads, 2) == {"a": 2, "b": 0}


def test_times_that_are_no_numbers_of_this_world_are_ranked() -> None:
    journals: Journals = {"a": [1.0, inf, 2.0, 3.0], "b": [-inf, 1.0, 9.0, 1.5]}
    lines = Timelines(Brokers(journals, 2).times)
    assert lines.earliest({"a": 1, "b": 1}, {"a": 4, "b": 4}, 5) == {"a": 1, "b": 4}
    assert lines.earliest({"a": 2, "b": 5}, {"a": 4, "b": 4}, 2) == {"a": 2, "b": 0}
