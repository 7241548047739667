"""Numbers and times where doubles run out: every engine is exact there, and says each match once.

All filters of an example are about one or two attributes and a handful of constants that lie close
to each other, so that several pieces of one filter, and pieces of different filters, meet at one
double. No filter but a disjunction may be found twice, so most examples have none: an index that
holds one drops all repetitions, also those that it should not have had.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf, nextafter
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import EDGES, ENGINES, engine_name

from stentor import Filter
from stentor.matching import Index
from stentor.matching.index.direct import select
from stentor.matching.protocol import Matcher
from stentor.matching.relations import FilterTable

Event = dict[str, Any]

_INT_MAX, _INT_MIN = 2**63 - 1, -(2**63)
randoms = st.integers(0, 2**32 - 1).map(Random)


def _near(number: float) -> list[float]:
    """The number and what lies beside it, as integers and as floats."""
    near = [float(number), nextafter(number, inf), nextafter(number, -inf)]
    if _INT_MIN <= number <= _INT_MAX:
        near += [n for n in range(int(number) - 2, int(number) + 3) if _INT_MIN <= n <= _INT_MAX]
    return near


def _numbers(random: Random) -> list[Any]:
    """A few numbers that are likely to share a double."""
    pool: list[float] = []
    for _ in range(random.randint(1, 3)):
        center = random.choice(
            (
                *EDGES,
                2 ** random.randint(50, 62),
                random.randint(_INT_MIN, _INT_MAX),
                -(10.0 ** random.randint(-320, 308)),
            )
        )
        pool += random.choices(_near(center), k=random.randint(3, 5))
    return pool


_FIRST, _LAST = (time.replace(tzinfo=UTC) for time in (datetime.min, datetime.max))
_YEAR_2255 = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=2**53)


def _times(random: Random) -> list[Any]:
    """Times in microseconds, which beyond the year 2255 share a double with their neighbors."""
    start = random.choice((_FIRST, _YEAR_2255, _LAST - timedelta(microseconds=8)))
    return [start + timedelta(microseconds=random.randint(0, 8)) for _ in range(4)]


def _written(value: Any) -> str:
    if isinstance(value, datetime):
        return f"time '{value.isoformat()}'"
    return f"number '{value!r}'" if isinstance(value, float) else repr(value)


def _condition(random: Random, pool: list[Any]) -> str:
    def some(count: int) -> list[str]:
        return [_written(value) for value in random.choices(pool, k=count)]

    name = random.choice("xxxy")
    kind = random.randrange(13)
    if kind < 6:
        return f"{name} {('=', '!=', '<', '<=', '>', '>=')[kind]} {some(1)[0]}"
    if kind < 8:
        low, high = some(2)
        return f"{name} {'not ' * (kind - 6)}between {low} and {high}"
    if kind < 12:
        return f"{name} {'not ' * (kind & 1)}in ({', '.join(some(random.randint(1, 5)))})"
    return f"{name} {random.choice(('is int', 'is float', 'is number', 'is missing'))}"


def _filters(random: Random, pool: list[Any]) -> dict[int, Filter]:
    """Nine and more: fewer new ones are never compiled."""
    texts = [
        " and ".join(_condition(random, pool) for _ in range(random.choice((1, 1, 2))))
        for _ in range(random.choice((9, 12, 30)))
    ]
    if random.randrange(10) == 0:
        texts.append(f"({texts[0]}) or ({texts[1]})")
    return {number: Filter(text) for number, text in enumerate(texts)}


def _events(random: Random, pool: list[Any]) -> list[Event]:
    rows = [random.choices([None, *pool, *pool], k=2) for _ in range(random.randint(4, 10))]
    return [{n: v for n, v in zip("xy", row, strict=True) if v is not None} for row in rows]


def _expected(held: dict[int, Filter], events: list[Event]) -> list[list[int]]:
    return [[key for key, filter in held.items() if filter.matches(event)] for event in events]


def _by_row(engine: Matcher[int], batch: Any, count: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for row, key in zip(*(array.tolist() for array in engine.match_batch(batch)), strict=True):
        found[row].append(key)
    return [sorted(keys) for keys in found]


def _holding(make: Callable[[], Matcher[int]], held: dict[int, Filter]) -> Matcher[int]:
    engine = make()
    for key, filter in held.items():
        engine.add(key, filter)
    if isinstance(engine, Index):
        engine.compact()
    return engine


@pytest.mark.spec("02/P1", "02/T9")
@pytest.mark.parametrize("make", ENGINES, ids=engine_name)
@settings(max_examples=36)
@given(random=randoms)
def test_every_engine_gives_each_match_once(
    make: Callable[[], Matcher[int]], random: Random
) -> None:
    pool = _numbers(random)
    held, events = _filters(random, pool), _events(random, pool)
    expected = _expected(held, events)
    engine = _holding(make, held)
    assert [sorted(engine.match(event)) for event in events] == expected
    assert _by_row(engine, events, len(events)) == expected
    for key, filter in held.items():
        assert select(filter, events) == [row for row, keys in enumerate(expected) if key in keys]


def _as_int(value: float) -> int | None:
    return int(value) if abs(value) <= _INT_MAX else None


def _as_single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


#: Arrow types, and a value as one of them, None if it has no such value.
ARROW_TYPES: list[tuple[pa.DataType, Callable[[float], float | None]]] = [
    (pa.int64(), _as_int),
    (pa.uint64(), lambda value: None if value < 0 else _as_int(value)),
    (pa.float64(), float),
    (pa.float32(), _as_single),
]


@pytest.mark.spec("02/P1", "02/T9")
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize(("arrow_type", "fitting"), ARROW_TYPES, ids=lambda v: str(v)[:7])
@settings(max_examples=25)
@given(random=randoms)
def test_arrow_columns_give_each_match_once(
    arrow_type: pa.DataType,
    fitting: Callable[[float], float | None],
    encoded: bool,
    random: Random,
) -> None:
    pool = _numbers(random)
    held = _filters(random, pool)
    rows = [{n: fitting(v) for n, v in event.items()} for event in _events(random, pool)]
    columns = {name: pa.array([row.get(name) for row in rows], arrow_type) for name in "xy"}
    if encoded:
        columns = {name: array.dictionary_encode() for name, array in columns.items()}
    events = [{n: v for n, v in row.items() if v is not None} for row in rows]
    index = _holding(Index, held)
    for copies in (1, 300):  # small batches are read in another way
        table = pa.concat_tables([pa.table(columns)] * copies).combine_chunks()
        found = _by_row(index, table.to_batches()[0], len(events) * copies)
        assert found == _expected(held, events) * copies


@pytest.mark.spec("R-02.08")
def test_nan_is_absent_also_where_numbers_are_ranked() -> None:
    held = {i: Filter(f"x {op} {2**60 + i}") for i, op in enumerate(("<", ">", "!=", "=") * 4)}
    index = _holding(Index, held)
    column = pa.array([float("nan"), None, 2.0**61])
    for copies in (1, 500):
        batch = pa.record_batch({"x": pa.concat_arrays([column] * copies)})
        expected = _expected(held, [{}, {}, {"x": 2.0**61}])
        assert _by_row(index, batch, 3 * copies) == expected * copies


@pytest.mark.spec("02/P1")
@pytest.mark.parametrize("make", ENGINES, ids=engine_name)
@settings(max_examples=40)
@given(random=randoms)
def test_times_far_away_are_exact(make: Callable[[], Matcher[int]], random: Random) -> None:
    pool = _times(random)
    held, events = _filters(random, pool), _events(random, pool)
    engine = _holding(make, held)
    expected = _expected(held, events)
    assert [sorted(engine.match(event)) for event in events] == expected
    columns = {n: pa.array([e.get(n) for e in events], pa.timestamp("us", "UTC")) for n in "xy"}
    for batch in (events, pa.record_batch(columns)) if make is Index else (events,):
        assert _by_row(engine, batch, len(events)) == expected


@pytest.mark.spec("02/P1")
@settings(max_examples=36)
@given(random=randoms)
def test_relations_lose_nothing(random: Random) -> None:
    pool = _numbers(random)
    held = _filters(random, pool)
    table: FilterTable[int] = FilterTable()
    for key, filter in held.items():
        table.add(key, filter)
    probe = Filter(_condition(random, pool))
    assert set(table.coverers(probe)) == {k for k, f in held.items() if f.covers(probe)}
    assert set(table.covered(probe)) == {k for k, f in held.items() if probe.covers(f)}
    assert set(table.overlapping(probe)) == {k for k, f in held.items() if f.overlaps(probe)}


@pytest.mark.parametrize("kind", ["interval", "below", "above", "scattered"])
def test_large_groups_of_far_numbers_equal_brute_force(kind: str) -> None:
    """Nanoseconds around one second, and intervals from nothing to beyond all doubles."""
    rng = np.random.default_rng(len(kind))
    second = 1_767_225_600_000_000_000

    def end() -> int:
        return second + int(rng.integers(0, 5_000))

    texts = {
        "interval": lambda: f"x between {end()} and {end() + int(2 ** rng.uniform(0, 12))}",
        "below": lambda: f"x <= {end()}",
        "above": lambda: f"x > {end()}.0",
        "scattered": lambda: rng.choice(
            [
                f"x not in ({end()}, {end()}, {end()}, 3)",
                f"x between {-(10.0 ** rng.uniform(0, 308))} and {10.0 ** rng.uniform(0, 308)}",
                f"x < number '{rng.choice(['inf', '1e308', '-1e308'])}'",
                f"x between -1.7e308 and {end()}",
            ]
        ),
    }
    held = {number: Filter(str(texts[kind]())) for number in range(3_000)}
    index = _holding(Index, held)
    events: list[Event] = [{"x": end()} for _ in range(6)]
    events += [{"x": float(end())}, {"x": 3}, {"x": inf}, {"x": -inf}, {"x": 1e307}, {"x": -0.0}]
    assert _by_row(index, events, len(events)) == _expected(held, events)
    assert [sorted(index.match(event)) for event in events] == _expected(held, events)
