"""What Spark's Python workers do: feed a detector with rows, and make rows of what it finds.

Rows come with a mask that says which of the detector's filters match them, worked out by Spark
itself, or without one; then the detector's index finds it out. The detector gets them in the order
of their upper ends, once nothing can come before them (`waiting_rows`), so it holds nothing back.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, NamedTuple, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from stentor.composite import CompositeEvent, Detector, Limits, Pattern
from stentor.composite.detector import SECOND
from stentor.composite.intervals import END_OF_TIME
from stentor.composite.reference import Mode
from stentor.pipeline.columns import RowEncoder
from stentor.pipeline.composites.composite_rows import CompositeRows
from stentor.pipeline.composites.waiting_rows import HIGH, WaitingRows
from stentor.pipeline.matching.kernel_cache import claim_kernel_cache
from stentor.pipeline.matching.vocabulary import Vocabulary

#: The column that says which filters match, a bit for each.
MASK: Final = "_stentor_mask"
#: Composite events that are made rows of at a time.
_FOUND: Final = 2_000
#: Detectors that a worker keeps ready.
_READY: Final = 4

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Plan(NamedTuple):
    """What is detected in which rows. It travels to the workers."""

    patterns: tuple[Pattern, ...]
    source: StructType
    result: StructType
    limits: Limits
    mode: Mode
    uncertainty: int
    #: Whether rows have a mask.
    is_masked: bool
    vocabulary: Vocabulary

    def detector(self) -> Detector:
        return Detector(
            self.patterns,
            mode=self.mode,
            limits=self.limits,
            uncertainty=self.uncertainty,
        )


def uncollected(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Without a search for cyclic garbage meanwhile: among so many events that stay for a moment,
    and have no cycles, it would take a quarter of the time.
    """

    @wraps(call)
    def undisturbed(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return call(*args, **kwargs)
        finally:
            if was_on:
                gc.enable()

    return undisturbed


def keep_what_is_loaded() -> None:
    """Let what a process has loaded so far be no garbage, ever.

    Spark's workers search for garbage after every task. Among all that Python, Arrow and Spark load
    it takes 50 ms, several times for a micro-batch; without that, hardly anything.
    """
    if not gc.get_freeze_count():
        gc.freeze()


class Worker:
    """A detector with its rows."""

    def __init__(self, plan: Plan) -> None:
        claim_kernel_cache()
        plan.vocabulary.install()
        self.detector = plan.detector()
        #: What a detector knows that has seen nothing.
        self.nothing = self.detector.snapshot()
        self._encoder = RowEncoder(plan.source)
        self._rows = CompositeRows(plan.patterns, plan.source, plan.result)
        self._is_masked = plan.is_masked
        self._numbers = range(len(self.detector.filters))

    @uncollected
    def found(self, waiting: WaitingRows, before: int) -> list[CompositeEvent]:
        """What there is in the rows before a time, and in those that have to be taken with them."""
        batch = waiting.take(before)
        assert waiting.taken is not None
        now = waiting.taken / SECOND
        if batch is None:
            return self.detector.advance(now).detections
        events = self._encoder.notifications(batch)
        matched = self._matched(batch.column(MASK)) if self._is_masked else None
        return self.detector.feed(events, now, matched=matched).detections

    def _matched(self, masks: pa.Array) -> tuple[list[int], list[int]]:
        rows: list[int] = []
        filters: list[int] = []
        for row, mask in enumerate(masks.to_pylist()):
            if mask.bit_count() == 1:
                rows.append(row)
                filters.append(mask.bit_length() - 1)
            else:
                for number in self._numbers:
                    if mask >> number & 1:
                        rows.append(row)
                        filters.append(number)
        return rows, filters

    def made(self, found: list[CompositeEvent]) -> Iterator[pa.RecordBatch]:
        """The rows of what was found."""
        for start in range(0, len(found), _FOUND):
            yield self._batch(found[start : start + _FOUND])

    @uncollected
    def _batch(self, found: list[CompositeEvent]) -> pa.RecordBatch:
        return self._rows.batch(found)


_ready: Final[OrderedDict[bytes, Worker]] = OrderedDict()


def ready_worker(digest: bytes, plan: Plan) -> Worker:
    """A worker for a plan, made once in a process; its detector is in any state."""
    found = _ready.get(digest)
    if found is None:
        found = _ready[digest] = Worker(plan)
        keep_what_is_loaded()
        while len(_ready) > _READY:
            _ready.popitem(last=False)
    return found


def detected(batches: Iterator[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    """What a detector finds in events that come in the order of their upper ends."""
    worker = Worker(plan)
    # Those of one moment wait for each other; if some were taken before, the others would be late.
    waiting = WaitingRows(plan.limits._replace(when_full="raise"))
    for batch in batches:
        waiting.add(batch)
        # More may come with the last of these times; those without any come first.
        last = batch.column(HIGH)[-1].as_py() if batch.num_rows else None
        if last is not None:
            yield from worker.made(worker.found(waiting, last))
    yield from worker.made(worker.found(waiting, END_OF_TIME))
    yield from worker.made(worker.detector.finish().detections)


def parcels_by_shard(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Events wrapped for the way through Spark's state operator; the last column is the shard."""
    from stentor.pipeline.matching.parcels import portions, wrapped

    keep_what_is_loaded()
    for batch in batches:
        shards = batch.column(batch.num_columns - 1)
        batch = batch.select(batch.schema.names[:-1])
        numbers: list[int] = []
        contents: list[bytes] = []
        for shard in shards.unique().to_pylist():
            for portion in portions(batch.filter(pc.equal(shards, shard))):
                numbers.append(shard)
                contents.append(wrapped(portion))
        yield pa.record_batch(
            {"shard": pa.array(numbers, pa.int32()), "content": pa.array(contents, pa.binary())}
        )
