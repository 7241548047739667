"""What the live service is meant to reach, and what a run has found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from figures import duration, size, times
from tables import Results, Table

#: The least ratio to Mosquitto by filters of others.
TO_MOSQUITTO = {0: 3.0, 10_000: 1.5}
#: The most that SQLite's own inserts may be ahead.
SQLITE_AHEAD = 3.0
#: The part of a durable subscriber's throughput that settling one by one may cost.
SETTLING = 0.2
MEDIAN_LATENCY_US = 1_000.0
IDLE_CLIENTS = 10_000
IDLE_BYTES = 2**30
#: What connections that are gone may not leave behind, and how much memory varies without a cause.
NOTHING_LEFT = ("clients", "subscriptions", "descriptors")
MEMORY_NOISE = 0.05


class Goal(NamedTuple):
    """One of them."""

    name: str
    wanted: str
    found: str
    met: bool


def goals_table(results: Results) -> Table:
    """All goals that the results say something about."""
    table = Table("Goals", ["Goal", "Wanted", "Measured", "Met"])
    for goal in goals(results):
        table.rows.append([goal.name, goal.wanted, goal.found, "yes" if goal.met else "no"])
    return table


def goals(results: Results) -> Iterator[Goal]:
    for row in results.get("throughput", ()):
        least = TO_MOSQUITTO.get(row["filters"])
        found = row["prepared"]
        if least is not None and "ratio" in found:
            held = f", {row['filters']:,} filters of others" if row["filters"] else ""
            yield Goal(
                f"one to one to Mosquitto, at most once{held}",
                f"at least {times(least)}",
                f"{times(found['ratio'])}; {times(found['processor_ratio'])} by processor time",
                found["ratio"] >= least,
            )
    if latency := results.get("latency"):
        found, bare = latency[0]["median_us"], latency[-1]["median_us"]
        yield Goal(
            "median latency, at most once",
            f"below {duration(MEDIAN_LATENCY_US)}",
            f"{duration(found)}; loopback alone {duration(bare)}",
            found < MEDIAN_LATENCY_US,
        )
    if durability := results.get("durability"):
        found = durability["acknowledged"][0]
        name = f"SQLite's inserts to {found['way']}"
        yield _most(name, SQLITE_AHEAD, found["sqlite_to_rate"], times)
        confirmed, settled = (row["rate"] for row in durability["settled"])
        lost = 1 - settled / confirmed
        yield Goal(
            "settling one by one, of a durable subscriber's throughput",
            f"at most {SETTLING:.0%}",
            f"{lost:.0%}",
            lost <= SETTLING,
        )
    clients = results.get("clients")
    if clients and clients["idle"]["clients"] >= IDLE_CLIENTS:
        idle = clients["idle"]
        yield _most(f"{idle['clients']:,} idle clients", IDLE_BYTES, idle["connected"], size)
    if clients:
        moved = clients["coming_and_going"]
        before, after = moved["before"], moved["after"]
        left = [f"{after[what] - before[what]} {what}" for what in NOTHING_LEFT]
        grown = after["resident_bytes"] / before["resident_bytes"] - 1
        yield Goal(
            f"left behind by {moved['connects']:,} connections",
            f"nothing, memory within {MEMORY_NOISE:.0%}",
            f"{', '.join(left)}, {grown:+.1%} memory",
            all(after[what] == before[what] for what in NOTHING_LEFT) and grown <= MEMORY_NOISE,
        )


def _most(name: str, most: float, found: float, shown: Callable[[float], str]) -> Goal:
    return Goal(name, f"below {shown(most)}", shown(found), found < most)
