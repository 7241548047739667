"""The order of an archive: when the turn of each event comes.

Events are replayed in the order of their time. But time alone is not enough: the events of a
producer must stay in the order in which it published them (T-9), and its clock may have been set
back, or it may have set the times itself. Within a journal the offsets say what came first. So each
event has a *turn*: the latest time of all events of its journal up to itself. As long as clocks go
forward, the turn is the time. An event that says it is older than one before it has its turn
together with that one. So the order

    (turn, journal, offset)

is nearly that of time, and always that of each journal. A data file holds events of one journal, in
the order of their offsets, and the turns follow when files are read: as the latest time so far.

One clock that is years ahead must not take all that follows in its journal along with it. So a time
that is more than a day later than the file that holds it (`AHEAD`) is not believed: the event has
its turn together with the one before it, as one without a time has. Without any before it, its turn
is before all others.

Events without an offset are ordered in the same way by their ids: the producer takes the place of
the journal, epoch and sequence that of the offset. There may be very many producers, so what a task
has of all of them becomes one file, whose rows are in the order of their turns. Then, too, the turn
of a row is the latest time so far.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stentor.pipeline.archives.tables import NEVER

Ints = NDArray[np.int64]

#: Microseconds by which clocks may be ahead of the archiver's.
AHEAD: Final = 86_400_000_000

#: The greatest offset.
_BEHIND_ALL: Final = 2**63 - 1

_WRITTEN: Final = r"(?s)^(?P<producer>.+):(?P<epoch>[0-9]{1,19}):(?P<sequence>[0-9]{1,19})$"


def times_of(table: pa.Table | pa.RecordBatch) -> Ints:
    """`_time` in microseconds, `NEVER` where there is none."""
    if "_time" not in table.schema.names:
        return np.full(table.num_rows, NEVER, np.int64)
    numbers = _array(table, "_time").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return np.array(numbers.fill_null(NEVER).to_numpy(zero_copy_only=False), np.int64)


def offsets_of(table: pa.Table | pa.RecordBatch) -> Ints:
    """`_offset`, 0 where there is none."""
    if "_offset" not in table.schema.names:
        return np.zeros(table.num_rows, np.int64)
    found = _array(table, "_offset").fill_null(0).to_numpy(zero_copy_only=False)
    return np.array(found, np.int64)


def journals_of(table: pa.Table | pa.RecordBatch) -> pa.Array:
    """By row the journal: its id, or else the broker's name; null without an offset."""
    names = table.schema.names
    found = [_array(table, name) for name in ("_stream", "_broker") if name in names]
    if not found or "_offset" not in names:
        return pa.nulls(table.num_rows, pa.string())
    journal = found[0] if len(found) == 1 else pc.coalesce(*found)
    return pc.if_else(pc.is_valid(_array(table, "_offset")), journal, pa.scalar(None, pa.string()))


def before(events: pa.Table, positions: Mapping[str, int]) -> pa.Array | None:
    """Which events journals do not bring that are read from these positions on; None for all."""
    if not positions or "_offset" not in events.schema.names:
        return None
    journals = journals_of(events).dictionary_encode()
    ends = [positions.get(name, _BEHIND_ALL) for name in journals.dictionary.to_pylist()]
    codes = journals.indices.fill_null(len(ends)).to_numpy(zero_copy_only=False)
    keep = offsets_of(events) < np.array([*ends, _BEHIND_ALL], np.int64)[codes]
    return None if keep.all() else pa.array(keep)


def journal_code(journal: str) -> int:
    """What decides between equal turns of two journals: a number of its own for each."""
    return int.from_bytes(hashlib.blake2b(journal.encode(), digest_size=8).digest()) >> 1


def believed(time: Ints, modified: int) -> Ints:
    """The times, without those that are too far ahead of a file."""
    return np.where(time > modified + AHEAD, NEVER, time)


def in_file_order(table: pa.Table, journals: Ints, modified: int) -> Ints:
    """The rows of new data in the order in which a file has them, journal by journal.

    `journals` numbers the journal of each row, and is -1 without.
    """
    offsets = offsets_of(table)
    outside = np.flatnonzero(journals < 0)
    if len(outside):
        offsets[outside] = _ranks(table.take(pa.array(outside)), modified)
    if bool(np.all(np.diff(offsets) >= 0)) and bool(np.all(np.diff(journals) == 0)):
        return np.arange(len(offsets))
    return np.lexsort((offsets, journals)).astype(np.int64)


def _ranks(table: pa.Table, modified: int) -> Ints:
    """The places of events that are in no journal among each other."""
    count = table.num_rows
    epoch = number = producer = np.zeros(count, np.int64)
    if "_id" in table.schema.names:
        parts = pc.extract_regex(_array(table, "_id"), _WRITTEN)
        epoch, number = (_parsed(pc.struct_field(parts, part)) for part in ("epoch", "sequence"))
        names = pc.struct_field(parts, "producer").fill_null("").dictionary_encode()
        producer = names.indices.to_numpy(zero_copy_only=False)
    time = believed(times_of(table), modified)
    turn = _latest_so_far(time, producer, np.lexsort((number, epoch, producer)))
    ranks = np.empty(count, np.int64)
    ranks[np.lexsort((number, epoch, turn))] = np.arange(count)
    return ranks


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


def _parsed(texts: pa.Array) -> Ints:
    usable = pc.if_else(pc.fill_null(pc.equal(texts, ""), True), "0", texts)
    found = pc.cast(usable, pa.uint64()).to_numpy(zero_copy_only=False)
    return np.array(np.minimum(found, np.uint64(2**63 - 1)), np.int64)


def _array(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
