"""Filters of very many shapes: no two attributes, operators or combinations are favored.

There are thirty attributes: twelve numbers, twelve texts, four truth values and two collections.
A filter tests a random subset of one to four of them with random operators that fit their types.
An event has each attribute with a probability of four fifths.
"""

from __future__ import annotations

import random
from typing import Any

from workloads.base import Workload

NUMBERS = [f"n{i}" for i in range(12)]
TEXTS = [f"t{i}" for i in range(12)]
FLAGS = [f"f{i}" for i in range(4)]
COLLECTIONS = ["c0", "c1"]
WORDS = [a + b + c for a in "abcd" for b in "efgh" for c in "ijkl"]
TAGS = [f"tag{i}" for i in range(40)]


def many_shapes(filters: int, events: int) -> Workload:
    """Random subsets of thirty attributes, random operators."""
    r = random.Random(41)
    names = [*NUMBERS, *TEXTS, *FLAGS, *COLLECTIONS]
    constraints = [
        [_constraint(r, name) for name in r.sample(names, r.randint(1, 4))] for _ in range(filters)
    ]
    data = []
    for _ in range(events):
        present = [name for name in names if r.random() < 0.8] or names[:1]
        data.append({name: _value(r, name) for name in present})
    return Workload("many shapes", "1 to 4 of 30 attributes, any operator", constraints, data)


def _constraint(r: random.Random, name: str) -> list[Any]:
    if name in NUMBERS:
        operator = r.choice(["=", "!=", "<", "<=", ">", ">=", "between", "in"])
        low = r.randrange(1000)
        if operator == "between":
            return [name, operator, [low, low + r.randrange(1, 100)]]
        return [name, operator, r.sample(range(1000), 3) if operator == "in" else low]
    if name in TEXTS:
        operator = r.choice(["=", "!=", "prefix", "suffix", "contains", "in", "<", ">="])
        if operator == "in":
            return [name, operator, r.sample(WORDS, 3)]
        word = r.choice(WORDS)
        part = {"prefix": word[:2], "suffix": word[1:], "contains": word[1]}
        return [name, operator, part.get(operator, word)]
    if name in FLAGS:
        return [name, "=", r.random() < 0.5]
    if r.random() < 0.5:
        return [name, "has", r.choice(TAGS)]
    return [name, "overlaps", r.sample(TAGS, 3)]


def _value(r: random.Random, name: str) -> Any:
    if name in NUMBERS:
        return r.randrange(1000)
    if name in TEXTS:
        return r.choice(WORDS)
    if name in FLAGS:
        return r.random() < 0.5
    return r.sample(TAGS, r.randint(1, 4))
