"""Filters that come and go: searches find them at once, beside each other and at full speed."""

import pickle
import threading
from collections.abc import Callable
from random import Random
from time import thread_time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, filter_of, filter_texts

import stentor.matching.index.index as index_module
import stentor.matching.index.search as search_module
from stentor import Filter
from stentor.matching import Index
from stentor.matching.index.segment import Segment
from stentor.matching.index.table import Table


def least(run: Callable[[], object], times: int = 7) -> float:
    """The processor time of the best try."""
    best = float("inf")
    for _ in range(times):
        before = thread_time()
        run()
        best = min(best, thread_time() - before)
    return best


@settings(max_examples=36)
@given(st.lists(filter_texts(), min_size=1, max_size=30), st.lists(events, min_size=4, max_size=8))
def test_recent_filters_are_found_as_compiled_ones_are(
    texts: list[str], published: list[dict[str, Any]]
) -> None:
    index: Index[int] = Index(background=False)
    held: dict[int, Filter] = {}
    for number, text in enumerate(texts):
        held[number] = filter_of(text)
        index.add(number, held[number])
        index.match({})  # now it is among the recent ones
    assert index.segment_count == 0
    for one in published:
        assert sorted(index.match(one)) == [k for k, f in held.items() if f.matches(one)]
    rows, keys = index.match_batch(published)
    assert sorted(zip(rows.tolist(), keys.tolist(), strict=True)) == [
        (row, k) for row, n in enumerate(published) for k, f in held.items() if f.matches(n)
    ]


