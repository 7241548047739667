"""Composite events over a stream on Spark, beside a keyed windowed aggregate over the same one.

    python bench/pipeline/composites.py [--events 400000]

Events of a thousand hosts are in files, which are read one for each micro-batch. The aggregate
counts events and adds up their loads for each host and minute. The pattern is a sequence of two
events of a host within ten seconds; an event is *relevant* if it can advance the pattern. Both run
in one session, one after the other, in turns; the best of each counts. What is measured is the time
of the micro-batches after the first, as Spark says it: the first starts workers and compiles. The
one without events at the end does not count either. A pattern consumes in each micro-batch what the
watermark has passed since the one before, so every one that counts does the work of one.

Where others use the machine, times say little, so processor time is told, too: that of Spark and
its Python workers for a whole query, its first and last micro-batch included.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 5
HOSTS = 1_000
SCHEMA = "type string, load double, free double, host string, _id string, _time timestamp"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--turns", type=int, default=2)
    given = parser.parse_args(arguments)
    from stentor.pipeline import session

    spark = session(
        "bench", "local[2]", **{"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as directory:
        for share in (0.01, 0.1, 0.5, 1.0):
            measure(spark, Path(directory) / str(share), share, given.events, given.turns)
    spark.stop()


def measure(spark: SparkSession, home: Path, share: float, count: int, turns: int) -> None:
    write(spark, home / "in", share, count)
    best: dict[str, float] = {}
    least: dict[str, float] = {}
    for turn in range(turns):
        for name, query in (("aggregate", aggregate), ("detect", detection)):
            before = processor_seconds()
            seconds = run(spark, home, query, home / f"{name}{turn}")
            spent = processor_seconds() - before
            best[name] = min(seconds, best.get(name, seconds))
            least[name] = min(spent, least.get(name, spent))
    measured = count * (FILES - 1) / FILES
    print(
        f"{share:4.0%} relevant: aggregate {measured / best['aggregate']:>9,.0f} events/s, "
        f"detect {measured / best['detect']:>9,.0f} events/s, "
        f"{best['detect'] / best['aggregate']:.1f} times as long, "
        f"{least['detect'] / least['aggregate']:.1f} times the processor time",
        flush=True,
    )


def write(spark: SparkSession, folder: Path, share: float, count: int) -> None:
    """The events, a millisecond apart."""
    for number in range(FILES):
        first, end = count * number // FILES, count * (number + 1) // FILES
        made = spark.range(first, end, numPartitions=2).selectExpr(
            "if(hash(id, 1) % 2 = 0, 'cpu', 'disk') as type",
            f"if(pmod(hash(id, 2), 1000) < {1000 * share}, 0.95D, 0.5D) as load",
            f"if(pmod(hash(id, 2), 1000) < {1000 * share}, 0.01D, 0.5D) as free",
            f"concat('h', pmod(hash(id, 3), {HOSTS})) as host",
            "concat('p:1:', id) as _id",
            "timestamp_micros(1767225600000000 + id * 1000) as _time",
        )
        made.coalesce(1).write.parquet(str(folder / f"n{number}"))
    for number in range(FILES):
        (file,) = (folder / f"n{number}").glob("*.parquet")
        file.rename(folder / f"{number}.parquet")


def run(spark: SparkSession, home: Path, query: Any, checkpoint: Path) -> float:
    stream = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(home / "in" / "*.parquet"))
    )
    started = (
        query(stream.withWatermark("_time", "2 seconds"))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    started.awaitTermination()
    later = [p for p in started.recentProgress if p.batchId > 0 and p.numInputRows > 0]
    return float(sum(p.durationMs["triggerExecution"] for p in later)) / 1_000


def processor_seconds() -> float:
    """What all processes below this one have used."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        process = int(stat.parent.name)
        parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))
    below: set[int] = set()
    found = {os.getpid()}
    while found:
        found = {process for process, parent in parents.items() if parent in found}
        below |= found
    return sum(ticks[process] for process in below) / os.sysconf("SC_CLK_TCK")


def aggregate(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    grouped = events.groupBy("host", F.window("_time", "1 minute"))
    return grouped.agg(F.count("*").alias("events"), F.sum("load").alias("load"))


def detection(events: DataFrame) -> DataFrame:
    from stentor.composite import Pattern
    from stentor.pipeline import detect

    pattern = Pattern(
        "(A ; B) within 10s partition by host",
        events={"A": "type = 'cpu' and load > 0.9", "B": "type = 'disk' and free < 0.05"},
    )
    return detect(events, pattern)


if __name__ == "__main__":
    main(sys.argv[1:])
