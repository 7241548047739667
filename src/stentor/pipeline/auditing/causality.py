"""Vector clocks of publications, computed from a run that was recorded without.

What a component knows depends on what others knew when they published, so this is the one step that
has to go through a run in its order: in one pass, by one task for each run. It looks only at what
clocks depend on, publications and the deliveries to components that publish, and holds the clock
of a publication until it was delivered for the last time. So its memory follows from what is under
way at a time, not from the length of the run. Runs recorded with clocks do without.

Where a recorder counts actions, the positions of actions serve as well: what lies in the past of a
publication is, for each component, all of its actions up to some position.

A publication's stamp is what its publisher knew. On a delivery, the component learns the stamp of
what it was notified of, and one entry more that comes with the row: up to `level` of `key`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from stentor.pipeline.auditing.clocks import NOTHING, Clock, VectorClocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Entries in a batch of the result.
_ENTRIES: Final = 65_536
_SCHEMA: Final = pa.schema(
    [("trace", pa.string()), ("at", pa.int64()), ("key", pa.string()), ("level", pa.int64())]
)


def stamps(happened: DataFrame, key: str, level: str) -> DataFrame:
    """What publishers knew: (trace, at, key, level) for the publication at `at`.

    `happened` is the history of a run; `key` and `level` name the columns of a delivery from which
    its component learns.
    """
    notified = F.col("op") == "notify"
    return (
        happened.where("publishes")
        .select(
            *("trace", "pos", "at", "comp", "last"),
            F.when(notified, F.col(key)).alias("key"),
            F.col(level).alias("level"),
        )
        .repartition("trace")
        .sortWithinPartitions("trace", "pos")
        .mapInArrow(_scan, "trace string, at bigint, key string, level bigint")
    )


def _scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs one after the other, each in its order: runs in a worker."""
    found: list[tuple[str, int, str, int]] = []
    current: str | None = None
    clocks = VectorClocks()
    under_way: dict[int, Clock] = {}
    #: When what is under way will have been delivered everywhere.
    over: list[tuple[int, int]] = []
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in batch.schema.names)
        for trace, pos, at, comp, last, key, level in zip(*columns, strict=True):
            if trace != current:
                current, clocks, under_way, over = trace, VectorClocks(), {}, []
            while over and over[0][0] < pos:
                del under_way[heappop(over)[1]]
            if key is not None:
                clocks.learn(comp, under_way[at], key, level)
                continue
            clock = clocks.of(comp)
            if clock is not NOTHING:
                found += [(trace, at, name, known) for name, known in clocks.entries(clock)]
            if last > at:
                under_way[at] = clock
                heappush(over, (last, at))
            if len(found) >= _ENTRIES:
                yield _batch(found)
                found = []
    if found:
        yield _batch(found)


def _batch(entries: list[tuple[str, int, str, int]]) -> pa.RecordBatch:
    columns = zip(*entries, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
