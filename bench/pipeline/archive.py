"""Archiving rows in Spark, beside writing the same rows as Parquet.

The rows are stock quotes, eight attributes and the standard columns of an event table, as the
source "stentor" gives them: of one journal, in order. Both ways write them to a new directory:

    archive   `archive`: to Python, in order, Parquet by event type and day, statistics, one commit
              of a Delta table
    parquet   `df.write.parquet`

The first run of each way is for warming up. Then they take turns, and each is judged by its best.
By itself, `PYTHONPATH=bench python -m pipeline.archive` measures the default profile.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.profiles import DEFAULT, PROFILES, Profile
from progress import progress
from suite import apart
from workloads import stock

ROWS: Final = 1_000_000
DRAWN: Final = 100_000
#: Files that are read, and so tasks that write.
PARTS: Final = 8


def measure_archive(profile: Profile, rows: int = ROWS) -> dict[str, Any]:
    """Both, with as many cores as there are, up to two."""
    with TemporaryDirectory(prefix="stentor-bench-") as folder:
        _fill(Path(folder) / "events", rows)
        cores = min(2, len(os.sched_getaffinity(0)))
        progress(f"archiving {rows:,} events with Spark, {cores} cores")
        found: dict[str, Any] = apart(_measure, profile, folder, rows, cores)
        return {"rows": rows, **found}


def _fill(folder: Path, rows: int) -> None:
    folder.mkdir()
    drawn = [
        {name: value for name, value in event.items() if name != "type"}
        for event in stock(1, min(rows, DRAWN)).events
    ]
    one = pa.Table.from_pylist(drawn)
    table = pa.concat_tables([one] * -(-rows // DRAWN)).slice(0, rows).combine_chunks()
    offsets = np.arange(1, rows + 1)
    ids = pa.array([f"desk:1:{n}" for n in offsets.tolist()])
    times = pa.array(1_767_225_600_000_000 + offsets * 1_000).cast(pa.timestamp("us", "UTC"))
    table = table.append_column("_id", ids).append_column("_type", pa.repeat("quote", rows))
    table = table.append_column("_time", times).append_column("_broker", pa.repeat("b1", rows))
    table = table.append_column("_offset", pa.array(offsets))
    size = -(-rows // PARTS)
    for number in range(PARTS):
        part = table.slice(number * size, size)
        pq.write_table(part, folder / f"{number}.parquet", coerce_timestamps="us")


def _measure(profile: Profile, folder: str, rows: int, cores: int) -> dict[str, Any]:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))  # children inherit it
    from stentor.pipeline import archive, session

    config: dict[str, Any] = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": cores}
    spark = session("bench", f"local[{cores}]", **config)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        events = spark.read.parquet(f"{folder}/events")
        ways: dict[str, Any] = {name: {"seconds": []} for name in ("archive", "parquet")}
        for turn in range(profile.repeats + 1):
            for name, way in ways.items():
                target = f"{folder}/{name}-{turn}"
                started = perf_counter()
                if name == "archive":
                    archive(events, target, cluster=False)
                else:
                    events.write.parquet(target)
                if turn:
                    way["seconds"].append(perf_counter() - started)
                way["bytes"] = sum(f.stat().st_size for f in Path(target).rglob("*.parquet"))
        for way in ways.values():
            way["us_per_row"] = 1e6 * min(way["seconds"]) / rows
        ratio = ways["parquet"]["us_per_row"] / ways["archive"]["us_per_row"]
        return {"cores": cores, "ways": ways, "ratio": ratio}
    finally:
        spark.stop()


if __name__ == "__main__":
    import sys

    chosen = PROFILES[sys.argv[1]] if len(sys.argv) > 1 else DEFAULT
    print(json.dumps(measure_archive(chosen), indent=2))
