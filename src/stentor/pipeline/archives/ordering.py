"""The order of an archive: when the turn of each event comes.

Events are kept, and replayed, in the order of their time. But time alone is not enough: the events
of a producer must stay in the order in which it published them (T-9), and its clock may have been
set back, or it may have set the times itself. Within a journal the offsets say what came first. So
each event has a *turn*: the latest time of all events of its journal up to itself. As long as
clocks go forward, the turn is the time. An event that says it is older than one before it has its
turn together with that one. Among equal turns the journal and the offset decide. So the order

    (turn, journal, epoch, number)

is nearly that of time, and always that of each journal. Events without an offset are ordered in the
same way by their ids: producer, epoch and sequence take the place of journal and offset.

One clock that is years ahead must not take all that follows in its journal along with it. So a time
that is more than a day later than the clock of the archiver (`AHEAD`) is not believed: the event
has its turn together with the one before it, as one without a time has. Without any before it, its
turn is before all others.

Each data file is in this order, which makes merging files a matter of looking at their heads. Where
turn and time differ, the file has the turn in a column of its own. It is known within what a task
has written; what came before in the same journal is known when all tasks have reported, and then
the manifest says as of when the turns of a file begin (`File.floors`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stentor.pipeline.archives.schemas import TURN

Ints = NDArray[np.int64]

#: The turn of events without a time: before all others.
NEVER: Final = -(2**63)
#: Later than any time.
FOREVER: Final = 2**63 - 1
#: Microseconds by which clocks may be ahead of the archiver's.
AHEAD: Final = 86_400_000_000
#: The place of events without an offset among the journals: before all others.
NOWHERE: Final = -1

_WRITTEN: Final = r"(?s)^(?P<producer>.+):(?P<epoch>[0-9]{1,19}):(?P<sequence>[0-9]{1,19})$"


class Span(msgspec.Struct, array_like=True, frozen=True):
    """The events of one journal in one piece of work: offsets, and turns in microseconds."""

    first: int
    last: int
    earliest: int
    latest: int


@dataclass
class Ranks:
    """What the order of some rows depends on, as columns."""

    turn: Ints
    #: Number of the journal among all names in order, or `NOWHERE`.
    journal: Ints
    epoch: Ints
    number: Ints

    def order(self, *first: Ints) -> Ints:
        """The rows in order; by other columns first, if any are given."""
        keys = (self.number, self.epoch, self.journal, self.turn, *reversed(first))
        return np.lexsort(keys).astype(np.int64)

    def take(self, rows: Ints | slice) -> Ranks:
        return Ranks(self.turn[rows], self.journal[rows], self.epoch[rows], self.number[rows])

    def at(self, row: int) -> tuple[int, int, int, int]:
        return (
            int(self.turn[row]),
            int(self.journal[row]),
            int(self.epoch[row]),
            int(self.number[row]),
        )

    def up_to(self, rank: tuple[int, int, int, int]) -> int:
        """How many rows, of rows in order, are not behind this rank."""
        low, high = 0, len(self.turn)
        for column, value in zip(self._columns(), rank, strict=True):
            part = column[low:high]
            start = low + int(np.searchsorted(part, value, "left"))
            high = low + int(np.searchsorted(part, value, "right"))
            low = start
        return high

    def _columns(self) -> Sequence[Ints]:
        return self.turn, self.journal, self.epoch, self.number

    @staticmethod
    def joined(parts: Sequence[Ranks]) -> Ranks:
        columns = zip(*(part._columns() for part in parts), strict=True)
        return Ranks(*(np.concatenate(column) for column in columns))


def times_of(table: pa.Table | pa.RecordBatch) -> Ints:
    """`_time` in microseconds, `NEVER` where there is none."""
    return _micros(table, "_time", NEVER)


def journals_of(table: pa.Table | pa.RecordBatch) -> pa.Array:
    """By row the journal: its id, or else the broker's name; null without an offset."""
    names = table.schema.names
    found = [_array(table, name) for name in ("_stream", "_broker") if name in names]
    if not found or "_offset" not in names:
        return pa.nulls(table.num_rows, pa.string())
    journal = found[0] if len(found) == 1 else pc.coalesce(*found)
    return pc.if_else(pc.is_valid(_array(table, "_offset")), journal, pa.scalar(None, pa.string()))


def ranks_of(table: pa.Table | pa.RecordBatch, journals: Mapping[str, int]) -> Ranks:
    """The ranks of rows whose turns are known: those of a data file.

    `journals` numbers all journals in the order of their names.
    """
    time = times_of(table)
    turn = np.where((own := _micros(table, TURN, FOREVER)) == FOREVER, time, own)
    places, epoch, number, _ = _places(table, journals)
    return Ranks(turn, places, epoch, number)


