"""Lists that collections must share an element with, where an equality leads to the filter."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor import Filter
from stentor.matching import Index

TAGS = [f"t{i}" for i in range(8)]


def condition(random: Random, name: str) -> str:
    some = ", ".join(f"'{tag}'" for tag in random.sample(TAGS, random.randint(1, 4)))
    return random.choice(
        (
            f"{name} has '{random.choice(TAGS)}'",
            *[f"{name} overlaps ({some})"] * 3,
            f"({name} overlaps ({some}) or {name} is missing)",
            f"{name} overlaps ({some}, 3)",
            f"not {name} overlaps ({some})",
            f"{name} contains '1'",
        )
    )


def value(random: Random) -> Any:
    return random.choice(
        (
            *[random.sample(TAGS, random.randint(0, 4))] * 5,
            random.choice(TAGS),
            [*random.sample(TAGS, 2), 3],
            3,
            None,
        )
    )


@pytest.mark.spec("02/P1", "R-02.08")
@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1).map(Random))
def test_lists_beside_equalities_equal_brute_force(random: Random) -> None:
    held = {}
    for i in range(random.choice((20, 300))):
        names = random.sample(("c", "d"), random.randint(1, 2))
        text = " and ".join(condition(random, name) for name in names)
        held[i] = Filter(f"a = {random.randrange(3)} and {text}")
    index = Index(held.items(), background=False)
    if random.random() < 0.8:
        index.compact()
    events: list[dict[str, Any]] = [
        {"a": random.randrange(3), "c": value(random), "d": value(random)} for _ in range(12)
    ]
    expected = sorted(
        (row, key)
        for row, event in enumerate(events)
        for key, filter in held.items()
        if filter.matches(event)
    )
    rows, keys = index.match_batch(events)
    assert sorted(zip(rows.tolist(), keys.tolist(), strict=True)) == expected
    assert sorted((i, k) for i, e in enumerate(events) for k in index.match(e)) == expected


def test_lists_in_columns_of_a_large_batch() -> None:
    held = {i: Filter(f"a = 1 and c overlaps ('t{i}', 't{i + 1}')") for i in range(7)}
    index = Index(held.items())
    index.compact()
    events = [{"a": i % 2, "c": [TAGS[i % 8], "other"]} for i in range(4_000)]
    rows, keys = index.match_batch(pa.RecordBatch.from_pylist(events))
    expected = [(i, k) for i, e in enumerate(events) for k, f in held.items() if f.matches(e)]
    assert sorted(zip(rows.tolist(), keys.tolist(), strict=True)) == expected


@pytest.mark.parametrize("count", [10, 200])
def test_lists_of_few_and_of_many_candidates_of_one_notification(count: int) -> None:
    held = {i: Filter(f"b{i} = 1 and c overlaps ('t{i % 8}', 'other')") for i in range(count)}
    index = Index(held.items())
    index.compact()
    flags = {f"b{i}": 1 for i in range(count)}
    for tags in (None, "t1", ["t1", "t3"], ["other"], []):
        event = {**flags, "c": tags}
        expected = [key for key, filter in held.items() if filter.matches(event)]
        assert sorted(index.match(event)) == expected
