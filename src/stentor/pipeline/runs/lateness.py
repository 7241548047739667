"""How many events came too late for their windows: events, not what Spark calls rows.

Spark drops what is late after it has summed up each partition, and counts the sums that it drops. A
thousand events of one window may be one of them. So `collapse` observes how many events of each
micro-batch belong to which window (for windows that overlap: the first one), and here that is held
against the watermark.

The watermark that decides what is late in a micro-batch is the one of the batch before; what Spark
tells with a batch is the one that ends windows in it. After a restart, the one of the batch before
is in the checkpoint.

Windows that are sessions have no such observation, nor have aggregates that were written in SQL;
for these there is what Spark says. All other steps that leave out late events work on single ones,
and what Spark says of them is exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from stentor.pipeline.steps.names import WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Spark calls the operator that keeps the state of an aggregate.
_AGGREGATE: Final = "stateStoreSave"


class Lateness:
    """Counts the late events of one query; fed with the progress of each micro-batch, in order."""

    def __init__(self, watermark_of: Callable[[int], int | None] = lambda batch: None) -> None:
        """`watermark_of` finds the watermark of a batch that was before; in milliseconds."""
        self._watermark_of = watermark_of
        #: The watermark of the last batch, by its number.
        self._last: tuple[int, int] | None = None

    def add(self, progress: Mapping[str, Any]) -> int:
        """How many events of this micro-batch were too late."""
        operators = progress.get("stateOperators") or []
        windows = [
            metrics.get("ends") or []
            for name, metrics in (progress.get("observedMetrics") or {}).items()
            if name.startswith(WINDOWS)
        ]
        summed = [_dropped(each) for each in operators if each.get("operatorName") == _AGGREGATE]
        single = sum(map(_dropped, operators)) - sum(summed)
        late = sum(summed)
        # If Spark has dropped nothing, nothing was late, whatever the watermark.
        if windows and late:
            watermark = self._before(progress)
            if watermark is not None:
                exact = _ended(windows, watermark * 1_000)
                late = exact if len(summed) <= len(windows) else max(exact, late)
        self._remember(progress)
        return single + late

    def _before(self, progress: Mapping[str, Any]) -> int | None:
        batch = int(progress["batchId"])
        if batch == 0:
            return 0
        if self._last is not None and self._last[0] == batch - 1:
            return self._last[1]
        return self._watermark_of(batch - 1)

    def _remember(self, progress: Mapping[str, Any]) -> None:
        ran = "addBatch" in (progress.get("durationMs") or {"addBatch": 0})
        if ran and "batchId" in progress:  # else it is a sign of life between two batches
            self._last = int(progress["batchId"]), _milliseconds(progress.get("eventTime") or {})


def _dropped(operator: Mapping[str, Any]) -> int:
    return int(operator.get("numRowsDroppedByWatermark") or 0)


def _ended(windows: Iterable[Iterable[Mapping[str, Any]]], watermark: int) -> int:
    """How many events are in windows that had ended by then."""
    return sum(
        round(each["y"]) for ends in windows for each in ends if round(each["x"]) <= watermark
    )


def _milliseconds(times: Mapping[str, Any]) -> int:
    text = times.get("watermark")
    return round(datetime.fromisoformat(text).timestamp() * 1_000) if text else 0


def checkpointed_watermark(spark: SparkSession, checkpoint: str, batch: int) -> int | None:
    """The watermark of a micro-batch by the checkpoint of its query; None if that does not say."""
    from stentor.pipeline.archives.places import place_of

    written = place_of(checkpoint, spark).read(f"offsets/{batch}")
    for line in (written or b"").decode().splitlines():
        if line.startswith("{"):
            found = json.loads(line).get("batchWatermarkMs")
            return None if found is None else int(found)
    return None
