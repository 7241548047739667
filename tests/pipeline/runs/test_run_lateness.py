"""Events that are too late for their windows are counted, each of them."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stentor.pipeline.runs.figures import Figures
from stentor.pipeline.runs.lateness import Lateness, checkpointed_watermark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000_000
EPOCH = datetime(2026, 3, 8, 6, 30, tzinfo=UTC)


def progress(
    batch: int, watermark: str, ends: dict[int, int] | None, dropped: int, **others: Any
) -> dict[str, Any]:
    bins = [{"x": end * MINUTE, "y": float(count)} for end, count in (ends or {}).items()]
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{batch:02}.000Z",
        "eventTime": {"watermark": f"1970-01-01T00:{watermark}.000Z"},
        "observedMetrics": {"windows1": {"ends": bins or None}} if ends is not None else {},
        "stateOperators": [
            {"operatorName": "stateStoreSave", "numRowsDroppedByWatermark": dropped}
        ],
        **others,
    }


def test_the_watermark_of_the_batch_before_decides() -> None:
    lateness = Lateness()
    assert lateness.add(progress(0, "00:00", {1: 10, 2: 10}, 0)) == 0
    assert lateness.add(progress(1, "01:30", {1: 4, 9: 1}, 0)) == 0
    # A sign of life between two batches changes nothing.
    idle = progress(2, "05:00", {}, 0, durationMs={"latestOffset": 3})
    assert lateness.add(idle) == 0
    assert lateness.add(progress(2, "05:00", {1: 100, 2: 7, 9: 3}, 2)) == 100
    assert lateness.add(progress(3, "05:00", {4: 5, 5: 6, 6: 7}, 2)) == 11


def test_after_a_restart_the_checkpoint_knows() -> None:
    asked: list[int] = []

    def found(batch: int) -> int | None:
        asked.append(batch)
        return 120_000

    lateness = Lateness(found)
    assert lateness.add(progress(7, "09:00", {1: 3}, 0)) == 0
    assert asked == []  # nothing was dropped
    lateness = Lateness(found)
    assert lateness.add(progress(7, "09:00", {1: 3, 2: 4, 3: 5}, 2)) == 7
    assert asked == [6]
    # If nobody knows, there is what Spark says.
    assert Lateness().add(progress(7, "09:00", {1: 3, 2: 4, 3: 5}, 2)) == 2


def test_what_spark_counts_by_itself_stays() -> None:
    other = {"operatorName": "dedupeWithinWatermark", "numRowsDroppedByWatermark": 5}
    found = progress(1, "03:00", None, 2)
    found["stateOperators"].append(other)
    assert Lateness().add(found) == 7


def test_the_end_of_a_run_tells(capfd: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from stentor.cli.pipeline import _told
    from stentor.pipeline.runs import Outcome

    outcome = Outcome({"bars": Figures("bars", late=1_200), "all": Figures("all")})
    assert _told(outcome, Console(stderr=True), [], Path("log"), once=True) == 0
    said = capfd.readouterr().err
    assert "bars: 1,200 events came too late" in said
    assert "all: " not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "window", "windows"), [(1, "1 minute", 1), (2, "3 minutes every 1 minute", 3)]
)
def test_every_late_event_is_counted(
    spark: SparkSession, tmp_path: Path, seed: int, window: str, windows: int
) -> None:
    """Late are those that came, and are missing from a window at the end."""
    from stentor.pipeline.steps import collapse

    draw = random.Random(seed)
    schema = "symbol string, _time timestamp"
    number = 0

    def some(begin: float) -> list[dict[str, Any]]:
        nonlocal number
        found = []
        for _ in range(draw.randint(1, 60)):
            behind = draw.choice([0.0, 5.0, 300.0]) * draw.random()
            time = EPOCH + timedelta(seconds=begin - behind)
            found.append({"symbol": draw.choice("AB"), "_time": time.isoformat()})
            number += 1
        return found

    folder = tmp_path / "in"
    folder.mkdir()
    results: dict[tuple[str, Any], int] = {}
    late = files = 0
    for _ in range(3):  # each run goes on from the checkpoint of the one before
        for _ in range(4):
            lines = [json.dumps(each) + "\n" for each in some(90.0 * files)]
            hidden = folder / f".{files}"
            hidden.write_text("".join(lines))
            os.utime(hidden, (1_700_000_000 + files,) * 2)  # by which Spark orders them
            hidden.rename(folder / f"{files}.json")
            files += 1
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        states = collapse(
            reader.json(str(folder)), ["symbol"], {"n": "count"}, window, watermark="10 seconds"
        )

        def keep(rows: Any, batch: int) -> None:
            results.update({(r["symbol"], r["window_start"]): r["n"] for r in rows.collect()})

        checkpoint = str(tmp_path / "checkpoint")
        query = (
            states.writeStream.foreachBatch(keep)
            .outputMode("update")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        figures = Figures("states")
        figures.lateness = Lateness(partial(checkpointed_watermark, spark, checkpoint))
        for each in query.recentProgress:
            figures.add(json.loads(each.json))
        late += figures.late
    missing = windows * number - sum(results.values())
    # With windows that overlap, a late event is missing from the first of its windows, or more.
    assert 0 < late <= missing <= windows * late
