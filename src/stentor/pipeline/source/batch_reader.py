"""`spark.read`: what the journals hold, once.

Spark's predicates do not reach the brokers. Spark 4.3 could hand them over, but keeps what a reader
has made of them in a place that all queries on the same DataFrame share, and with it the rows of
one query become those of another. In Spark's classes, under `execution.datasources.v2.python`:

    PythonScanBuilder.pushFilters     has Python plan the filtered read, and then calls
    PythonDataSourceV2.setReadInfo    on the provider, which belongs to the relation, not the scan;
    PythonBatch.infoInPython          of every later scan takes `getOrCreateReadInfo` of that

So `df.where("a = 1").count()` would leave `df.count()` counting the same rows; of two scans in one
plan, a union or a self join, both would read what was planned last. There is no hook by which a
reader could notice. What brokers are to leave out is said by the option `filter`, which is part of
the relation, and by `Events.where`, which makes a new one (see `event_table`).

For the same reason a plan is made once for each relation, when it is first executed, and kept: a
DataFrame is a picture of the journals at that moment, however often it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from stentor.pipeline.columns import BatchMaker, Layout
from stentor.pipeline.source.journals import Journals
from stentor.pipeline.source.offsets import Offset, Range, ranges, shares
from stentor.pipeline.source.options import EARLIEST, LATEST, Reading
from stentor.pipeline.source.range_reader import count_range, read_range


class BatchReader(DataSourceReader):
    """Reads the journals of all listed brokers, each in ranges, in parallel."""

    def __init__(self, schema: StructType, options: Reading) -> None:
        Layout(schema)  # what cannot be read is refused before anything starts
        self._schema = schema
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return self._planned()[0]

    def count(self) -> int:
        """How many events there are, without reading them; the driver asks the brokers.

        Journals have no gaps, so where there is no filter their ends say it. Else brokers send the
        offsets of what matches.
        """
        options = self._options
        planned, whole = self._planned()
        if whole and not options.filter:
            found = sum(part.last - part.first + 1 for part in planned)
        else:
            found = sum(count_range(part, options) for part in planned)
        return found if options.limit is None else min(found, options.limit)

    def _planned(self) -> tuple[list[Range], bool]:
        """The ranges that are read, and whether all of it is there."""
        options = self._options
        with Journals(options.connecting) as journals:
            seen = journals.all_seen()
            journals.check_named(seen, options.starting, "startingOffsets")
            journals.check_named(seen, options.ending, "endingOffsets")
            found = seen.journals
            begin = {s: journals.offset_of(j, options.starting, EARLIEST) for s, j in found.items()}
            end = {s: journals.offset_of(j, options.ending, LATEST) for s, j in found.items()}
        addresses = {stream: journal.address for stream, journal in found.items()}
        whole = all(begin[stream] >= journal.low for stream, journal in found.items())
        if options.limit is not None and not options.filter:
            available = {stream: max(0, end[stream] - begin[stream]) for stream in found}
            taken = shares(available, options.limit)
            end = {stream: begin[stream] + count for stream, count in taken.items()}
        return ranges(Offset(begin), Offset(end), options.rows_per_partition, addresses), whole

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):  # Spark's own, if there is nothing to read
            return iter(())
        maker = BatchMaker(self._schema, self._options.mode)
        return read_range(partition, self._options, self._options.filter, maker)
