"""Only ranges: intervals of very different widths, boxes, and bounds on one side."""

from __future__ import annotations

import random

from workloads.base import Workload


def intervals(filters: int, events: int) -> Workload:
    """One attribute. Widths from a millionth to a hundredth of the domain, all scales alike."""
    r = random.Random(11)
    constraints = [[["x", "between", _interval(r, -6, -2)]] for _ in range(filters)]
    data = [{"x": r.random()} for _ in range(events)]
    return Workload("intervals", "x between a and b", constraints, data)


def boxes(filters: int, events: int) -> Workload:
    """Two attributes, a range on each: sides from a thousandth to a third of the domain."""
    r = random.Random(12)
    constraints = [
        [["x", "between", _interval(r, -3, -0.5)], ["y", "between", _interval(r, -3, -0.5)]]
        for _ in range(filters)
    ]
    data = [{"x": r.random(), "y": r.random()} for _ in range(events)]
    return Workload("boxes", "a range on x and one on y", constraints, data)


def one_sided(filters: int, events: int) -> Workload:
    """Bounds on one side only, on three of four attributes, each true of 5 to 30 % of values."""
    r = random.Random(13)
    names = ["a", "b", "c", "d"]
    constraints = []
    for _ in range(filters):
        chosen = []
        for name in r.sample(names, 3):
            share = r.uniform(0.05, 0.3)
            above = r.random() < 0.5
            chosen.append([name, ">" if above else "<", 1 - share if above else share])
        constraints.append(chosen)
    data = [{name: r.random() for name in names} for _ in range(events)]
    return Workload("one-sided", "<, > on 3 of 4 attributes", constraints, data)


def _interval(r: random.Random, least: float, most: float) -> list[float]:
    """Its width is ten to a power between the two."""
    width = 10 ** r.uniform(least, most)
    low = r.random() * (1 - width)
    return [low, low + width]
