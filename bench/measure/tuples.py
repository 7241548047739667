"""Position against name (R-02.05): the same quotes as tuples and as records.

Templates test positions for an exact value, a prefix or a type, so the subscriptions are reduced
to what a template can say: equality and prefix. A template also fixes the length of the tuple.
"""

from __future__ import annotations

from typing import Any, Final

from engines import filled
from measure.clock import race
from measure.throughput import WrongAnswer, rates
from profiles import Profile
from stentor.filters import Filter
from stentor.filters.addressing import Prefix, template
from stentor.filters.addressing.tuples import tuple_attributes
from workloads import Constraints, Workload, stock

FIELDS: Final = ("type", "symbol", "exchange", "sector", "price", "volume", "change")
POSITION: Final = {name: i for i, name in enumerate(FIELDS)}


def measure_tuples(profile: Profile) -> dict[str, Any]:
    """Both forms in turns, in the index and by brute force."""
    quotes = stock(profile.shape_filters, profile.shape_events)
    plain = [[c for c in f if c[1] in ("=", "prefix")] for f in quotes.constraints]
    records = Workload("records", "by name", plain, quotes.events)
    tuples = Workload(
        "tuples",
        "by position",
        plain,
        [tuple_attributes(tuple([event[name] for name in FIELDS])) for event in quotes.events],
    )
    forms = {
        "records": (records, [Filter(text) for text in records.texts()]),
        "tuples": (tuples, [_template(constraints) for constraints in plain]),
    }
    result: dict[str, Any] = {"filters": len(plain)}
    for engine_name in ("Index", "BruteForce"):
        runs: dict[str, Any] = {}
        counts: dict[str, int] = {}
        events = len(quotes.events) if engine_name == "Index" else 20
        for form, (workload, filters) in forms.items():
            engine = filled(engine_name, filters)
            given: Any = workload.batch if engine_name == "Index" else workload.events[:events]
            counts[form] = len(engine.match_batch(given)[0])
            runs[form] = lambda engine=engine, given=given: engine.match_batch(given)
        if counts["records"] != counts["tuples"]:
            raise WrongAnswer(f"{engine_name}: {counts} matches differ between the forms")
        best = race(runs, profile.slow_budget)
        result[engine_name] = {
            form: rates(events, counts[form], seconds) for form, seconds in best.items()
        }
    return result


def _template(constraints: Constraints) -> Filter:
    fields: list[Any] = [...] * len(FIELDS)
    for name, operator, value in constraints:
        fields[POSITION[name]] = Prefix(value) if operator == "prefix" else value
    return template(*fields)
