"""A sample of what the brokers hold, the oldest and the newest, to infer a schema from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.types import StructType

from stentor.client.direct import Direct
from stentor.pipeline.columns import all_attributes, infer, with_reserved
from stentor.pipeline.source.journals import JournalPlace, Journals, opened
from stentor.pipeline.source.options import Reading

#: Events that are looked at, at either end of a journal, for those that the filter matches.
_SCANNED: Final = 100_000


def inferred(options: Reading) -> StructType:
    """The schema of what the options select, with the standard columns."""
    with Journals(options.connecting) as journals:
        seen = journals.all_seen()
    events: list[dict[str, Any]] = []
    for stream in sorted(seen.journals):
        journal = seen.journals[stream]
        with opened(journal.address, options.connecting) as direct:
            events += all_attributes(_sample(direct, journal, options))
    return with_reserved(infer(events, options.attributes))


def _sample(direct: Direct, journal: JournalPlace, options: Reading) -> list[bytes]:
    half = (options.sample + 1) // 2
    oldest: dict[int, bytes] = {}
    last = min(journal.head, journal.low + _SCANNED - 1)
    for offset, item in _read(direct, journal, journal.low, last, options.filter):
        if len(oldest) == half:
            break
        oldest[offset] = item
    newest: dict[int, bytes] = {}
    behind = journal.head + 1
    step = half
    while len(newest) < half and behind > max(journal.low, journal.head + 1 - _SCANNED):
        first = max(journal.low, behind - step)
        newest |= _read(direct, journal, first, behind - 1, options.filter)
        behind, step = first, step * 4
    return list((oldest | dict(sorted(newest.items())[-half:])).values())


def _read(
    direct: Direct, journal: JournalPlace, first: int, last: int, filter: str
) -> Iterator[tuple[int, bytes]]:
    for stretch in direct.read(journal.stream, first, last, filter, skip_lost=True):
        yield from zip(stretch.offsets, stretch.items, strict=True)
