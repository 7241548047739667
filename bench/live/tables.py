"""The results of the live service's measurements as tables."""

from __future__ import annotations

from typing import Any

from figures import duration, rate, seconds, size, times
from live.goals import goals_table
from tables import Results, Table


def live_tables(results: Results) -> list[Table]:
    """All tables that the results have something for."""
    tables = [goals_table(results)]
    if throughput := results.get("throughput"):
        tables.append(_throughput(throughput))
    if durability := results.get("durability"):
        tables += [_acknowledged(durability["acknowledged"]), _journaled(durability["delivered"])]
        tables.append(_settled(durability["settled"]))
    if latency := results.get("latency"):
        tables.append(_latency(latency))
    if overlay := results.get("overlay"):
        tables.append(_overlay(overlay))
    if clients := results.get("clients"):
        tables += [_idle(clients["idle"]), _coming_and_going(clients["coming_and_going"])]
    return [table for table in tables if table.rows]


def _throughput(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "One publisher, one subscriber, at most once",
        [
            "Filters of others",
            "Load",
            "To Mosquitto",
            "Events/s",
            "Broker, µs/event",
            "Mosquitto's to it",
            "Loading a filter",
            "Broker's memory",
        ],
        "Broker: processor time of the broker's process, the kernel's part included. Prepared: "
        "frames made beforehand, deliveries counted, as Mosquitto's tools do. Library: from "
        "dictionaries to notifications by the client library; publisher and subscriber together "
        "are then slower than the broker.",
    )
    for row in rows:
        for name, title in (
            ("prepared", "prepared"),
            ("library", "library"),
            ("mosquitto", "Mosquitto, QoS 0"),
            ("nats", "NATS"),
        ):
            if name not in row:
                continue
            found, own = row[name], name in ("prepared", "library")
            table.rows.append(
                [
                    f"{row['filters']:,}",
                    title,
                    times(found["ratio"]) if "ratio" in found else "–",
                    rate(found["rate"]),
                    f"{found['processor_us']:.2f}",
                    times(found["processor_ratio"]) if "processor_ratio" in found else "–",
                    seconds(row["load_us"] and 1e-6 * row["load_us"]) if own else "–",
                    size(row["resident_bytes"]) if own else "–",
                ]
            )
    return table


def _acknowledged(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "Publications acknowledged when they are on disk",
        [
            "Way",
            "SQLite to it",
            "Events/s",
            "Broker, µs/event",
            "Events per commit",
            "SQLite, rows/s",
        ],
        "SQLite: executemany of the same bytes, write-ahead log, synchronous = FULL, as many rows "
        "to a commit as the broker had, on the same disk. It is ahead where the ratio is above 1.",
    )
    for row in rows:
        table.rows.append(
            [
                row["way"],
                times(row["sqlite_to_rate"]),
                rate(row["rate"]),
                f"{row['processor_us']:.2f}",
                f"{row['per_commit']:,.0f}",
                rate(row["sqlite_rate"]),
            ]
        )
    return table


def _journaled(found: dict[str, float]) -> Table:
    table = Table(
        "One publisher, one subscriber, journaled",
        ["Load", "Events/s", "Broker, µs/event", "Stretches read again"],
        "The publisher does not wait for the subscriber, so the subscriber falls behind and is "
        "served from the journal now and then, a stretch of 1,000 at a time.",
    )
    table.rows.append(
        [
            "library",
            rate(found["rate"]),
            f"{found['processor_us']:.2f}",
            f"{found['served']:,}",
        ]
    )
    return table


def _settled(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "Journaled, one publisher, one durable subscriber",
        ["Way", "Events/s", "Broker, µs/event"],
        "In turns. All is on the broker's disk at the end, also what the subscriber has said.",
    )
    for row in rows:
        table.rows.append([row["way"], rate(row["rate"]), f"{row['processor_us']:.2f}"])
    return table


def _latency(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "Latency through one broker at a tenth of the highest rate",
        ["Guarantee", "Median", "99th percentile", "Longest", "Events/s", "Events measured"],
        "From before publish to the subscriber's hands, one event at a time. Journaled: on disk "
        "before it is delivered. Loopback alone: as many bytes to a process that sends them back.",
    )
    for row in rows:
        spread = [duration(row[what]) for what in ("median_us", "p99_us", "max_us")]
        table.rows.append([row["name"], *spread, rate(row["achieved"]), f"{row['count']:,}"])
    return table


def _overlay(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "From many to many, over brokers in a line, at most once",
        [
            "Publishers to subscribers",
            "Brokers",
            "Filters of others",
            "Events/s",
            "Deliveries/s",
            "µs/event and broker",
        ],
        "By the client library. All brokers share one core, all clients the other.",
    )
    for row in rows:
        table.rows.append(
            [
                f"{row['publishers']} → {row['subscribers']}",
                str(row["brokers"]),
                f"{row['filters']:,}",
                rate(row["rate"]),
                rate(row["deliveries"]),
                f"{row['processor_us']:.2f}",
            ]
        )
    return table


def _idle(found: dict[str, Any]) -> Table:
    table = Table(
        f"{found['clients']:,} clients that do nothing",
        ["Clients", "Broker's memory", "Per client"],
    )
    before = found["before"]
    for name, count in (("none", before), *[(n, found[n]) for n in ("connected", "subscribed")]):
        each = size((count - before) / found["clients"]) if name != "none" else "–"
        title = {"subscribed": "connected, each with a subscription of its own"}.get(name, name)
        table.rows.append([title, size(count), each])
    return table


def _coming_and_going(found: dict[str, Any]) -> Table:
    table = Table(
        f"{found['connects']:,} clients that connect, subscribe and leave",
        ["When", "Clients", "Subscriptions", "Files and sockets", "Broker's memory"],
        f"{rate(found['rate'])} a second, {duration(found['processor_us'])} of the broker for "
        "each. Before: after 5,000 others, so that all is loaded that is needed.",
    )
    for when in ("before", "after"):
        row = found[when]
        table.rows.append(
            [
                when,
                f"{row['clients']:,}",
                f"{row['subscriptions']:,}",
                f"{row['descriptors']:,}",
                size(row["resident_bytes"]),
            ]
        )
    return table
