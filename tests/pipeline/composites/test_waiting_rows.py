"""Rows that wait: their order, what is late, and what happens when too many wait."""

import pyarrow as pa
import pytest

from stentor.composite import Limits
from stentor.errors import DetectorFull
from stentor.pipeline.composites.waiting_rows import HIGH, WaitingRows


def rows(**times: int | None) -> pa.RecordBatch:
    return pa.record_batch(
        {"x": pa.array(list(times)), HIGH: pa.array(list(times.values()), pa.int64())}
    )


def taken(waiting: WaitingRows, before: int) -> list[str]:
    batch = waiting.take(before)
    return [] if batch is None else batch.column("x").to_pylist()  # type: ignore[no-any-return]


def test_they_are_taken_in_their_order_once() -> None:
    waiting = WaitingRows(Limits())
    waiting.add(rows(c=30, a=10))
    waiting.add(rows(b=20, d=20))
    assert (taken(waiting, 10), taken(waiting, 21)) == ([], ["a", "b", "d"])
    again = WaitingRows(Limits(), waiting.dump(), waiting.taken)
    again.add(rows(late=20, e=21))
    assert (again.late, again.first) == (1, 21)
    assert taken(again, 99) == ["e", "c"]
    assert (again.dump(), again.first, taken(again, 99)) == (None, None, [])


def test_time_does_not_go_back() -> None:
    waiting = WaitingRows(Limits())
    assert taken(waiting, 50) == taken(waiting, 40) == []
    waiting.add(rows(a=45, b=50))
    assert (waiting.late, taken(waiting, 51)) == (1, ["b"])


def test_one_without_a_time_is_not_kept_back() -> None:
    waiting = WaitingRows(Limits(), None, 7)
    waiting.add(rows(a=None))
    assert (waiting.late, taken(waiting, 8)) == (0, ["a"])


def test_too_many_are_taken_before_their_time_or_refused() -> None:
    waiting = WaitingRows(Limits(waiting=2))
    waiting.add(rows(a=1, b=5, c=5, d=6, e=7, f=9))
    # Those of one moment go together.
    assert taken(waiting, 2) == ["a", "b", "c", "d"]
    assert (waiting.forced, waiting.taken) == (2, 7)
    waiting.add(rows(late=6))
    assert waiting.late == 1
    strict = WaitingRows(Limits(waiting=1, when_full="raise"))
    strict.add(rows(a=1, b=5))
    with pytest.raises(DetectorFull, match="more than 1 events wait"):
        strict.take(0)
