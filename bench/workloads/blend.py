"""Mixes for the sweeps: how many tests are equalities, and how many filters share a test.

Each filter has two tests on two of ten attributes. Values are integers below 10,000, small ones far
more often than large ones, in filters and in events alike, so that equalities do hold now and
then. A test is an equality or a range; with the probability `sharing` it is taken from a pool of a
hundred tests instead of being new.
"""

from __future__ import annotations

import random
from typing import Any

from workloads.base import Constraints, Workload

NAMES = [f"a{i}" for i in range(10)]
POOL_PER_NAME = 10


def blend(filters: int, events: int, *, equality: float, sharing: float) -> Workload:
    """Shares between 0 and 1."""
    r = random.Random(51)
    pool = {name: [_test(r, name, equality) for _ in range(POOL_PER_NAME)] for name in NAMES}
    constraints: list[Constraints] = [
        [
            r.choice(pool[name]) if r.random() < sharing else _test(r, name, equality)
            for name in r.sample(NAMES, 2)
        ]
        for _ in range(filters)
    ]
    data = [{name: _value(r) for name in NAMES} for _ in range(events)]
    about = f"{equality:.0%} equalities, {sharing:.0%} shared"
    return Workload("blend", about, constraints, data)


def _test(r: random.Random, name: str, equality: float) -> list[Any]:
    value = _value(r)
    if r.random() < equality:
        return [name, "=", value]
    return [name, "between", [value, value + r.randrange(1, 1000)]]


def _value(r: random.Random) -> int:
    return int(10_000 * r.random() ** 4)
