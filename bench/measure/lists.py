"""Filters over lists of records against flat ones that find the same.

An order has lines. Once each line is a notification of its own, and the filters are flat; once the
lines are a list in the order, and the filters ask for some line. Both find the same lines. Orders
have one line, which costs the list the most, and three.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from measure.clock import race
from measure.throughput import WrongAnswer
from profiles import Profile
from stentor.filters import Filter
from stentor.matching import Index
from stentor.model import Notification, decode_headers, encode_batch

FILTERS: Final = 10_000
ORDERS: Final = 4_096
BATCH: Final = 256
PRODUCTS: Final = 2_000


def measure_lists(profile: Profile) -> dict[str, Any]:
    """For orders of one line and of three: seconds for each order, flat and as a list."""
    random = Random(1)
    asked = [(f"P{random.randrange(PRODUCTS)}", random.randrange(50)) for _ in range(FILTERS)]
    flat = "sku = '{}' and quantity > {}"
    listed = "any line in lines: line.sku = '{}' and line.quantity > {}"
    engines = {
        form: Index((i, Filter(text.format(*a))) for i, a in enumerate(asked))
        for form, text in (("flat", flat), ("lists", listed))
    }
    for engine in engines.values():
        engine.compact()
    result: dict[str, Any] = {"filters": FILTERS}
    for lines in (1, 3):
        orders = [
            [{"sku": f"P{p}", "quantity": random.randrange(60)} for p in products]
            for products in (random.sample(range(PRODUCTS), lines) for _ in range(ORDERS))
        ]
        events = {
            "flat": [Notification(line) for order in orders for line in order],
            "lists": [Notification({"lines": order}) for order in orders],
        }
        batches = {
            form: _batches(
                decode_headers(encode_batch(each)), BATCH * (lines if form == "flat" else 1)
            )
            for form, each in events.items()
        }
        counts = {form: _count(engines[form], batches[form]) for form in engines}
        if counts["flat"] != counts["lists"]:
            raise WrongAnswer(f"{counts} matches differ between the forms")
        runs = {
            form: lambda engine=engine, given=batches[form]: _count(engine, given)
            for form, engine in engines.items()
        }
        best = race(runs, profile.slow_budget)
        result[str(lines)] = {form: seconds / ORDERS for form, seconds in best.items()}
    return result


def _batches(events: list[Any], size: int) -> list[list[Any]]:
    return [events[i : i + size] for i in range(0, len(events), size)]


def _count(engine: Index[int], batches: list[list[Any]]) -> int:
    return sum(len(engine.match_batch(batch)[0]) for batch in batches)
