"""`spark.read`: what the journals hold, once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.datasource import Filter as Predicate
from pyspark.sql.types import StructType

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.filters.language.parser import MAX_LENGTH
from stentor.pipeline.columns import BatchMaker, Layout
from stentor.pipeline.source.journals import Journals
from stentor.pipeline.source.offsets import Offset, Range, ranges
from stentor.pipeline.source.options import EARLIEST, LATEST, Reading
from stentor.pipeline.source.reading import read_range


class BatchReader(DataSourceReader):
    """Reads the journals of all listed brokers, each in ranges, in parallel."""

    def __init__(self, schema: StructType, options: Reading) -> None:
        Layout(schema)  # what cannot be read is refused before anything starts
        self._schema = schema
        self._options = options
        self._filter = options.filter

    def pushFilters(self, filters: list[Predicate]) -> Iterable[Predicate]:  # noqa: N802
        """Have the brokers leave out what Spark would.

        Spark evaluates all of them again: a broker's answer is at most too generous.
        """
        from stentor.pipeline.filters import from_predicates

        found = Filter(self._filter)
        for predicate in filters:
            try:
                narrower = found & from_predicates([predicate], self._schema)[0]
            except StentorError:
                continue  # too much for one filter; without it, brokers send more
            if len(str(narrower)) <= MAX_LENGTH:
                found = narrower
        self._filter = str(found)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with Journals(options.connecting) as journals:
            seen = journals.all_seen()
            journals.check_named(seen, options.starting, "startingOffsets")
            journals.check_named(seen, options.ending, "endingOffsets")
            found = seen.journals
            begin = {s: journals.offset_of(j, options.starting, EARLIEST) for s, j in found.items()}
            end = {s: journals.offset_of(j, options.ending, LATEST) for s, j in found.items()}
        addresses = {stream: journal.address for stream, journal in found.items()}
        planned = ranges(Offset(begin), Offset(end), options.rows_per_partition, addresses)
        return list(planned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):  # Spark's own, if there is nothing to read
            return iter(())
        maker = BatchMaker(self._schema, self._options.mode)
        return read_range(partition, self._options, self._filter, maker)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__
