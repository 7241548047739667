"""Detectors in Spark's state: what each shard of a stream remembers from batch to batch.

The values of the partition key are spread over a fixed number of shards, each with a detector of
its own. Its snapshot is the state, with the rows that wait: Spark keeps them in RocksDB and in the
checkpoint, so a batch that is repeated begins from the same state and finds the same, under the
same ids. Only shards that have events, or something that is due, are touched in a batch.

Rows wait until the watermark has passed them, so the order in which they arrive has no influence.
For the first thing that is due, an event or a timer of a pattern, there is a timer of Spark's; when
it goes off, the shard is told the watermark. The events of a batch are taken before the watermark
is: it is made of the events of the batches before.

An event that comes after the watermark has passed it, and something of its shard was consumed then,
is late. It is left out and counted.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from stentor.composite.detector import SECOND
from stentor.errors import PipelineError
from stentor.pipeline.composites.waiting_rows import WaitingRows
from stentor.pipeline.composites.worker import Plan, Worker, ready_worker, uncollected
from stentor.pipeline.matching.parcels import unwrapped, wrapped

#: In microseconds.
_MILLISECOND: Final = 1_000


class DetectorKeeper(StatefulProcessor):
    """Moves the detectors of shards on."""

    def __init__(self, plan: Plan, shards: int) -> None:
        self._plan = plan
        self._shards = shards
        parts = (plan._replace(vocabulary=None), plan.vocabulary)  # type: ignore[arg-type]
        self._digest = hashlib.blake2b(pickle.dumps(parts)).digest()
        self._patterns = " ".join(sorted(each.digest for each in plan.patterns))

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState(
            "detector",
            "patterns string, shards int, timer long, snapshot binary, waiting binary, taken long",
        )

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        contents = (unwrapped(row.content) for row in rows)
        return self._moved_on(contents, timerValues.getCurrentWatermarkInMs(), fired=None)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        fired = expiredTimerInfo.getExpiryTimeInMs()
        return self._moved_on(iter(()), timerValues.getCurrentWatermarkInMs(), fired)

    def close(self) -> None:
        pass

    def _moved_on(
        self, batches: Iterator[pa.RecordBatch], watermark: int, fired: int | None
    ) -> Iterator[Row]:
        worker = ready_worker(self._digest, self._plan)
        detector = worker.detector
        timer, waiting = uncollected(self._restored)(worker)
        dropped = detector.status.dropped
        for batch in batches:
            waiting.add(batch)
        found = worker.found(waiting, watermark * _MILLISECOND)
        dropped = detector.status.dropped - dropped
        times = [] if waiting.first is None else [waiting.first]
        if detector.due is not None:
            times.append(round(detector.due * SECOND))
        # It goes off when the watermark is past this millisecond, so past what is due.
        wanted = min(times) // _MILLISECOND + 1 if times else 0
        if timer not in (wanted, fired or 0):
            self._handle.deleteTimer(timer)
        if wanted and (wanted != timer or timer == fired):
            self._handle.registerTimer(wanted)
        state = wanted, uncollected(detector.snapshot)(), waiting.dump(), waiting.taken
        self._state.update((self._patterns, self._shards, *state))
        counts = {"late": waiting.late, "dropped": dropped, "forced": waiting.forced}
        if any(counts.values()):
            yield Row(content=None, **counts)
        for made in worker.made(found):
            yield Row(content=bytearray(wrapped(made)), late=0, dropped=0, forced=0)

    def _restored(self, worker: Worker) -> tuple[int, WaitingRows]:
        """Make the detector what it was; the timer that is set, or 0, and the rows that wait."""
        found = self._state.get()
        if found is None:
            worker.detector.restore(worker.nothing)
            return 0, WaitingRows(self._plan.limits)
        patterns, shards, timer, snapshot, rows, taken = found
        if patterns != self._patterns:
            raise PipelineError(
                "the checkpoint belongs to other patterns; begin a new one, or detect what was "
                "detected before"
            )
        if shards != self._shards:
            raise PipelineError(
                f"the checkpoint keeps events in {shards} shards, and not in {self._shards}; say "
                f"shards={shards}, or begin a new checkpoint"
            )
        worker.detector.restore(bytes(snapshot))
        return int(timer), WaitingRows(self._plan.limits, rows and bytes(rows), taken)
