"""Composite events: alarms that are raised while events arrive, and found again on Spark.

A broker gets logins, readings of machines and people entering rooms, and detects patterns in them
for a subscriber, who is told of each composite event at once. Then Spark reads the journal of the
broker and looks for the same patterns. The ids of composite events are made of what was detected,
so both sides can be compared one by one. Everything that is printed is computed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import Any, Final, TypeAlias

from rich.console import Console
from rich.table import Table

import stentor
from stentor import Notification, NotificationId
from stentor.composite import Pattern
from stentor.composite.examples import FAILING_MACHINE, MEETING
from stentor.testing import broker

#: A composite event, wherever it was detected: its type, and the numbers of its id.
Alarm: TypeAlias = tuple[str, int, int]

console = Console(highlight=False)

EVENTS: Final = 600
LOCKOUT: Final = Pattern(
    "(F{3} ; L) within 60s partition by account",
    events={"F": "type = 'login_failed'", "L": "type = 'lockout'"},
    name="lockout",
)
#: What comes last completes each pattern once, so everything before has been looked at by then.
LAST: Final[tuple[dict[str, Any], ...]] = (
    *[{"type": "login_failed", "account": "zoe"}] * 3,
    {"type": "lockout", "account": "zoe"},
    {"type": "cpu", "host": "zeta", "load": 0.99},
    {"type": "disk", "host": "zeta", "free": 0.01},
    *[
        {"type": "entered", "department": "messaging", "person": person, "room": 99}
        for person in ("mia", "tom", "lea")
    ],
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
        count = EVENTS + len(LAST)
        console.print(
            f"{count:,} events, {live.total()} alarms, each when its last event arrived\n"
        )
        if not spark:
            return 0
        console.print("now the same from the journal of the broker, on Spark", style="dim")
        found = on_spark(home.address)
    table = Table("pattern", "live", "on Spark")
    for pattern in PATTERNS:
        both = [sum(type == pattern.type for type, *_ in each.elements()) for each in (live, found)]
        table.add_row(pattern.label, *map(str, both))
    console.print(table)
    if found != live or not live:
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


async def raised(address: str) -> Counter[Alarm]:
    """Publish, and tell of each alarm when it is raised."""
    found: Counter[Alarm] = Counter()
    r = random.Random(7)
    sensors = await stentor.connect(address, name="sensors")
    guard = await stentor.connect(address, name="guard")

    async def watch(pattern: Pattern, alarms: stentor.Subscription[Notification]) -> None:
        """Until the pattern is found in what is published last."""
        last = {value for event in LAST for value in event.values()}
        async for alarm in alarms:
            assert alarm.id is not None
            found[pattern.type, alarm.id.epoch, alarm.id.sequence] += 1
            if found.total() <= 12:
                console.print(f"  [b]{pattern.label}[/b]  {_told(pattern, alarm)}")
            elif not found.total() % 25:
                console.print(f"  … {found.total()} alarms", style="dim")
            if all(alarm[name] in last for name in pattern.partition):
                return

    async with sensors, guard:
        asked = [(pattern, await guard.detect(pattern)) for pattern in PATTERNS]
        async with asyncio.TaskGroup() as watching:
            for pattern, alarms in asked:
                watching.create_task(watch(pattern, alarms))
            for event in (*(drawn(r) for _ in range(EVENTS)), *LAST):
                await sensors.publish(event, ack=True)
    return found


def _told(pattern: Pattern, alarm: Notification) -> str:
    key = ", ".join(f"{name}={alarm[name]}" for name in pattern.partition)
    return f"{key}: {alarm['composite.events']} events"


def on_spark(address: str) -> Counter[Alarm]:
    """What Spark finds."""
    from stentor.pipeline import detect, events, session
    from stentor.pipeline.runs.spark_session import stderr_to

    begin = clock()
    with (
        TemporaryDirectory() as directory,
        console.status("Spark starts, for some seconds …"),
        stderr_to(Path(directory) / "spark.log"),
    ):
        spark = session("demo", "local[2]", **{"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    console.print(f"  Spark has started ({clock() - begin:.0f} s)", style="dim")
    try:
        table = events(spark, brokers=address, columns=COLUMNS).table()
        found: Counter[Alarm] = Counter()
        for pattern in PATTERNS:
            with console.status(f"Spark looks for {pattern.label} …"):
                rows = detect(table, pattern).select("_id").collect()
            for row in rows:
                id = NotificationId.parse(row["_id"])
                found[pattern.type, id.epoch, id.sequence] += 1
            console.print(f"  {pattern.label} ({clock() - begin:.0f} s)", style="dim")
        return found
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
