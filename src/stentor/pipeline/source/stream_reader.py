"""`spark.readStream`: what the journals hold, and what comes.

Spark asks for the latest offset, writes it to its checkpoint, plans a batch between the last one
and that, and has tasks read it. The reader keeps no state that matters: after a restart the offsets
say everything (see `offsets`). What can happen between two batches:

    a broker is down        no batch begins until it is back: the watermark of the query would pass
                            what the broker has. If waitForBrokers is false, the others are read,
                            and its journals keep their offsets
    a broker is new         its journal begins where the query's start rule says
    a journal has moved     it is found by its id
    a journal is gone       its broker is up and has another one: an error, unless failOnDataLoss is
    retention was faster    false, then what is gone is passed over

A batch that must not take all that there is takes what is earliest: see `timelines`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from stentor.client.backoff import TRANSIENT
from stentor.client.direct import Direct
from stentor.errors import HistoryGone
from stentor.model.moments import TIME
from stentor.pipeline.columns import BatchMaker, Layout
from stentor.pipeline.source.journals import JournalPlace, Journals, Seen
from stentor.pipeline.source.offsets import Offset, Range, broker_of, ranges
from stentor.pipeline.source.options import EARLIEST, LATEST, Reading
from stentor.pipeline.source.range_reader import read_range
from stentor.pipeline.source.timelines import Timelines
from stentor.protocol.messages import Stretch

_log: Final = logging.getLogger("stentor.pipeline")
_WAITING: Final = "waiting for"
#: Seconds within which all brokers should have said how far their journals go.
_SLOW: Final = 0.25
#: Entries at the end of a batch, of each journal, whose times tell how far it has been read.
_LAST: Final = 100


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the journals of all listed brokers."""

    def __init__(self, schema: StructType, options: Reading) -> None:
        layout = Layout(schema)
        self._schema = schema
        #: What is read of events: whether without their payloads, and which attributes.
        self._headers = not layout.has("_payload")
        self._attributes = layout.asked_for
        self._options = options
        self._journals: Journals | None = None
        #: Where each journal was seen last: a hint for tasks.
        self._addresses: dict[str, str] = {}
        #: With the trigger "available now": what is not read beyond.
        self._targets: dict[str, int] | None = None
        self._timelines = Timelines(self._times, sized=options.bytes_per_batch is not None)
        self._found: dict[str, JournalPlace] = {}
        #: Losses, and brokers that are waited for, that were reported.
        self._warned: set[str] = set()

    # -- offsets, in the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        starting = self._options.starting
        since = 0.0
        if isinstance(starting, float):
            since = starting
        elif starting == LATEST:
            since = time.time()
        journals = self._opened()
        seen = journals.all_seen(at_least=1)  # a list of brokers that are all wrong is noticed
        journals.check_named(seen, starting, "startingOffsets")
        begin = {
            stream: journals.offset_of(journal, starting, EARLIEST)
            for stream, journal in seen.journals.items()
        }
        return Offset(begin, since).dump()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = Offset.of(start)
        while True:
            seen = self._seen()
            if self._must_wait(before, seen):
                if self._targets is None:
                    return start
                seen = (
                    self._opened().all_seen()
                )  # what was available is read, or the run has failed
                self._found = seen.journals
            self._check_lost(before, seen)
            try:
                found = self._next(before, seen, limit)
            except (*TRANSIENT, HistoryGone) as error:
                if isinstance(error, HistoryGone) and self._seen().journals == seen.journals:
                    raise
                # A broker went away while it was asked, or a journal was moved.
                if self._targets is None:
                    return start
            else:
                return start if found is None else found.dump()

    def _next(self, before: Offset, seen: Seen, limit: ReadLimit) -> Offset | None:
        """The end of the next batch; None if there is nothing to read."""
        streams = dict(before.streams)
        positions: dict[str, int] = {}
        heads: dict[str, int] = {}
        for stream, journal in seen.journals.items():
            head = journal.head
            if self._targets is not None:
                head = min(head, self._targets.get(stream, 0))
            position = before.streams.get(stream)
            if position is None:
                position = self._beginning(journal, before)
            if head >= position:
                positions[stream], heads[stream] = position, head
            elif journal.head + 1 < position:  # set back, which was accepted
                streams[stream] = journal.head + 1
        taken = self._taken(positions, heads, limit)
        taken = {stream: count for stream, count in taken.items() if count}
        if not taken and streams == before.streams:
            return None
        begin = {stream: positions[stream] for stream in taken}
        for stream, count in taken.items():
            streams[stream] = begin[stream] + count
        return Offset(streams, before.since, begin, self._read_through(before, begin, streams))

    def _read_through(
        self, before: Offset, begin: Mapping[str, int], streams: Mapping[str, int]
    ) -> dict[str, str | float]:
        """How far each journal is read then, in the time of events."""
        found = dict(before.times)
        for stream, first in begin.items():
            end = streams[stream]
            stretches = self._times(stream, max(first, end - _LAST), end - 1)
            times = [time for each in stretches for time in each.times if time is not None]
            if times:
                latest = max(times)
                told: str | float = latest
                if self._options.time_column == TIME:
                    told = datetime.fromtimestamp(latest, UTC).isoformat()
                known = found.get(stream)
                later = isinstance(known, type(told)) and known > told  # type: ignore[operator]
                found[stream] = known if known is not None and later else told
        return found

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self._options.rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        journals = self._seen().journals
        return Offset({stream: j.head + 1 for stream, j in journals.items()}).dump()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        least = None if self._options.wait_for_brokers else 1
        seen = self._opened().all_seen(at_least=least)
        self._targets = {stream: journal.head for stream, journal in seen.journals.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        size = self._options.rows_per_partition
        return list(ranges(Offset.of(start), Offset.of(end), size, self._addresses))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: brokers keep their journals by their own retention."""

    def stop(self) -> None:
        if self._journals is not None:
            self._journals.close()

    # -- reading, in the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        maker = BatchMaker(self._schema, self._options.mode)
        return read_range(partition, self._options, self._options.filter, maker)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_journals": None, "_timelines": None}

    # -- what the brokers say

    def _opened(self) -> Journals:
        if self._journals is None:
            self._journals = Journals(self._options.connecting)
        return self._journals

    def _seen(self) -> Seen:
        began = time.monotonic()
        seen = self._opened().seen()
        if time.monotonic() - began > _SLOW:
            # What the first ones said is old by now, and a batch is to show all at one time. Who
            # does not answer is not asked again so soon.
            seen = self._opened().seen()
        self._found = seen.journals
        self._addresses |= {stream: j.address for stream, j in seen.journals.items()}
        return seen

    def _must_wait(self, before: Offset, seen: Seen) -> bool:
        """Whether a broker is down that a batch should not be without."""
        if not seen.missed or not self._options.wait_for_brokers:
            self._warned -= {text for text in self._warned if text.startswith(_WAITING)}
            return False
        if self._targets is not None:
            # What comes after the run has begun is not of this run; what was there is.
            return any(
                stream not in seen.journals and before.streams.get(stream, 0) <= head
                for stream, head in self._targets.items()
            )
        self._warn(
            f"{_WAITING} {', '.join(seen.missed)}: no batch begins meanwhile, so that nothing is "
            "late when it is back. If it is gone for good, take it off the list of brokers; to go "
            "on without it, set waitForBrokers to false"
        )
        return True

    def _taken(
        self, positions: Mapping[str, int], heads: Mapping[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """How many entries of each journal the next batch reads."""
        available = {stream: head + 1 - positions[stream] for stream, head in heads.items()}
        everything = sum(available.values())
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else everything
        if self._options.bytes_per_batch is not None and available:
            most_bytes = self._options.bytes_per_batch
            return self._timelines.within(positions, heads, most, most_bytes)
        if most >= everything:
            return available
        if len(available) == 1:
            return dict.fromkeys(available, most)
        return self._timelines.earliest(positions, heads, most)

    def _times(self, stream: str, first: int, last: int) -> list[Stretch]:
        """When the events of a journal were, between two offsets, and how large: not the events.

        They are as large as what is read of them.
        """
        options = self._options

        def read(direct: Direct) -> list[Stretch]:
            return list(
                direct.read(
                    stream,
                    first,
                    last,
                    options.filter,
                    skip_lost=not options.fail_on_data_loss,
                    times=options.time_column,
                    headers=self._headers,
                    attributes=None if options.bytes_per_batch is None else self._attributes,
                )
            )

        return self._opened().ask(self._found[stream], read)

    def _beginning(self, journal: JournalPlace, before: Offset) -> int:
        """Where a journal begins that was not there when the query began."""
        wanted = self._options.starting
        if isinstance(wanted, (str, float)):
            wanted = before.since
        elif any(broker_of(stream) == journal.broker for stream in before.streams):
            return journal.low  # it replaced the one that the option means
        return self._opened().offset_of(journal, wanted, EARLIEST)

    def _check_lost(self, before: Offset, seen: Seen) -> None:
        """Raise if something that is still to be read is gone."""
        for stream, position in before.streams.items():
            broker = broker_of(stream)
            journal = seen.journals.get(stream)
            if journal is None:
                if broker not in seen.answered or seen.silent:
                    continue  # who has it is down: the journal waits
                text = (
                    f"the journal {stream!r} of broker {broker!r}, read up to offset "
                    f"{position - 1}, is gone, although the broker is up. Was its data directory "
                    "replaced? If another broker has taken it over, add that to the list"
                )
            elif journal.low > position:
                text = (
                    f"offsets {position}..{journal.low - 1} of broker {broker!r} (journal "
                    f"{stream!r}) are lost: retention has removed them before they were read"
                )
            elif journal.head + 1 < position:
                text = (
                    f"the journal {stream!r} of broker {broker!r} ends at {journal.head}, but was "
                    f"read up to {position - 1}: it was set back, as by an old copy"
                )
            else:
                continue
            if self._options.fail_on_data_loss:
                raise HistoryGone(
                    f"{text}. To go on with what there is, set failOnDataLoss to false; to start "
                    "anew, use another checkpointLocation; to keep more, raise the retention of "
                    "the broker"
                )
            self._warn(f"{text}; going on without")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)
