"""The buffers that bring events into order, against a model that knows everything."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.pipeline.steps.buffers import NO_TIME, Buffer, Event

WITHIN = 10

#: When it happened, who published it as which one, and how much later it arrives.
Arrival = tuple[int, str, int]


def events(arrivals: list[Arrival]) -> list[Event]:
    return [(time, producer, 0, n, f"{producer}{n}") for time, producer, n in arrivals]


@st.composite
def histories(draw: st.DrawFn, delay: int = WITHIN) -> list[list[Arrival]]:
    """What several producers publish, as it arrives in batches, late by no more than `delay`."""
    arrivals = []
    for producer in "abc"[: draw(st.integers(1, 3))]:
        time = 0
        for number in range(draw(st.integers(0, 12))):
            time += draw(st.integers(0, 5))
            arrivals.append((time + draw(st.integers(0, delay)), (time, producer, number)))
    arrivals.sort()
    cuts = sorted(draw(st.lists(st.integers(0, len(arrivals)), max_size=5)))
    edges = [0, *cuts, len(arrivals)]
    found = [[each for _, each in arrivals[a:b]] for a, b in itertools.pairwise(edges)]
    return [batch for batch in found if batch]


def played(batches: list[list[Arrival]], limit: int = 1000) -> tuple[list[str], list[str]]:
    """What leaves the buffer in which order, and what is late; dumped and loaded on the way."""
    buffer, watermark = Buffer(), NO_TIME
    released: list[str] = []
    late: list[str] = []
    for batch in batches:
        buffer = Buffer.load(buffer.dump())
        late += buffer.take(events(batch))
        released += buffer.release(watermark, limit)
        # As in Spark, a batch moves the watermark for the next one.
        watermark = max(watermark, max(time for time, _, _ in batch) - WITHIN)
    released += buffer.release(2**60, limit)
    return released, late


@given(histories())
@pytest.mark.spec("01/T-9")
def test_what_comes_in_time_is_ordered(batches: list[list[Arrival]]) -> None:
    released, late = played(batches)
    everything = sorted(each for batch in batches for each in batch)
    assert released == [f"{producer}{number}" for _, producer, number in everything]
    assert late == []


@given(histories(delay=100), st.integers(1, 1000))
def test_nothing_is_lost_and_each_producer_is_in_order(
    batches: list[list[Arrival]], limit: int
) -> None:
    released, late = played(batches, limit)
    assert sorted([*released, *late]) == sorted(f"{p}{n}" for b in batches for _, p, n in b)
    for producer in "abc":
        numbers = [int(text[1:]) for text in released if text[0] == producer]
        assert numbers == sorted(numbers)


@given(histories(delay=0), st.data())
def test_a_producer_whose_clock_is_set_back_keeps_its_order(
    batches: list[list[Arrival]], data: st.DataObject
) -> None:
    moved = [
        [(time - data.draw(st.sampled_from((0, 0, 3, 50))), p, n) for time, p, n in batch]
        for batch in batches
    ]
    released, late = played(moved)
    for producer in "abc":
        numbers = [int(text[1:]) for text in released if text[0] == producer]
        assert numbers == sorted(numbers)
    assert len(released) + len(late) == sum(map(len, batches))


def test_old_events_of_a_silent_producer_are_not_late() -> None:
    buffer = Buffer()
    assert buffer.take(events([(5, "slow", 0), (4, "slow", 1)])) == []
    assert buffer.release(1000, 10) == ["slow0", "slow1"]
    assert buffer.take(events([(3, "slow", 2)])) == []
    assert buffer.take(events([(3, "slow", 0), (9, "slow", 3)])) == ["slow0"]
    assert buffer.release(1000, 10) == ["slow2", "slow3"]


def test_a_full_buffer_lets_the_first_go() -> None:
    buffer = Buffer()
    arrivals = [(time, "a", time) for time in range(10)]
    random.Random(1).shuffle(arrivals)
    buffer.take(events(arrivals))
    assert buffer.release(NO_TIME, 4) == [f"a{n}" for n in range(6)]
    assert len(buffer) == 4
    assert buffer.take(events([(99, "a", 3)])) == ["a3"]
