"""Generated histories on Spark, in tables and in streams that begin again from a checkpoint.

Many histories are in one table or stream, so one query looks at all of them. In one half of the
queries each has a pattern of its own, which are many filters, for the index in Spark's workers; in
the other half a few patterns look at all of them, and Spark itself applies the filters.

A stream comes in files; its events are in any order, but none is more than the watermark's delay
behind. After some of the files the query ends, and another goes on from its checkpoint. Both have
to find what the reference detector finds, each composite event once.

Run as a program it takes a number of histories and a first seed:

    python tests/pipeline/composites/spark_histories.py 500 0
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "composite"))

from keyed_histories import SCHEMA, Histories, row
from pyspark.sql import SparkSession

from stentor.composite import Pattern
from stentor.composite.intervals import moment
from stentor.pipeline import detect
from stentor.pipeline.runs.figures import Figures

#: Histories in one query.
MANY = 50
#: Patterns that look at all histories of a query.
FEW = 4
#: Seconds that events may be behind.
DELAY = 4
#: After everything, in microseconds.
AFTER = 100_000_000


def write(folder: Path, number: int, rows: list[tuple[Any, ...]]) -> None:
    """A file of the stream."""
    names = ("history", "n", "x", "host", "composite", "_id", "_time")
    lines = []
    for each in rows:
        content = dict(zip(names, each, strict=True))
        start, end = content["composite"]
        content["composite"] = {"start": start.isoformat(), "end": end.isoformat()}
        content["_time"] = content["_time"].isoformat()
        lines.append(json.dumps(content))
    (folder / f"{number:03}.json").write_text("\n".join(lines) + "\n")


def ending(time: int = AFTER) -> tuple[Any, ...]:
    """An event that nobody looks at; the watermark follows it."""
    at = moment(time)
    return (-1, "z", 0, "z", (at, at), f"end:1:{time}", at)


def ran(
    spark: SparkSession, folder: Path, patterns: list[Pattern], home: Path, shards: int = 4
) -> tuple[list[str], Figures]:
    """Whatever there is now goes through; the ids of all that was ever found, and the figures."""
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))
    query = (
        detect(stream, patterns, watermark=f"{DELAY} seconds", shards=shards)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(home / "found"))
    )
    query.awaitTermination()
    figures = Figures("detect")
    for progress in query.recentProgress:
        figures.add(json.loads(progress.json))
    return sorted(r["_id"] for r in spark.read.parquet(str(home / "found")).collect()), figures


def in_table(spark: SparkSession, histories: Histories) -> int:
    """How many detections there are."""
    table = spark.createDataFrame([row(each) for each in histories.events], SCHEMA)
    found = sorted(each["_id"] for each in detect(table, histories.patterns).collect())
    assert found == histories.ids, f"{len(found)} of {len(histories.ids)}"
    return len(found)


def in_stream(spark: SparkSession, histories: Histories, seed: int, home: Path) -> int:
    """The same, out of order and with restarts."""
    r = Random(seed)
    late = {id(e): timedelta(seconds=r.random() * (DELAY - 0.1)) for e in histories.events}
    events = sorted(histories.events, key=lambda each: each.time + late[id(each)])
    cuts = sorted(r.sample(range(1, len(events)), r.choice((1, 2, 4))))
    files = [events[i:j] for i, j in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    restarts = {r.randrange(len(files)) for _ in range(2)}
    shards = r.choice((1, 4, 7))
    folder = home / "in"
    folder.mkdir(parents=True)
    for number, file in enumerate(files):
        write(folder, number, [row(each) for each in file])
        if number in restarts:
            found, _ = ran(spark, folder, histories.patterns, home, shards)
            assert set(found) <= set(histories.ids)
    write(folder, len(files), [ending()])
    found, figures = ran(spark, folder, histories.patterns, home, shards)
    assert found == histories.ids, f"{len(found)} of {len(histories.ids)}"
    assert figures.late == 0
    return len(found)


def main() -> int:
    from stentor.pipeline import session

    number, first = int(sys.argv[1]), int(sys.argv[2])
    settings = {
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming"
        ".state.RocksDBStateStoreProvider",
    }
    spark = session("histories", "local[2]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    began = time.perf_counter()
    found = failed = 0
    with tempfile.TemporaryDirectory() as home:
        for seed in range(first, first + number, MANY):
            seeds = range(seed, min(seed + MANY, first + number))
            histories = Histories(seeds, FEW if seed // MANY % 2 else None)
            try:
                in_table(spark, histories)
                found += in_stream(spark, histories, seed, Path(home) / str(seed))
            except Exception as error:
                failed += 1
                print(f"{seeds}: {type(error).__name__}: {str(error)[:2000]}", flush=True)
    spent = time.perf_counter() - began
    print(
        f"seeds {first} to {first + number - 1}, in tables and in streams with restarts: "
        f"{failed} of {-(-number // MANY)} queries failed, {found} detections, {spent:.0f} s"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
