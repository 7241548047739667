"""Which subscriptions and advertisements a notification matched, while it mattered.

The judgment needs one thing that Spark cannot say by itself: whether a filter matches. Attributes
in a trace have no schema, so notifications come as they were on the wire and are matched by the
same engine as in a broker, inside an Arrow function.

For each subject (a first publication, or a delivery of what was not published) and each interval
whose filter matches there is a row, if the two can have anything to do with each other:

  - a subscription that was active at some moment from the publication to the last action on the
    notification. Only then can a delivery have been right, or owed.
  - an advertisement of the publisher itself that was active when it was published.

In a run that is correct, that is about one row for each delivery.

The subjects of a run are dealt into shards by hash, and all its intervals are sent to every shard:
no join, hence no skew, even if everybody subscribed to the same. A shard is one call in a worker.
The number of shards follows from the size of the run. Compiled filters are kept between calls.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F

from stentor.errors import DecodeError, PipelineError
from stentor.filters import Filter
from stentor.matching import Index
from stentor.model import Envelope, decode_headers
from stentor.pipeline.matching.kernel_cache import claim_kernel_cache
from stentor.pipeline.matching.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Publications and deliveries for each shard: what a worker holds at a time follows from it.
SHARD: Final = 100_000
#: Subjects that are decoded at a time.
_ROWS: Final = 4_096
#: Pairs of a subject and an interval that are looked at together.
_PAIRS: Final = 1_000_000
#: Sets of filters that a worker keeps compiled.
_COMPILED: Final = 4

_SCHEMA: Final = (
    "trace string, subject bigint, is_published boolean, advertised boolean, comp string, "
    "since bigint, until bigint, settled bigint, number int"
)
_FOREVER: Final = np.iinfo(np.int64).max

Longs = NDArray[np.int64]


def relevance(
    actions: DataFrame, intervals: DataFrame, runs: DataFrame, *, largest: int
) -> DataFrame:
    """Subjects and the intervals that matter to them."""
    subjects = actions.where(F.col("subject") == F.col("pos")).select(
        *("trace", "subject", "comp", "nid", "last", "body"),
        (F.col("op") == "pub").alias("is_published"),
    )
    everywhere = intervals.drop("fid")
    if largest <= SHARD:
        subjects = subjects.withColumn("shard", F.lit(0))
        everywhere = everywhere.withColumn("shard", F.lit(0))
    else:
        shards = F.broadcast(
            runs.select("trace", F.ceil(F.col("acts") / SHARD).cast("int").alias("shards"))
        )
        subjects = (
            subjects.join(shards, "trace")
            .withColumn("shard", F.pmod(F.xxhash64("subject"), F.col("shards")).cast("int"))
            .drop("shards")
        )
        everywhere = (
            everywhere.join(shards, "trace")
            .where("shards > 0")
            .withColumn("shard", F.explode(F.sequence(F.lit(0), F.col("shards") - 1)))
            .drop("shards")
        )
    # Columns of both sides come from the same rows; as new columns they can be told apart.
    everywhere = everywhere.toDF(*everywhere.columns)
    keys = ("trace", "shard")
    relevant = partial(_relevant, vocabulary=Vocabulary.of_this_process())
    return (
        subjects.groupBy(*keys).cogroup(everywhere.groupBy(*keys)).applyInArrow(relevant, _SCHEMA)
    )


def _relevant(subjects: pa.Table, intervals: pa.Table, *, vocabulary: Vocabulary) -> pa.Table:
    """One shard: runs in a worker."""
    claim_kernel_cache()
    vocabulary.install()
    subjects, intervals = subjects.combine_chunks(), intervals.combine_chunks()
    filters = intervals["filter"].combine_chunks().dictionary_encode()
    held = _Held(intervals, filters.indices.to_numpy(zero_copy_only=False).astype(np.int64))
    index = _compiled(tuple(filters.dictionary.to_pylist()))
    found: list[pa.Table] = []
    for start in range(0, subjects.num_rows if len(index) else 0, _ROWS):
        portion = subjects.slice(start, _ROWS)
        rows, keys = index.match_batch(decoded(portion))
        for chosen, pairs in held.expand(rows, keys.astype(np.int64)):
            found.append(_related(portion, intervals, chosen, pairs))
    schema = _related(subjects.slice(0, 0), intervals, held.none, held.none).schema
    return pa.concat_tables(found) if found else schema.empty_table()


class _Held:
    """The intervals of each filter: rows of the table, sorted by filter."""

    def __init__(self, intervals: pa.Table, filter_of: Longs) -> None:
        self.none: Longs = np.empty(0, np.int64)
        self._rows: Longs = np.argsort(filter_of, kind="stable")
        kinds = int(filter_of.max()) + 1 if len(filter_of) else 0
        self._starts: Longs = np.searchsorted(filter_of[self._rows], np.arange(kinds + 1))

    def expand(self, rows: Longs, filters: Longs) -> Iterator[tuple[Longs, Longs]]:
        """For matches of rows and filters, the pairs of rows and intervals, not all at once."""
        starts = self._starts[filters]
        counts = self._starts[filters + 1] - starts
        total = np.cumsum(counts)
        first = 0
        while first < len(rows):
            before = total[first - 1] if first else 0
            end = max(first + 1, int(np.searchsorted(total, before + _PAIRS, side="right")))
            size = counts[first:end]
            offsets = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
            yield (
                np.repeat(rows[first:end], size),
                self._rows[np.repeat(starts[first:end], size) + offsets],
            )
            first = end


def _related(subjects: pa.Table, intervals: pa.Table, rows: Longs, pairs: Longs) -> pa.Table:
    """Of these pairs of subjects and intervals, those that have to do with each other."""
    at, last = _longs(subjects["subject"])[rows], _longs(subjects["last"])[rows]
    since = _longs(intervals["since"])[pairs]
    until = _longs(intervals["until"].fill_null(_FOREVER))[pairs]
    advertised = _booleans(intervals["advertised"])[pairs]
    published = _booleans(subjects["is_published"])[rows]
    own = _codes(subjects["comp"], intervals["comp"])
    # A delivery of what was not published is the only action that its content decides about.
    last = np.where(published, last, at)
    keep = np.where(
        advertised,
        published & (since < at) & (until > at) & (own[0][rows] == own[1][pairs]),
        (since < last) & (until > at),
    )
    rows, pairs = rows[keep], pairs[keep]
    of_subject = subjects.select(["trace", "subject", "is_published"]).take(rows)
    of_interval = intervals.select(
        ["advertised", "comp", "since", "until", "settled", "number"]
    ).take(pairs)
    table = of_subject
    for name, column in zip(of_interval.column_names, of_interval.columns, strict=True):
        table = table.append_column(name, column)
    return table


def decoded(table: pa.Table, body: str = "body") -> list[Envelope]:
    """What filters see of notifications; `PipelineError` names one that cannot be read."""
    try:
        envelopes = decode_headers(table[body].to_pylist())
    except DecodeError as error:
        run, nid = table["trace"][error.index].as_py(), table["nid"][error.index].as_py()
        raise PipelineError(f"the body of {nid} in trace {run!r} is unreadable: {error}") from error
    for run, nid, envelope in zip(
        table["trace"].to_pylist(), table["nid"].to_pylist(), envelopes, strict=True
    ):
        if str(envelope.id) != nid:
            raise PipelineError(
                f"trace {run!r} has a notification {nid} whose body says {envelope.id}"
            )
    return envelopes


@lru_cache(maxsize=65_536)
def filter_of(text: str) -> Filter:
    """The filter of a text; the same few are asked for over and over."""
    return Filter(text)


_indexes: Final[OrderedDict[tuple[str, ...], Index[int]]] = OrderedDict()


def _compiled(texts: tuple[str, ...]) -> Index[int]:
    """The filters, by their places."""
    found = _indexes.pop(texts, None)
    if found is None:
        if len(_indexes) >= _COMPILED:
            _indexes.popitem(last=False)
        found = Index(enumerate(map(filter_of, texts)), background=False)
    _indexes[texts] = found
    return found


def _longs(column: pa.ChunkedArray) -> Longs:
    return _flat(column).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _booleans(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    return _flat(column).to_numpy(zero_copy_only=False).astype(bool)  # type: ignore[no-any-return]


def _flat(column: pa.ChunkedArray) -> Any:
    return column.combine_chunks()


def _codes(*columns: pa.ChunkedArray) -> Sequence[Longs]:
    """The texts of columns as numbers, equal for equal texts."""
    sizes = [len(column) for column in columns]
    together = pa.chunked_array([_flat(column) for column in columns]).combine_chunks()
    codes = together.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.split(codes, np.cumsum(sizes)[:-1])
