"""The results as tables, once for the terminal and the documentation alike. Ratios come first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from figures import duration, rate, seconds, size, times

#: What a run measured, as it stands in the JSON file.
Results = dict[str, Any]


@dataclass
class Table:
    """A title, what to know about it, and rows of texts."""

    title: str
    header: list[str]
    note: str = ""
    rows: list[list[str]] = field(default_factory=list)


def tables_of(results: Results) -> list[Table]:
    """All tables that the results have something for."""
    tables: list[Table] = []
    if stock := results.get("stock"):
        tables += [
            _throughput(stock),
            _side_by_side(stock),
            _loading(stock),
            _latency(stock),
            _fresh(stock),
            _updates(stock),
            _pauses(stock),
        ]
    if shapes := results.get("shapes"):
        tables.append(_shapes(shapes))
    if sweep := results.get("sweep"):
        tables.append(_sweep(sweep))
    if tuples := results.get("tuples"):
        tables.append(_tuples(tuples))
    if lists := results.get("lists"):
        tables.append(_lists(lists))
    return tables


def _throughput(stock: list[dict[str, Any]]) -> Table:
    table = Table(
        "Index against the yardstick, stock quotes",
        [
            "Filters",
            "Ratio",
            "Index, events/s",
            "Index, matches/s",
            "Yardstick, events/s",
            "Matches, exact",
        ],
        "match_batch of 20,000 events from Arrow columns, encoding included, one core; "
        "both in turns, best turn of each.",
    )
    for row in stock:
        index, yardstick = row["engines"]["Index"], row["engines"]["Yardstick"]
        table.rows.append(
            [
                f"{row['filters']:,}",
                times(row["ratio"]),
                rate(index["events_per_s"]),
                rate(index["matches_per_s"]),
                rate(yardstick["events_per_s"]),
                f"{row['matches']:,}",
            ]
        )
    return table


def _side_by_side(stock: list[dict[str, Any]]) -> Table:
    table = Table(
        "Every engine side by side, stock quotes",
        ["Filters", "Engine", "To brute force", "Events/s", "Matches/s", "Events measured"],
        "BruteForce and Counting take dictionaries instead of Arrow columns, only as many events "
        "as they finish in the time given, and no larger sizes than shown.",
    )
    for row in stock:
        brute = row["engines"].get("BruteForce")
        for name, engine in row["engines"].items():
            table.rows.append(
                [
                    f"{row['filters']:,}",
                    name,
                    times(engine["events_per_s"] / brute["events_per_s"]) if brute else "–",
                    rate(engine["events_per_s"]),
                    rate(engine["matches_per_s"]),
                    f"{engine['events']:,}",
                ]
            )
    return table


def _loading(stock: list[dict[str, Any]]) -> Table:
    table = Table(
        "Loading from text, and memory",
        [
            "Filters",
            "Engine",
            "Total",
            "Per filter",
            "Parse",
            "Add",
            "Compile",
            "Process growth",
            "Own count",
        ],
        "The index compiles in the background while it is filled; Compile is what was left to do "
        "after the last filter. The yardstick starts from parsed constraint lists.",
    )
    for row in stock:
        for name, cost in row["load"].items():
            table.rows.append(
                [
                    f"{row['filters']:,}",
                    name,
                    seconds(cost["total_s"]),
                    seconds(cost["total_s"] / cost["filters"]),
                    seconds(cost.get("parse_s")),
                    seconds(cost.get("add_s")),
                    seconds(cost["compile_s"]),
                    size(max(0, cost["rss_growth"])),
                    size(cost.get("own_count")),
                ]
            )
    return table


def _latency(stock: list[dict[str, Any]]) -> Table:
    table = Table(
        "One event at a time, stock quotes",
        ["Filters", "Engine", "Median", "99th percentile", "Events measured"],
        "match of one dictionary.",
    )
    for row in stock:
        for name, times_ in row["latency"].items():
            table.rows.append(
                [
                    f"{row['filters']:,}",
                    name,
                    duration(times_["median_us"]),
                    duration(times_["p99_us"]),
                    f"{times_['count']:,}",
                ]
            )
    return table


def _fresh(stock: list[dict[str, Any]]) -> Table:
    table = Table(
        "Matching while filters come and go, stock quotes",
        ["Filters", "Settled, events/s", "First batch", "Next batches", "1", "100", "1,000"],
        "match_batch of 20,000 events, by processor time; the shares are of the settled index, in "
        "which everything is joined, and which takes turns with the other. The first batch comes "
        "right after the last filter was added and the next ones right after it; the numbers are "
        "filters replaced before each batch.",
    )
    for row in stock:
        if "fresh" in row:
            fresh = row["fresh"]
            states = [fresh["first"], fresh["after"], *fresh["changing"].values()]
            table.rows.append(
                [
                    f"{row['filters']:,}",
                    rate(fresh["settled"]),
                    *(f"{100 * state:.0f} %" for state in states),
                ]
            )
    return table


def _updates(stock: list[dict[str, Any]]) -> Table:
    table = Table(
        "Changing one filter among many",
        [
            "Filters",
            "Mean, all settled",
            "Add: mean",
            "99th",
            "longest",
            "Remove: mean",
            "99th",
            "longest",
            "Updates",
        ],
        "Adds and removals alternate. The first mean includes waiting until the background work "
        "that they caused is done.",
    )
    for row in stock:
        updates = row["updates"]
        add, remove = updates["add"], updates["remove"]
        spreads = [
            duration(part[what])
            for part in (add, remove)
            for what in ("mean_us", "p99_us", "max_us")
        ]
        count = add["count"] + remove["count"]
        table.rows.append(
            [
                f"{row['filters']:,}",
                duration(updates["settled_mean_us"]),
                *spreads,
                f"{count:,}",
            ]
        )
    return table


def _pauses(stock: list[dict[str, Any]]) -> Table:
    table = Table(
        "Matching beside changes: batches of 256 events in a second thread",
        [
            "Filters",
            "Rebuild takes",
            "Alone: median",
            "longest",
            "Beside updates: median",
            "longest",
            "Beside rebuild: median",
            "longest",
        ],
        "Longest is the longest pause a reader sees. Two threads share one interpreter and the "
        "machine, so the times alone say how much of that is noise.",
    )
    for row in stock:
        pauses = row["pauses"]
        table.rows.append(
            [f"{row['filters']:,}", seconds(pauses["rebuild_s"])]
            + [
                duration(pauses[phase][what])
                for phase in ("idle", "updates", "rebuild")
                for what in ("median_us", "max_us")
            ]
        )
    return table


def _shapes(shapes: list[dict[str, Any]]) -> Table:
    table = Table(
        "Other workloads, most without any equality test",
        [
            "Workload",
            "Filters",
            "To brute force",
            "To counting",
            "Index, events/s",
            "Matches/event",
            "Matches/s",
            "A tenth of the filters, events/s",
        ],
    )
    for row in shapes:
        engines = row["engines"]
        index = engines["Index"]
        table.rows.append(
            [
                f"{row['name']}: {row['about']}",
                f"{row['filters']:,}",
                times(row["speedup"]),
                times(index["events_per_s"] / engines["Counting"]["events_per_s"]),
                rate(index["events_per_s"]),
                rate(row["matches_per_event"]),
                rate(index["matches_per_s"]),
                rate(row["tenth"]["events_per_s"]),
            ]
        )
    return table


def _sweep(sweep: list[dict[str, Any]]) -> Table:
    table = Table(
        f"Sweep: share of equality tests, sharing of tests ({sweep[0]['filters']:,} filters)",
        [
            "Equality",
            "Shared",
            "Index to brute force",
            "Counting to brute force",
            "Index, µs/event",
            "Counting, µs/event",
            "Distinct tests",
            "Matches/event",
        ],
    )
    for row in sweep:
        rates = {name: engine["events_per_s"] for name, engine in row["engines"].items()}
        table.rows.append(
            [
                f"{row['equality']:.0%}",
                f"{row['sharing']:.0%}",
                times(rates["Index"] / rates["BruteForce"]),
                times(rates["Counting"] / rates["BruteForce"]),
                f"{1e6 / rates['Index']:.2f}",
                f"{1e6 / rates['Counting']:.1f}",
                f"{row['predicates']:,}",
                rate(row["matches_per_event"]),
            ]
        )
    return table


def _tuples(tuples: dict[str, Any]) -> Table:
    table = Table(
        f"Position against name: the same quotes, {tuples['filters']:,} filters",
        ["Engine", "Tuples to records", "Tuples, events/s", "Records, events/s"],
        "Both are attributes to the engines; a template has one test more, that of the length.",
    )
    for name in ("Index", "BruteForce"):
        forms = {form: values["events_per_s"] for form, values in tuples[name].items()}
        table.rows.append(
            [
                name,
                times(forms["tuples"] / forms["records"]),
                rate(forms["tuples"]),
                rate(forms["records"]),
            ]
        )
    return table


def _lists(lists: dict[str, Any]) -> Table:
    table = Table(
        f"Lists of records against flat ones: the same lines, {lists['filters']:,} filters",
        ["Lines of an order", "List to flat", "As a list, orders/s", "Flat, orders/s"],
        "Flat, each line is a notification of its own; as a list, an order is one.",
    )
    for lines in ("1", "3"):
        seconds = lists[lines]
        table.rows.append(
            [
                lines,
                times(seconds["lists"] / seconds["flat"]),
                rate(1 / seconds["lists"]),
                rate(1 / seconds["flat"]),
            ]
        )
    return table
