"""Reading a journal in Spark, beside reading the same rows from Parquet.

The rows are stock quotes, eight attributes and the standard columns of an event table. They are in
the journal of a broker, which runs in a process of its own on the same cores, and in Parquet, as
many files as a journal is read in ranges. Both go to Spark's sink that does nothing:

    journal   `events`: the broker's journal, its socket, decoding, Arrow, JVM
    filtered  the same with a filter that a tenth of the rows pass, evaluated by the broker
    parquet   Parquet through a `mapInArrow` that hands its batches back: the rows' way to Python
              and back to the JVM

The first run of each way is for warming up. Then they take turns, and each is judged by its best.
By itself, `PYTHONPATH=bench python -m pipeline.journal` measures the default profile.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from live.brokers import BrokerProcess
from pipeline.profiles import DEFAULT, PROFILES, Profile
from progress import progress
from stentor.client.direct import Direct
from stentor.client.encoding import EventEncoder
from suite import apart
from workloads import stock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA: Final = (
    "symbol string, exchange string, sector string, price double, volume long, change double, "
    "currency string, ts long"
)
#: Rows of the journal; what the goal speaks of is a million.
ROWS: Final = 1_000_000
#: Events that are drawn; the journal repeats them.
DRAWN: Final = 100_000
#: Ranges in which the journal is read, and files in which Parquet is.
PARTS: Final = 8


def measure_journal(profile: Profile, rows: int = ROWS) -> dict[str, Any]:
    """Both, with one core and with all that there are, up to two."""
    with (
        TemporaryDirectory(prefix="stentor-bench-") as folder,
        BrokerProcess("b1", data=Path(folder) / "b1") as broker,
    ):
        progress(f"publishing {rows:,} quotes")
        publish_s = _fill(broker.address, rows)
        counts = [1, 2] if len(os.sched_getaffinity(0)) > 1 else [1]
        cores = []
        for count in counts:
            progress(f"a journal of {rows:,} events in Spark, {count} of {counts[-1]} cores")
            cores.append(apart(_measure, profile, broker.address, folder, rows, count))
    return {"rows": rows, "publish_s": publish_s, "cores": cores}


def _fill(address: str, rows: int) -> float:
    events = [
        {name: value for name, value in event.items() if name != "type"}
        for event in stock(1, min(rows, DRAWN)).events
    ]
    encoder = EventEncoder("desk", 1)
    started = perf_counter()
    with Direct(address, name="desk") as direct:
        for first in range(0, rows, DRAWN):
            now = datetime.now(UTC)
            direct.publish(encoder.many(events[: min(DRAWN, rows - first)], first, now))
    return perf_counter() - started


def _measure(profile: Profile, address: str, folder: str, rows: int, cores: int) -> dict[str, Any]:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))  # children inherit it
    from stentor.pipeline import events, session

    config: dict[str, Any] = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": cores}
    spark = session("bench", f"local[{cores}]", **config)
    spark.sparkContext.setLogLevel("ERROR")

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    def journal(filter: str = "") -> DataFrame:
        size = -(-rows // PARTS)
        return events(
            spark, brokers=address, filter=filter, columns=SCHEMA, maxRowsPerPartition=size
        ).table()

    try:
        files = f"{folder}/parquet{cores}"
        journal().write.parquet(files)
        stored = spark.read.parquet(files)
        frames = {
            "journal": journal(),
            "filtered": journal("exchange = 'NYSE' and change > -6"),
            "parquet": stored.mapInArrow(nothing, stored.schema),
        }
        if stored.count() != rows:
            raise SystemExit(f"wrong: {stored.count()} rows of {rows}")
        ways: dict[str, Any] = {name: {"seconds": []} for name in frames}
        for turn in range(profile.repeats + 1):
            for name, frame in frames.items():
                started = perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                if turn:
                    ways[name]["seconds"].append(perf_counter() - started)
        for way in ways.values():
            way["us_per_row"] = 1e6 * min(way["seconds"]) / rows
        ratio = ways["journal"]["us_per_row"] / ways["parquet"]["us_per_row"]
        return {"cores": cores, "ways": ways, "ratio": ratio}
    finally:
        spark.stop()


if __name__ == "__main__":
    import sys

    chosen = PROFILES[sys.argv[1]] if len(sys.argv) > 1 else DEFAULT
    print(json.dumps(measure_journal(chosen, chosen.rows), indent=2))
