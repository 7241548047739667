"""Sets on either side: values that are excluded, lists of values, attributes with many values."""

from __future__ import annotations

import random
from typing import Any

from workloads.base import Workload


def unequal(filters: int, events: int) -> Workload:
    """Only `!=`, on 6 to 12 of twelve attributes with three values each."""
    r = random.Random(31)
    names = [f"a{i}" for i in range(12)]
    constraints: list[list[list[Any]]] = [
        [[name, "!=", r.randrange(3)] for name in r.sample(names, r.randint(6, 12))]
        for _ in range(filters)
    ]
    data = [{name: r.randrange(3) for name in names} for _ in range(events)]
    return Workload("unequal", "!= on 6 to 12 of 12 attributes", constraints, data)


def membership(filters: int, events: int) -> Workload:
    """`in` with 2 to 8 of 2,000 values."""
    r = random.Random(32)
    codes = [f"code{i}" for i in range(2000)]
    constraints = [[["code", "in", r.sample(codes, r.randint(2, 8))]] for _ in range(filters)]
    data = [{"code": r.choice(codes)} for _ in range(events)]
    return Workload("membership", "code in (2 to 8 of 2,000)", constraints, data)


def collections(filters: int, events: int) -> Workload:
    """Events carry 1 to 6 of 2,000 tags; filters want one of them, or any of three."""
    r = random.Random(33)
    tags = [f"tag{i}" for i in range(2000)]
    constraints = [
        [["tags", "has", r.choice(tags)]]
        if r.random() < 0.5
        else [["tags", "overlaps", r.sample(tags, 3)]]
        for _ in range(filters)
    ]
    data = [{"tags": r.sample(tags, r.randint(1, 6))} for _ in range(events)]
    return Workload("collections", "tags has / overlaps", constraints, data)
