"""The plan for more filters than a worker should hold: each task has a part of them.

Subscriptions are spread by a hash of their ids. Each part is parsed and compiled by the executors,
all at the same time, comes to the driver in pieces, one part after the other, and is broadcast by
itself; a worker unpacks only the part that it needs. Every event is sent to every part, and Spark
puts the events of a part into one task, which holds them against it. `explain()` shows the function
as `stentor_match_shard`, and the exchange before it.

The number of parts weighs memory against traffic: a worker holds one part, and events are copied
once for each.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator
from itertools import count, groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stentor.pipeline.matching.broadcasts import parallelism, shipped
from stentor.pipeline.matching.filter_columns import flat, inputs
from stentor.pipeline.matching.kernel_cache import claim_kernel_cache
from stentor.pipeline.matching.packed_index import Packed
from stentor.pipeline.matching.subscriptions import (
    MOST_SHOWN,
    Mistake,
    one_array,
    parse_all,
    refuse,
    repeated,
)
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.pipeline.matching.worker import Part, matched_in_shards
from stentor.pipeline.spark_features import arrow_function

#: Filters that a part has, at most, unless the user decides.
SHARD_SIZE: Final = 500_000
#: Bytes of a packed part that are sent at a time.
PIECE: Final = 8 * 2**20

_SHARD: Final = "_stentor_shard"
#: One row first that tells about the part, then its pieces.
_PIECES: Final = "shard int, piece int, bytes binary"


class _Told(NamedTuple):
    """What there is to know about a part, apart from its contents."""

    digest: str
    #: The attributes that its filters look at.
    names: frozenset[str]
    #: The first mistakes, and how many there are; with any, nothing is packed.
    mistakes: list[Mistake]
    wrong: int


def match_sharded(
    events: DataFrame, subscriptions: DataFrame, id: str, shards: int | None
) -> DataFrame:
    """Match by parts of the subscriptions, a table of `id` and `filter`."""
    spark = events.sparkSession
    if shards is None:
        shards = max(parallelism(spark), -(-subscriptions.count() // SHARD_SIZE))
    parts, looked_at = _parts(spark, subscriptions, shards)
    chosen = inputs(events.schema, looked_at)
    names, columns = flat(chosen)

    def stentor_match_shard(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return matched_in_shards(parts, names, batches)

    ids = T.ArrayType(subscriptions.schema["id"].dataType, False)
    function = arrow_function(stentor_match_shard, ids)
    everywhere = F.explode(F.array(*map(F.lit, range(len(parts))))).alias(_SHARD)
    spread = events.select("*", everywhere) if parts else events.select("*", F.lit(0).alias(_SHARD))
    spread = spread.repartitionById(max(1, len(parts)), F.col(_SHARD))
    if not parts:
        spread = spread.where(F.lit(False))
    found = function(*columns, F.col(_SHARD))
    return spread.select(F.explode(found).alias(id), "*").drop(_SHARD)


def _parts(
    spark: SparkSession, subscriptions: DataFrame, shards: int
) -> tuple[list[Part], frozenset[str]]:
    """All parts that have filters, broadcast, and the attributes that they look at."""
    vocabulary = Vocabulary.of_this_process()

    def stentor_pack_shard(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return packed_shard(batches, vocabulary)

    shard = F.pmod(F.xxhash64("id"), F.lit(shards)).cast("int")
    packed = (
        subscriptions.repartitionById(shards, shard)
        .mapInArrow(stentor_pack_shard, _PIECES)
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        told: list[_Told] = [pickle.loads(row.bytes) for row in packed.where("piece = 0").collect()]
        refuse([m for one in told for m in one.mistakes], sum(one.wrong for one in told))
        parts = []
        for first, *pieces in _by_shard(packed.toLocalIterator()):
            whole: Any = Wrapped(b"".join(pieces))
            parts.append(Part(pickle.loads(first).digest, shipped(spark, whole, shards)))
    finally:
        packed.unpersist()
    return parts, frozenset[str]().union(*(one.names for one in told))


def _by_shard(rows: Iterable[Any]) -> Iterator[list[bytes]]:
    """The pieces of each part in their order; a part's rows are together."""
    for _, group in groupby(rows, key=lambda row: row.shard):
        yield [bytes(row.bytes) for row in sorted(group, key=lambda row: row.piece)]


class Wrapped:
    """A packed part that the driver passes on as it is: it is unpacked by who fetches it."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._packed,)


def packed_shard(
    batches: Iterable[pa.RecordBatch], vocabulary: Vocabulary
) -> Iterator[pa.RecordBatch]:
    """A part of the subscriptions, packed. Runs in the executors."""
    claim_kernel_cache()
    vocabulary.install()
    received = list(batches)
    if not any(batch.num_rows for batch in received):
        return
    table = pa.Table.from_batches(received)
    ids = one_array(table.column("id"))
    filters, mistakes = parse_all(ids, table.column("filter").to_pylist())
    mistakes += _id_mistakes(ids)
    names = frozenset[str]().union(*{filter_.names for filter_ in filters})
    whole = b"" if mistakes else pickle.dumps(Packed.of(ids, filters, vocabulary))
    digest = hashlib.sha256(whole).hexdigest()
    told = _Told(digest, names, mistakes[:MOST_SHOWN], len(mistakes))
    context = TaskContext.get()
    assert context is not None  # in executors there is one
    shard = context.partitionId()
    yield _row(shard, 0, pickle.dumps(told))
    for piece, start in zip(count(1), range(0, len(whole), PIECE), strict=False):
        yield _row(shard, piece, whole[start : start + PIECE])


def _id_mistakes(ids: pa.Array) -> list[Mistake]:
    found: list[Mistake] = [(id, "the id is used more than once") for id in repeated(ids)]
    if ids.null_count:
        found.append((None, "a subscription has no id: it is null"))
    return found


def _row(shard: int, piece: int, content: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([shard], pa.int32()),
            pa.array([piece], pa.int32()),
            pa.array([content], pa.binary()),
        ],
        ["shard", "piece", "bytes"],
    )
