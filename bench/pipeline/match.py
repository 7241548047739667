"""`match` in Spark, beside what Spark costs anyway and what a user would write without it.

All over the same rows, stock quotes of nine columns in Parquet, and all written to Spark's sink
that does nothing:

    nothing   a `mapInArrow` that hands its batches back: the rows' way to Python and back
    given     an Arrow function that is given the columns that filters look at, and gives as many
              ids for each row as match on average: what Spark takes for it, whoever finds them
    match     `match` against the filters, on the plan that it chooses
    sharded   the same with filters spread over as many parts as there are cores
    native    `match` against so few filters that they become column expressions
    join      a broadcast nested-loop join with the same conditions, over fewer rows

Each number of cores has a process of its own, which may run on so many cores and no more: the JVM,
Python workers and all. The first run of each way is for warming up, except that the time of the
first `match` is kept. Then they take turns, and each is judged by its best turn. The matches are
counted, and the count must be that of the index outside of Spark.

By itself, `PYTHONPATH=bench python -m pipeline.match 2000 10000` measures with so many filters, one
number after the other, and prints what each way costs to a function that does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.joins import join_by_conditions
from pipeline.profiles import DEFAULT, Profile
from progress import progress
from stentor import Filter
from stentor.matching import Index
from suite import apart
from workloads import Workload, stock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Filters of the native plan.
FEW: Final = 12
#: Rows that are joined; so many take as long as hundreds of times as many that are matched.
JOIN_ROWS: Final = 2_000
#: Files, and so partitions, that the events are in.
FILES: Final = 8


def measure_match(profile: Profile) -> dict[str, Any]:
    """All ways, on one core and on all that there are, up to two."""
    with TemporaryDirectory(prefix="stentor-bench-") as folder:
        workload = stock(profile.filters, profile.rows, drawn=profile.rows)
        matches = _write(workload, Path(folder))
        counts = [1, 2] if len(os.sched_getaffinity(0)) > 1 else [1]
        cores = []
        for count in counts:
            progress(f"match in Spark, {profile.filters:,} filters, {count} of {counts[-1]} cores")
            given = round((matches["all"] or 0) / profile.rows)
            cores.append(apart(_measure, profile, folder, count, given))
            for way in cores[-1]["ways"].values():
                if way["matches"] != matches[way["of"]]:
                    raise SystemExit(f"wrong: {way}, but there are {matches[way['of']]} matches")
    return {"filters": profile.filters, "rows": profile.rows, "cores": cores}


def _write(workload: Workload, folder: Path) -> dict[str, int | None]:
    """The events as files, and how many matches there are, by the index outside of Spark."""
    table = pa.Table.from_batches([workload.batch])
    size = -(-table.num_rows // FILES)
    (folder / "events").mkdir()
    for number in range(FILES):
        pq.write_table(table.slice(number * size, size), folder / "events" / f"{number}.parquet")
    filters = [Filter(text) for text in workload.texts()]
    return {
        "nothing": None,
        "given": None,
        "all": len(Index(enumerate(filters)).match_batch(table)[0]),
        "few": len(Index(enumerate(filters[:FEW])).match_batch(table)[0]),
        "join": len(Index(enumerate(filters)).match_batch(table.slice(0, JOIN_ROWS))[0]),
    }


def _measure(profile: Profile, folder: str, cores: int, given: int) -> dict[str, Any]:
    """Everything on so many cores, in a process that is made for it."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))  # children inherit it
    from stentor.pipeline.sessions import session

    started = perf_counter()
    spark = session(
        "bench",
        f"local[{cores}]",
        **{
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": cores,
            # Reading Parquet by rows is faster here; a mapInArrow does so in any case.
            "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    start_s = perf_counter() - started
    try:
        ways = _ways(spark, profile, Path(folder), cores, given)
        return {"cores": cores, "start_s": start_s, **ways}
    finally:
        spark.stop()


def _ways(
    spark: SparkSession, profile: Profile, folder: Path, cores: int, given: int
) -> dict[str, Any]:
    from stentor.pipeline.matching import match

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    workload = stock(profile.filters, profile.rows, drawn=profile.rows)
    texts = list(workload.texts())
    events = spark.read.parquet(str(folder / "events"))
    first = spark.createDataFrame(pa.Table.from_batches([workload.batch.slice(0, JOIN_ROWS)]))
    started = perf_counter()
    matched = match(events, enumerate(texts))
    make_s = perf_counter() - started
    frames: dict[str, tuple[str, int, DataFrame]] = {
        "match": ("all", profile.rows, matched),
        "nothing": ("nothing", profile.rows, events.mapInArrow(nothing, events.schema)),
        "given": ("given", profile.rows, _given(events, texts, given)),
        "native": ("few", profile.rows, match(events, enumerate(texts[:FEW]))),
        "sharded": ("all", profile.rows, match(events, enumerate(texts), shards=cores)),
        "join": ("join", JOIN_ROWS, join_by_conditions(spark, first, workload.constraints)),
    }
    ways: dict[str, dict[str, Any]] = {}
    first_s = 0.0
    for name, (of, rows, frame) in frames.items():
        took = _timed(frame)
        first_s = first_s or took
        matches = None if of in ("nothing", "given") else frame.count()
        ways[name] = {"of": of, "rows": rows, "matches": matches, "seconds": []}
    for _ in range(profile.repeats):
        for name, (_, _, frame) in frames.items():
            ways[name]["seconds"].append(_timed(frame))
    for way in ways.values():
        way["us_per_row"] = 1e6 * min(way["seconds"]) / way["rows"]
    return {"ways": ways, "make_s": make_s, "first_s": first_s, "plan": _plan(matched)}


def _given(events: DataFrame, texts: list[str], count: int) -> DataFrame:
    """As `match` asks Spark: the columns that filters look at, and for each row a list of ids."""
    from pyspark.sql import functions as F

    from stentor.pipeline.spark_features import arrow_function

    def ids(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for columns in batches:
            rows = len(columns[0])
            ends = pa.array(np.arange(rows + 1, dtype=np.int32) * count)
            yield pa.ListArray.from_arrays(ends, pa.array(np.arange(rows * count)))

    names = sorted(frozenset[str]().union(*(Filter(text).names for text in texts)))
    found = arrow_function(ids, "array<long>")(*[name for name in names if name in events.columns])
    return events.select(F.explode(found).alias("id"), "*")


def _timed(frame: DataFrame) -> float:
    started = perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return perf_counter() - started


def _plan(frame: DataFrame) -> str:
    found: Callable[[], Any] = frame._jdf.queryExecution
    return str(found().simpleString())


if __name__ == "__main__":
    import sys

    for filters in map(int, sys.argv[1:] or ["2000", "10000"]):
        for one in measure_match(replace(DEFAULT, filters=filters))["cores"]:
            costs = {name: way["us_per_row"] for name, way in one["ways"].items()}
            told = ", ".join(f"{name} {us / costs['nothing']:.2f}" for name, us in costs.items())
            print(f"{filters:,} filters, {one['cores']} cores: {told}", flush=True)
