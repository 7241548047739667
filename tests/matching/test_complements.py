"""Filters that leave values out, or ask for one side of one: many match, and exactly those."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor import Filter
from stentor.matching import Index
from stentor.matching.index import complements

VALUES: tuple[Any, ...] = (0, 1, 2, "x", "y", 5e-324, 2**60, 2**60 + 1, True, float("inf"))


def written(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, bool):
        return "true"
    return f"number '{value!r}'" if isinstance(value, float) else str(value)


def random_filter(random: Random, names: list[str], values: list[Any]) -> str:
    """Mostly values left out, or ends; sometimes intervals, other conditions, checks, either."""

    def one() -> str:
        return written(random.choice(values))

    def one_ordered() -> str:
        return written(random.choice([v for v in values if type(v) is not bool] or [3]))

    ends = random.choice((1, 12))

    def condition(name: str) -> str:
        numbers = [v for v in values if type(v) in (int, float)] or [3]
        listed = [written(v) for v in random.choices(numbers, k=random.randint(2, 20))]
        return random.choice(
            (
                *[f"{name} != {one()}"] * 8,
                f"{name} not in ({', '.join(listed)})",
                f"{name} not between 0 and {random.randint(1, 2)}",
                f"{name} != {one()} and {name} < 2",
                *[f"{name} {random.choice(('<', '<=', '>', '>='))} {one_ordered()}"] * ends,
                f"{name} between {written(min(numbers))} and {written(max(numbers))}",
                f"{name} not contains 'x'",
                f"exists {name}",
                f"{name} is missing",
            )
        )

    text = " and ".join(condition(n) for n in random.sample(names, random.randint(1, len(names))))
    if random.random() < 0.05:
        text = f"({text}) or {condition(names[0])}"
    return f"{text} and a0 != (a1)" if random.random() < 0.05 else text


@pytest.mark.spec("02/P1", "R-02.08")
@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1).map(Random))
def test_what_leaves_values_out_equals_brute_force(random: Random) -> None:
    names = [f"a{i}" for i in range(random.choice((2, 4, 12)))]
    values = random.sample(VALUES, random.choice((2, 3, 6)))
    count = random.choice((30, complements.LEAST, 130, 300))
    held = {i: Filter(random_filter(random, names, values)) for i in range(count)}
    index = Index(held.items(), background=False)
    index.compact()
    for key in random.sample(sorted(held), count // 5):
        index.remove(key)
        del held[key]
    events = [{n: random.choice(VALUES) for n in names if random.random() < 0.9} for _ in range(8)]
    for turn in range(2):  # also when the segment has been taken apart and put together again
        expected = sorted(
            (row, key)
            for row, event in enumerate(events)
            for key, filter in held.items()
            if filter.matches(event)
        )
        rows, keys = index.match_batch(events)
        assert sorted(zip(rows.tolist(), keys.tolist(), strict=True)) == expected
        assert sorted((i, k) for i, e in enumerate(events) for k in index.match(e)) == expected
        held[count + turn] = Filter("a0 != 1")
        index.add(count + turn, held[count + turn])
        index.compact()


def test_a_whole_run_is_one_step() -> None:
    """Filters beyond those that leave out what is said cost next to nothing."""
    held = {
        number: Filter(f"a not in ({3 * number}, {3 * number + 1}, {3 * number + 2}) and b != -1")
        for number in range(5_000)
    }
    index = Index(held.items(), background=False)
    index.compact()
    (segment,) = index._held_segments()
    assert 0 < segment.arrays.complements.nbytes < 100 * 5_000
    rows, keys = index.match_batch([{"a": 7_501, "b": 0}, {"a": 7_501}, {"a": 0, "b": -1}])
    assert np.all(rows == 0)
    assert sorted(keys.tolist()) == [number for number in range(5_000) if number != 2_500]
