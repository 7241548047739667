"""Events per second on the stock workload, every engine in one run, every match checked."""

from __future__ import annotations

from collections.abc import Mapping

from engines import Engine, Pairs, same_matches
from measure.clock import race, within
from workloads import EVENTS_USED, KNOWN_MATCHES, Workload
from yardstick import Yardstick


class WrongAnswer(Exception):
    """An engine is fast and wrong."""


def race_arrow(
    index: Engine, yardstick: Yardstick, workload: Workload, budget: float
) -> tuple[Pairs, dict[str, dict[str, float]]]:
    """The engines that take Arrow columns, in turns; encoding is included."""
    batch = workload.batch
    found = index.match_batch(batch)
    expected = KNOWN_MATCHES.get(len(workload.constraints))
    if batch.num_rows == EVENTS_USED and expected is not None:
        _check("Index", len(found[0]) == expected, f"{len(found[0])} matches, not {expected}")
    _check("Yardstick", same_matches(yardstick.match_batch(batch), found, batch.num_rows))
    best = race(
        {
            "Index": lambda: index.match_batch(batch),
            "Yardstick": lambda: yardstick.match_batch(batch),
        },
        budget,
    )
    return found, {
        name: rates(batch.num_rows, len(found[0]), seconds) for name, seconds in best.items()
    }


def time_slow(
    engines: Mapping[str, Engine], workload: Workload, found: Pairs, budget: float
) -> dict[str, dict[str, float]]:
    """The engines that take events one by one: as many as they finish within the budget."""
    results = {}
    for name, engine in engines.items():
        count, seconds, pairs = within(
            lambda n, engine=engine: engine.match_batch(workload.events[:n]),  # type: ignore[misc]
            len(workload.events),
            budget,
        )
        _check(name, same_matches(pairs, found, count))
        results[name] = rates(count, len(pairs[0]), seconds)
    return results


def rates(events: int, matches: int, seconds: float) -> dict[str, float]:
    """What a table says about one engine."""
    return {
        "events": events,
        "matches": matches,
        "seconds": seconds,
        "events_per_s": events / seconds,
        "matches_per_s": matches / seconds,
    }


def _check(name: str, right: bool, what: str = "not the same matches as Index") -> None:
    if not right:
        raise WrongAnswer(f"{name}: {what}")
