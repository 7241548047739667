"""Offsets: a batch is determined by its two ends, and limits are shared fairly."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from stentor.pipeline.source.offsets import Offset, Range, broker_of, ranges, shares

_names = st.sampled_from([f"b{i}#0" for i in range(6)])


@given(st.dictionaries(_names, st.integers(0, 10**6)), st.integers(1, 10**6) | st.none())
def test_shares_are_fair(available: dict[str, int], limit: int | None) -> None:
    taken = shares(available, limit)
    total = sum(available.values())
    assert sum(taken.values()) == (total if limit is None else min(limit, total))
    assert taken.keys() == available.keys()
    for stream, count in taken.items():
        assert 0 <= count <= available[stream]
    # Who wants more has as much as anybody, but for what a division leaves over.
    unsatisfied = [count for stream, count in taken.items() if count < available[stream]]
    if unsatisfied:
        assert max(taken.values()) - min(unsatisfied) <= len(taken)


def test_a_small_limit_still_makes_progress() -> None:
    assert sum(shares({"a": 5, "b": 5, "c": 5}, 1).values()) == 1


@given(
    st.dictionaries(_names, st.integers(1, 50), max_size=4),
    st.dictionaries(_names, st.integers(0, 60), max_size=4),
    st.integers(1, 20),
)
def test_ranges_cover_what_lies_between_once(
    start: dict[str, int], more: dict[str, int], size: int
) -> None:
    new = {stream: 3 for stream in more if stream not in start}
    end = start | {s: start.get(s, 3) + count for s, count in more.items()}
    planned = ranges(Offset(start), Offset(end, begin=new), size)
    wanted = {
        (stream, offset)
        for stream, count in more.items()
        for offset in range(start.get(stream, 3), start.get(stream, 3) + count)
    }
    found = [(r.stream, offset) for r in planned for offset in range(r.first, r.last + 1)]
    assert len(found) == len(wanted)
    assert set(found) == wanted
    assert all(r.last - r.first < size and r.broker == broker_of(r.stream) for r in planned)
    # Where journals are is a hint and changes nothing; nor does a journey through a checkpoint.
    again = [
        Offset.of(json.loads(json.dumps(offset.dump())))
        for offset in (Offset(start), Offset(end, begin=new))
    ]
    hinted = ranges(again[0], again[1], size, dict.fromkeys(end, "b:1"))
    assert [(r.stream, r.first, r.last) for r in hinted] == [
        (r.stream, r.first, r.last) for r in planned
    ]


def test_equal_offsets_have_equal_texts() -> None:
    one = Offset({"a#1": 1, "b#2": 2}, 0.0, {"a#1": 1, "b#2": 1})
    two = Offset({"b#2": 2, "a#1": 1}, 0.0, {"b#2": 1, "a#1": 1})
    assert json.dumps(one.dump()) == json.dumps(two.dump())
    assert json.dumps(Offset.of(one.dump()).dump()) == json.dumps(one.dump())


def test_a_range_is_what_spark_can_ship() -> None:
    import pickle

    part = Range("b1#0", "b1", 1, 9, "127.0.0.1:1")
    assert pickle.loads(pickle.dumps(part)) == part
