"""The buffers that bring events into order, against a model that knows everything."""

import itertools
import random

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.pipeline.steps.buffers import NO_TIME, Buffer

WITHIN = 10

#: When it happened, who published it as which one, and how much later it arrives.
Arrival = tuple[int, str, int]


def frame(arrivals: list[Arrival]) -> pd.DataFrame:
    rows = [
        {
            "micros": time,
            "producer": producer,
            "epoch": 0,
            "sequence": number,
            "event": f"{producer}{number}",
        }
        for time, producer, number in arrivals
    ]
    return pd.concat([Buffer.nothing(), pd.DataFrame(rows)]) if rows else Buffer.nothing()


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
        late += list(buffer.take(frame(batch))["event"])
        released += list(buffer.release(watermark, limit)["event"])
        # As in Spark, a batch moves the watermark for the next one.
        watermark = max(watermark, max(time for time, _, _ in batch) - WITHIN)
    released += list(buffer.release(2**60, limit)["event"])
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
    assert buffer.take(frame([(5, "slow", 0), (4, "slow", 1)])).empty
    assert list(buffer.release(1000, 10)["event"]) == ["slow0", "slow1"]
    assert buffer.take(frame([(3, "slow", 2)])).empty
    assert list(buffer.take(frame([(3, "slow", 0), (9, "slow", 3)]))["event"]) == ["slow0"]
    assert list(buffer.release(1000, 10)["event"]) == ["slow2", "slow3"]


def test_a_full_buffer_lets_the_first_go() -> None:
    buffer = Buffer()
    arrivals = [(time, "a", time) for time in range(10)]
    random.Random(1).shuffle(arrivals)
    buffer.take(frame(arrivals))
    assert list(buffer.release(NO_TIME, 4)["event"]) == [f"a{n}" for n in range(6)]
    assert len(buffer) == 4
    assert list(buffer.take(frame([(99, "a", 3)]))["event"]) == ["a3"]
