"""Goes through a journal that may be damaged, and finds everything that is still good.

Blocks are visited from the newest down. The state says what the checksum of the newest is, and each
block says it of the one before, so every block on the way is known to be the one that was written.
Behind a damaged stretch that is not known any more, and a block's own checksum has to do.

A page that SQLite cannot read hides all rows on it. The search then goes down by steps that double
until rows can be read again, and back up by halves to the edge.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from stentor.broker.storage.blocks import BlockHeader, intact
from stentor.broker.storage.database import (
    COLUMNS,
    HEADERS,
    JournalState,
    checksum,
    has_schedule,
    header,
    when,
)

_BELOW: Final = HEADERS + " WHERE first <= ? ORDER BY first DESC LIMIT 1"
#: Whatever reading damaged rows may raise.
Unreadable: Final = (sqlite3.Error, TypeError, ValueError, OverflowError)


@dataclass
class Extent:
    """Consecutive offsets with the same fate."""

    first: int
    last: int
    #: When they were journaled; of lost ones, between what and what they were.
    earliest: float | None
    latest: float | None
    #: Why they are lost; None if they are good.
    why: str | None = None

    def __str__(self) -> str:
        offsets = f"offset {self.first}"
        if self.last != self.first:
            offsets = f"offsets {self.first}..{self.last}"
        return f"{offsets}, journaled between {when(self.earliest)} and {when(self.latest)}"


@dataclass
class Scan:
    """What was found."""

    #: From the lowest offset up, good and lost ones.
    stretches: list[Extent] = field(default_factory=list)
    blocks: int = 0

    @property
    def good(self) -> list[Extent]:
        return [stretch for stretch in self.stretches if stretch.why is None]

    @property
    def lost(self) -> list[Extent]:
        return [stretch for stretch in self.stretches if stretch.why is not None]


def bounds(db: sqlite3.Connection, state: JournalState | None) -> tuple[int, int]:
    """The first and last offset, as well as can be known."""
    if state is not None:
        return state.low, state.head
    try:
        (low,) = db.execute("SELECT min(first) FROM block").fetchone()
        newest = header(db.execute(HEADERS + " ORDER BY first DESC LIMIT 1").fetchone())
        return low, max(newest.last, newest.first)
    except Unreadable:
        return 1, 0


def scan(db: sqlite3.Connection, low: int, head: int, tail: int | None) -> Scan:
    """Visit the blocks from `head` down to `low`."""
    found = Scan()
    downward: list[Extent] = []
    expected, offset = tail, head
    while offset >= low:
        first, last, time, why, previous = _visit(db, low, offset, expected)
        if last < offset:
            _join(downward, Extent(last + 1, offset, None, None, "a block is missing"))
        _join(downward, Extent(first, last, time, time, why))
        found.blocks += why is None
        expected = previous
        offset = first - 1
    found.stretches = downward[::-1]
    _date(found.stretches)
    return found


def _visit(
    db: sqlite3.Connection, low: int, offset: int, expected: int | None
) -> tuple[int, int, float | None, str | None, int | None]:
    """The block at or below an offset: its extent, time, fault, and what the one before must be."""
    try:
        row = db.execute(_BELOW, (offset,)).fetchone()
        if row is None:
            return low, offset, None, "a block is missing", None
        block = header(row)
        last = block.last
    except Unreadable as error:
        return _readable(db, low, offset) + 1, offset, None, f"unreadable ({error})", None
    if block.first < low:
        return low, offset, None, "a block is missing", None
    if not block.first <= last <= offset:
        return block.first, offset, None, "a block was altered", None
    why = fault(db, block)
    if why is None and last == offset and expected is not None and block.crc != expected:
        why = "a block is not the one that was written"
    if why is not None:
        return block.first, last, None, why, None
    return block.first, last, block.time, None, block.previous


def fault(db: sqlite3.Connection, block: BlockHeader) -> str | None:
    """What is wrong with a block in itself."""
    try:
        (data,) = db.execute("SELECT data FROM block WHERE first = ?", (block.first,)).fetchone()
    except Unreadable as error:
        return f"unreadable ({error})"
    return None if intact(block, data) else "a block was altered"


def _readable(db: sqlite3.Connection, low: int, offset: int) -> int:
    """The highest offset below an unreadable place where a block can be found again."""

    def reads(place: int) -> bool:
        try:
            row = db.execute(_BELOW, (place,)).fetchone()
            return row is None or header(row).last >= row[0]
        except Unreadable:
            return False

    return _edge(reads, low - 1, offset)


def _edge(reads: Callable[[int], bool], floor: int, ceiling: int) -> int:
    """The place right below `ceiling` where reading works again; `floor` if there is none."""
    bad, step = ceiling, 1
    while True:
        good = bad - step
        if good <= floor:
            good = floor
            break
        if reads(good):
            break
        bad, step = good, step * 2
    while bad - good > 1:
        middle = (good + bad) // 2
        if reads(middle):
            good = middle
        else:
            bad = middle
    return good


def _join(downward: list[Extent], below: Extent) -> None:
    """Add the next stretch further down, to the last one if it is of the same kind."""
    above = downward[-1] if downward else None
    if above is not None and (above.why is None) == (below.why is None):
        above.first = below.first
        above.earliest = below.earliest
        if below.why is not None and below.why not in (above.why or ""):
            above.why = f"{below.why}; {above.why}"[:200]
    else:
        downward.append(below)


def _date(stretches: list[Extent]) -> None:
    """Lost stretches lie between the good ones beside them."""
    for index, stretch in enumerate(stretches):
        if stretch.why is not None:
            stretch.earliest = stretches[index - 1].latest if index else None
            beside = index + 1 < len(stretches)
            stretch.latest = stretches[index + 1].earliest if beside else None


# -- the small tables


@dataclass
class Rows:
    """The good rows of a small table."""

    rows: list[tuple[Any, ...]]
    #: What is wrong with the others.
    problems: list[str]


def rows(db: sqlite3.Connection, table: str) -> Rows:
    """All good rows of a table. If some cannot be read, the others are sought from both ends."""
    found: dict[Any, tuple[Any, ...]] = {}
    problems: list[str] = []
    for direction in ("ASC", "DESC"):
        try:
            for row in _select(db, table, direction):
                if checksum(*row[:-1]) == row[-1]:
                    found[row[0]] = row[:-1]
                elif direction == "ASC":
                    problems.append(f"in the table {table!r}, the row {row[0]!r} was altered")
            break
        except Unreadable as error:
            if direction == "ASC":
                problems.append(f"the table {table!r} cannot be read completely ({error})")
    return Rows(list(found.values()), problems)


def _select(db: sqlite3.Connection, table: str, direction: str) -> Iterator[tuple[Any, ...]]:
    if table == "scheduled" and not has_schedule(db):
        return
    columns = COLUMNS[table]
    key = "rowid" if table != "producer" else columns.split(",")[0]
    yield from db.execute(f"SELECT {columns}, crc FROM {table} ORDER BY {key} {direction}")