def ranked(table: pa.Table, believed: int = FOREVER) -> tuple[Ranks, list[str], dict[str, Span]]:
    """The ranks of new rows, the names of their journals, and what part of each they are.

    Times later than `believed` do not count.
    """
    written = journals_of(table)
    names = sorted(name for name in pc.unique(written).to_pylist() if name is not None)
    places, epoch, number, producer = _places(table, {name: i for i, name in enumerate(names)})
    time = times_of(table)
    time[time > believed] = NEVER
    # Journals come first; producers of what is in no journal are numbered behind them.
    group = np.where(places == NOWHERE, producer + len(names), places)
    turn = _latest_so_far(time, group, np.lexsort((number, epoch, group)))
    spans = {}
    for place, name in enumerate(names):
        rows = places == place
        offsets, turns = number[rows], turn[rows]
        spans[name] = Span(*(int(n) for n in (*_ends(offsets), *_ends(turns))))
    return Ranks(turn, places, epoch, number), names, spans


def _ends(numbers: Ints) -> tuple[np.int64, np.int64]:
    return numbers.min(), numbers.max()


def _latest_so_far(time: Ints, group: Ints, order: Ints) -> Ints:
    """The running maximum of the time within each group, in an order that is sorted by group."""
    sorted_time, sorted_group = time[order], group[order]
    same = sorted_group[1:] == sorted_group[:-1]
    back = same & (sorted_time[1:] < sorted_time[:-1])
    if not back.any():
        return time
    starts = np.concatenate(([0], np.flatnonzero(~same) + 1, [len(order)]))
    for group_number in np.unique(np.searchsorted(starts, np.flatnonzero(back), "right") - 1):
        part = slice(starts[group_number], starts[group_number + 1])
        sorted_time[part] = np.maximum.accumulate(sorted_time[part])
    turn = np.empty_like(time)
    turn[order] = sorted_time
    return turn


def floors(
    pieces: Sequence[Mapping[str, Span]], next: Mapping[str, int], latest: Mapping[str, int]
) -> list[dict[str, int]]:
    """For each piece of work and journal, when its turns begin, if that is later than it knows.

    A piece is behind another if all its offsets are; of pieces that interleave, it is only known
    which one begins first. `next` and `latest` say where the writer was before.
    """
    found: list[dict[str, int]] = [{} for _ in pieces]
    for journal in {name for piece in pieces for name in piece}:
        spans = [(i, piece[journal]) for i, piece in enumerate(pieces) if journal in piece]
        ended = _latest_before((span.last, span.latest) for _, span in spans)
        begun = _latest_before((span.first, span.earliest) for _, span in spans)
        for i, span in spans:
            floor = max(ended(span.first), begun(span.first))
            if next.get(journal, span.first + 1) <= span.first:
                floor = max(floor, latest.get(journal, NEVER))
            if floor > span.earliest:
                found[i][journal] = floor
    return found


def _latest_before(turns: Iterable[tuple[int, int]]) -> Callable[[int], int]:
    """Of offsets and turns: the latest turn before a given offset."""
    known = sorted(turns)
    offsets = [offset for offset, _ in known]
    latest = [NEVER, *accumulate((turn for _, turn in known), max)]
    return lambda offset: latest[bisect_left(offsets, offset)]


def numbered(names: Iterable[str]) -> dict[str, int]:
    """Journals by name, numbered in order."""
    return {name: number for number, name in enumerate(sorted(names))}


# -- columns


def _places(table: pa.Table | pa.RecordBatch, journals: Mapping[str, int]) -> tuple[Ints, ...]:
    """Journal, epoch and number of each row, and a number for its producer where that counts."""
    written = journals_of(table).dictionary_encode()
    known = [journals[name] for name in written.dictionary.to_pylist()]
    codes = written.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    places = np.array([*known, NOWHERE], np.int64)[codes]
    epoch = np.zeros(table.num_rows, np.int64)
    number = _ints(table, "_offset")
    producer = np.zeros(table.num_rows, np.int64)
    outside = np.flatnonzero(places == NOWHERE)
    if len(outside):
        number[outside] = 0
        if "_id" in table.schema.names:
            ids = _array(table, "_id").take(pa.array(outside))
            parts = pc.extract_regex(ids, _WRITTEN)
            epoch[outside] = _parsed(parts.field("epoch"))
            number[outside] = _parsed(parts.field("sequence"))
            names = parts.field("producer").fill_null("").dictionary_encode()
            producer[outside] = names.indices.to_numpy(zero_copy_only=False)
    return places, epoch, number, producer


def _parsed(texts: pa.Array) -> Ints:
    usable = pc.if_else(pc.fill_null(pc.equal(texts, ""), True), "0", texts)
    found = pc.cast(usable, pa.uint64()).to_numpy(zero_copy_only=False)
    return np.array(np.minimum(found, np.uint64(2**63 - 1)), np.int64)


def _ints(table: pa.Table | pa.RecordBatch, name: str) -> Ints:
    if name not in table.schema.names:
        return np.zeros(table.num_rows, np.int64)
    return np.array(_array(table, name).fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _micros(table: pa.Table | pa.RecordBatch, name: str, missing: int) -> Ints:
    if name not in table.schema.names:
        return np.full(table.num_rows, missing, np.int64)
    numbers = _array(table, name).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return np.array(numbers.fill_null(missing).to_numpy(zero_copy_only=False), np.int64)


def _array(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
