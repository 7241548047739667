"""Composite events: alarms that are raised while events arrive, and found again on Spark.

A broker gets logins, readings of machines and people entering rooms. A subscriber feeds what
arrives to a detector, which tells of each composite event at once. Then Spark reads the journal of
the broker and looks for the same patterns. The ids of composite events are made of what was
detected, so both sides can be compared one by one. Everything that is printed is computed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from time import perf_counter as clock
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import stentor
from stentor.composite import CompositeEvent, Detector, Pattern
from stentor.composite.examples import FAILING_MACHINE, MEETING
from stentor.testing import broker

console = Console(highlight=False)

EVENTS: Final = 600
LOCKOUT: Final = Pattern(
    "(F{3} ; L) within 60s partition by account",
    events={"F": "type = 'login_failed'", "L": "type = 'lockout'"},
    name="lockout",
)
PATTERNS: Final = (LOCKOUT, FAILING_MACHINE, MEETING)
COLUMNS: Final = (
    "type string, account string, host string, load double, free double, department string, "
    "person string, room long"
)


def main(*, spark: bool = True) -> int:
    console.rule("[bold]Composite events")
    with broker() as home:
        live = asyncio.run(raised(home.address))
        console.print(f"{EVENTS:,} events, {len(live)} alarms, each when its last event arrived\n")
        if not spark:
            return 0
        console.print("now the same from the journal of the broker, on Spark", style="dim")
        ids = on_spark(home.address)
    expected = Counter(str(found.id) for found in live)
    table = Table("pattern", "live", "on Spark")
    for pattern in PATTERNS:
        both = [sum(id.startswith(pattern.type + ":") for id in each) for each in (expected, ids)]
        table.add_row(pattern.label, *map(str, both))
    console.print(table)
    if ids != expected or not live:
        print("the alarms differ", file=sys.stderr)
        return 1
    console.print("the same alarms, one by one\n")
    return 0


def drawn(r: random.Random) -> dict[str, Any]:
    match r.randrange(5):
        case 0 | 1:
            return {"type": "login_failed", "account": r.choice(("ann", "bob", "eve"))}
        case 2:
            return {"type": "lockout", "account": r.choice(("ann", "bob", "eve"))}
        case 3:
            host = r.choice(("db1", "db2", "web1"))
            if r.random() < 0.5:
                return {"type": "cpu", "host": host, "load": r.random()}
            return {"type": "disk", "host": host, "free": r.random() / 5}
        case _:
            person = r.choice(("mia", "tom", "lea", "kim"))
            return {
                "type": "entered",
                "department": "messaging",
                "person": person,
                "room": r.randrange(3),
            }


async def raised(address: str) -> list[CompositeEvent]:
    """Publish, and tell of each alarm when it is raised."""
    detector = Detector(PATTERNS)
    found: list[CompositeEvent] = []
    r = random.Random(7)
    async with (
        stentor.connect(address, name="sensors") as sensors,
        stentor.connect(address, name="guard") as guard,
        guard.subscribe("true") as arriving,
    ):

        async def watch() -> None:
            for _ in range(EVENTS):
                for alarm in detector.feed([await arriving.get(timeout=30)]).detections:
                    found.append(alarm)
                    if len(found) <= 12:
                        console.print(f"  [b]{alarm.pattern.label}[/b]  {_told(alarm)}")
                    elif len(found) % 25 == 0:
                        console.print(f"  … {len(found)} alarms", style="dim")

        watching = asyncio.create_task(watch())
        for _ in range(EVENTS):
            await sensors.publish(drawn(r), ack=True)
        await watching
    return found


def _told(alarm: CompositeEvent) -> str:
    key = ", ".join(
        f"{name}={value}" for name, value in zip(alarm.pattern.partition, alarm.key, strict=True)
    )
    return f"{key}: {' '.join('|'.join(each.names) for each in alarm.events)}"


def on_spark(address: str) -> Counter[str]:
    """The ids of what Spark finds."""
    from stentor.pipeline import detect, events, session

    begin = clock()
    spark = session("demo", "local[2]", **{"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    console.print(f"  Spark has started ({clock() - begin:.0f} s)", style="dim")
    try:
        table = events(spark, brokers=address, columns=COLUMNS).table()
        ids: Counter[str] = Counter()
        for pattern in PATTERNS:
            ids.update(row["_id"] for row in detect(table, pattern).select("_id").collect())
            console.print(f"  {pattern.label} ({clock() - begin:.0f} s)", style="dim")
        return ids
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