@settings(max_examples=40)
@given(
    st.lists(filter_texts(), min_size=1, max_size=30),
    st.lists(events, min_size=1, max_size=6),
    st.integers(1, 400),
    st.sampled_from([1, 50, 1_000_000]),
    st.randoms(use_true_random=False),
)
def test_recent_filters_are_found_in_batches_of_any_size_by_row(
    texts: list[str], kinds: list[dict[str, Any]], size: int, room: int, random: Random
) -> None:
    index: Index[int] = Index(background=False)
    held = {number: filter_of(text) for number, text in enumerate(texts)}
    index.match({})
    for number, filter_ in held.items():
        index.add(number, filter_)
        index.match({})
    matches = [[k for k, f in held.items() if f.matches(kind)] for kind in kinds]
    drawn = [random.randrange(len(kinds)) for _ in range(size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "_RUNS_AT_MOST", room)
        rows, keys = index.match_batch([kinds[kind] for kind in drawn])
    assert rows.tolist() == sorted(rows.tolist())
    assert sorted(zip(rows.tolist(), keys.tolist(), strict=True)) == [
        (row, key) for row, kind in enumerate(drawn) for key in matches[kind]
    ]


def test_searches_go_on_while_attributes_and_constants_come() -> None:
    """What the recent filters look at grows all the time; what is always held is always found."""
    index: Index[int] = Index(background=False)
    always = [
        "x = 1",
        "s = 'a' and x < 5",
        "t has 'b'",
        "s contains 'a'",
        "s != 'z'",
        "n is missing",
    ]
    for i, text in enumerate(always):
        index.add(-1 - i, Filter(text))
    event = {"x": 1, "s": "a", "t": ["b"]}
    large = pa.RecordBatch.from_pylist([event] * 2_000)
    wanted = {-1 - i for i in range(len(always))}
    done = threading.Event()
    wrong: list[Any] = []

    def read(search: Callable[[], set[int]]) -> None:
        try:
            while not done.is_set():
                if search() != wanted:
                    wrong.append(search())
        except BaseException as error:
            wrong.append(error)

    searches: list[Callable[[], set[int]]] = [
        lambda: {k for k in index.match(event) if k < 0},
        lambda: {k for k in index.match_batch(large)[1].tolist() if k < 0},
    ]
    readers = [threading.Thread(target=read, args=(search,)) for search in searches]
    for reader in readers:
        reader.start()
    for i in range(3_000):
        text = (
            f"a{i} = {i}",
            f"s = 'q{i}' and x = {i}",
            f"t has 'q{i}'",
            f"s contains 'q{i}'",
            f"a{i} > 1 and x != {i}",
        )[i % 5]
        index.add(i, Filter(text))
        if i % 3 == 0:
            index.remove(i)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_a_fresh_filter_does_not_cost_the_speed_of_all() -> None:
    """Processor time of a batch with filters that just came, against everything compiled."""
    texts = []
    for i in range(12_000):
        rest = f"p >= {i % 97} and p <= {i % 97 + 9}" if i % 2 else f"v > {i}"
        texts.append(f"k = 'k{i % 500}' and {rest}")
    batch = pa.record_batch(
        {
            "k": [f"k{i % 700}" for i in range(20_000)],
            "p": [i % 101 for i in range(20_000)],
            "v": list(range(20_000)),
        }
    )
    index: Index[int] = Index(background=False)
    for i, text in enumerate(texts[:11_600]):
        index.add(i, Filter(text))
    index.match_batch(batch)
    assert index.segment_count == 1, "the first large search joins what was added"
    for i, text in enumerate(texts[11_600:]):
        index.add(20_000 + i, Filter(text))
    fresh = least(lambda: index.match_batch(batch))
    assert index.segment_count == 1
    index.compact()
    settled = least(lambda: index.match_batch(batch))
    assert fresh <= 1.8 * settled


def test_attributes_that_a_notification_does_not_have_cost_nothing() -> None:
    def time_one(names: int, recent: bool) -> float:
        index: Index[int] = Index(background=False)
        for i in range(names):
            index.add(i, Filter((f"a{i} = 1", f"a{i} > 0", f"a{i} prefix 'x'")[i % 3]))
            if recent:
                index.match({})
        if not recent:
            index.compact()
        event = {"a0": 1, "a1": 2, "a2": "xy", "other": 3}
        assert sorted(index.match(event)) == [0, 1, 2]
        rows = [event] * 50
        assert len(index.match_batch(rows)[0]) == 150
        return least(lambda: [index.match(event) for _ in range(50)])

    assert time_one(6_000, recent=False) <= 5 * time_one(60, recent=False)
    assert time_one(200, recent=True) <= 5 * time_one(20, recent=True)


@pytest.mark.slow
def test_compiling_many_names_takes_linear_time() -> None:
    def time_compiling(names: int) -> float:
        index = Index(((i, Filter(f"a{i} = 'x{i}'")) for i in range(names)), background=False)
        return least(index.compact, 1)

    time_compiling(100)
    assert time_compiling(8_000) <= 5 * 4 * max(time_compiling(2_000), 0.02)


@pytest.mark.parametrize("text", ["s = 'q{}' and x = 1", "a{} = 1", "t has 'q{}'", "s < 'q{}'"])
def test_what_removed_filters_looked_at_is_forgotten(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One filter changed again and again, beside some that stay: memory does not grow."""
    monkeypatch.setattr(index_module, "GROWING_LIMIT", 64)
    index: Index[int] = Index(((-1 - i, Filter(f"x = {i}")) for i in range(20)), background=False)

    def change(times: range) -> int:
        for i in times:
            index.add(0, Filter(text.format(i)))
            index.match({"x": 1})
            index.remove(0)
        index.compact()
        return index.memory.total

    before = change(range(500))
    assert change(range(500, 2_000)) <= before
    (held,) = index._held
    assert len(held.segment.axes) == 1
    assert not held.segment.rankings


def test_a_column_that_only_a_removed_filter_asks_for_may_have_any_type() -> None:
    batch = pa.record_batch({"d": pa.array([1], pa.time32("s")), "x": [1]})
    index: Index[str] = Index([("x", Filter("x = 1")), ("d", Filter("exists d"))])
    index.compact()
    index.remove("d")
    rows, keys = index.match_batch(batch)
    assert (rows.tolist(), keys.tolist()) == ([0], ["x"])


def test_a_full_table_is_searched_as_it_is_while_the_background_joins_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever fills it compiles nothing; a filter with very many boxes is compiled nevertheless."""
    monkeypatch.setattr(index_module, "AT_ONCE", 1_000)
    index: Index[int] = Index((i, Filter(f"x = {i}")) for i in range(2_000))
    batch = [{"x": i} for i in range(3_000)]
    index.match_batch(batch)
    compiled_by: list[threading.Thread] = []
    segment, go_on = index_module.Segment, threading.Event()

    def watched_segment(table: Table) -> Segment:
        compiled_by.append(threading.current_thread())
        if compiled_by[-1] is not threading.main_thread():
            go_on.wait()
        return segment(table)

    monkeypatch.setattr(index_module, "Segment", watched_segment)
    for i in range(2_000, 2_700):  # fills it twice, and the background has only begun with one
        index.add(i, Filter(f"x = {i}"))
        if not i % 10:
            index.remove(i)
            index.remove(i - 2_000)
    held = [i for i in range(2_700) if i % 10 or 700 <= i < 2_000]
    assert index.segment_count == 3
    for found in (index, pickle.loads(pickle.dumps(index))):
        assert sorted(found.match_batch(batch)[1].tolist()) == held
        assert [found.match({"x": i}) for i in (2_000, 2_001, 2_699)] == [[], [2_001], [2_699]]
    assert threading.main_thread() not in compiled_by
    several = " or ".join(f"x = {i} and y = {i}" for i in range(300))
    index.add(-1, Filter(several))
    assert threading.main_thread() in compiled_by
    assert sorted(index.match({"x": 299, "y": 299})) == [-1, 299]
    go_on.set()
    index.compact()
    assert index.segment_count == 1
    assert sorted(index.match_batch(batch)[1].tolist()) == held
    assert index._slots.taken == len(index)
