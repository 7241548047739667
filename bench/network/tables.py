"""The results of the routing measurements as tables."""

from __future__ import annotations

from typing import Any

from figures import duration, rate, seconds, size, times
from tables import Results, Table


def routing_tables(results: Results) -> list[Table]:
    """All tables that the results have something for."""
    tables: list[Table] = []
    for population in results.get("traffic", ()):
        tables.append(_traffic(population))
    if locality := results.get("locality"):
        tables.append(_locality(locality))
    if changes := results.get("changes"):
        tables += [
            _changes("Subscribing among many filters, stock quotes", "subscribe", changes),
            _changes("Unsubscribing among many filters, stock quotes", "unsubscribe", changes),
            _loads(changes),
        ]
    if survey := results.get("survey"):
        tables.append(_survey(survey))
    if replacement := results.get("replacement"):
        tables.append(_replacement(replacement))
    if scale := results.get("scale"):
        tables.append(_scale(scale))
    return tables


def _traffic(population: dict[str, Any]) -> Table:
    rows = population["rows"]
    table = Table(
        f"Traffic and tables: {population['name']}",
        [
            "Routing",
            "Subscribing",
            "Withdrawing half",
            "Advertising",
            "Remote entries",
            "Most at a broker",
            "Advertisement entries",
            "Notifications",
            "Deliveries",
        ],
        f"{population['about'].capitalize()}. 15 brokers in a binary tree, 150 clients, "
        f"{population['subscriptions']:,} subscriptions, {population['publications']:,} "
        "publications; messages over links, entries of all brokers. a × b: strategy a for "
        "subscriptions, b for advertisements.",
    )
    columns = (
        "subscribing",
        "withdrawing",
        "advertising",
        "remote_entries",
        "most_entries",
        "advertisement_entries",
        "notifications",
        "deliveries",
    )
    for row in rows:
        table.rows.append([row["configuration"], *(f"{row[column]:,}" for column in columns)])
    return table


def _locality(locality: list[dict[str, Any]]) -> Table:
    table = Table(
        "What advertisements save, by where publishers are",
        [
            "Leaves with feeds",
            "Subscription messages to those without",
            "Entries to those without",
            "Subscribing, without",
            "with",
            "Remote entries, without",
            "with",
            "Advertising",
        ],
        "Stock quotes under covering, without advertisements and with covering ones.",
    )
    for row in locality:
        plain, advertised = row["without"], row["with"]
        table.rows.append(
            [
                f"{row['places']} of {row['leaves']}",
                _percent(advertised["subscribing"] / plain["subscribing"]),
                _percent(advertised["remote_entries"] / plain["remote_entries"]),
                f"{plain['subscribing']:,}",
                f"{advertised['subscribing']:,}",
                f"{plain['remote_entries']:,}",
                f"{advertised['remote_entries']:,}",
                f"{advertised['advertising']:,}",
            ]
        )
    return table


def _changes(title: str, what: str, changes: list[dict[str, Any]]) -> Table:
    least = min(row["filters"] for row in changes)
    table = Table(
        title,
        [
            "Routing",
            "Filters held",
            f"To {least:,}",
            "Mean",
            "Routers alone",
            "Median",
            "99th percentile",
            "Longest",
            "Without the collector",
            "In the collector",
        ],
        "Processor time of the whole path: the client, the words it sends, the core that checks, "
        "routes and answers, and the neighbor's share. Routers alone is the mean time that two "
        "routers take for the same filters, with nothing around them.",
    )
    base = {row["routing"]: row[what]["mean_us"] for row in changes if row["filters"] == least}
    parts = ("mean_us", "routers_us", "median_us", "p99_us", "max_us")
    for row in changes:
        cost = row[what]
        table.rows.append(
            [
                row["routing"],
                f"{row['filters']:,}",
                times(cost["mean_us"] / base[row["routing"]]),
                *(duration(cost[part]) for part in parts),
                duration(cost["max_uncollected_us"]),
                _percent(cost["collector_share"]),
            ]
        )
    return table


def _loads(changes: list[dict[str, Any]]) -> Table:
    table = Table(
        "Filling an empty broker with filters, one by one",
        ["Routing", "Filters", "Per filter", "Total", "Announced to the neighbor", "Of all"],
    )
    for row in changes:
        table.rows.append(
            [
                row["routing"],
                f"{row['filters']:,}",
                duration(1e6 * row["load_s"] / row["filters"]),
                duration(1e6 * row["load_s"]),
                f"{row['announced']:,}",
                _percent(row["announced"] / row["filters"]),
            ]
        )
    return table


def _survey(survey: list[dict[str, Any]]) -> Table:
    first = survey[0]
    table = Table(
        "The survey's classes of routing, from counters",
        [
            "Routing",
            "Brokers storing a subscription",
            "Mean",
            "Brokers handling an event",
            "Mean",
            "Messages per subscription",
            "Messages per event",
            "Delivered",
            "Busiest to mean",
        ],
        f"{first['brokers']} brokers, {first['subscriptions']} subscriptions, {first['events']} "
        f"events, each wanted at {first['interested']:.1f} brokers.",
    )
    for row in survey:
        table.rows.append(
            [
                row["class"],
                row["storing"],
                rate(row["stored_at"]),
                row["handling"],
                rate(row["handled_at"]),
                rate(row["messages_per_subscription"]),
                rate(row["messages_per_event"]),
                f"{row['delivered']:.1%}",
                times(row["busiest"]),
            ]
        )
    return table


def _replacement(replacement: list[dict[str, Any]]) -> Table:
    table = Table(
        "Replacing a link while notifications are on their way",
        [
            "Routing, way",
            "Control messages",
            "Filters in them",
            "Lost",
            "Second copies",
            "Out of FIFO order",
            "Out of causal order",
            "Owed",
            "Runs without fault",
        ],
        "Control messages and filters are means over the runs; the others are sums.",
    )
    for row in replacement:
        table.rows.append(
            [
                f"{row['routing']}, {row['how']}",
                f"{row['control']:.1f}",
                f"{row['filters']:.1f}",
                *(f"{row[what]:,}" for what in ("lost", "duplicates", "fifo", "causal", "owed")),
                f"{row['spotless']} of {row['runs']}",
            ]
        )
    return table


def _scale(scale: list[dict[str, Any]]) -> Table:
    table = Table(
        "Whole networks in one process",
        [
            "Brokers",
            "Clients",
            "Publications",
            "Subscribing",
            "Entries",
            "Per entry",
            "Publishing",
            "Messages",
            "Per message",
            "Checking",
            "Peak memory",
        ],
        "Processor time. A binary tree, a stock filter for each client, covering. An entry is a "
        "filter that a broker was told by a neighbor; a message is a notification that a broker or "
        "a client was given.",
    )
    for row in scale:
        table.rows.append(
            [
                *(f"{row[what]:,}" for what in ("brokers", "clients", "publications")),
                seconds(row["subscribed_s"]),
                f"{row['entries']:,}",
                duration(row["entry_us"]),
                seconds(row["published_s"]),
                f"{row['messages']:,}",
                duration(row["message_us"]),
                seconds(row["checked_s"]),
                size(2**20 * row["peak_mb"]),
            ]
        )
    return table


def _percent(share: float) -> str:
    """
    >>> _percent(0.3456), _percent(0.012)
    ('35 %', '1.2 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"
