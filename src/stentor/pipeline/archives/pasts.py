"""`past`: an archive as the beginning of a subscription. It starts no Spark.

The archive is read as `replay` reads it, in its order and in bounded memory, up to where the
journals go on (`Table.positions`). Its events become the notifications that they were, under their
own ids, so that a subscriber who gets one of them once more, such as by a publisher's second
attempt at another broker, sees the repeat.

The version of the archive is fixed when the subscription begins, and so are the positions in the
journals: what is archived or compacted meanwhile changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stentor.errors import ArchiveError
from stentor.filters import Filter
from stentor.model import Notification
from stentor.pipeline.archives.moments import Between, Moment
from stentor.pipeline.archives.order import before
from stentor.pipeline.archives.places import Place, place_of
from stentor.pipeline.archives.replayer import Encoders, Events
from stentor.pipeline.archives.tables import Archive, Table

#: Notifications that are handed over at a time.
PORTION = 5_000


def past(
    path: str | os.PathLike[str],
    since: Moment | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> ArchivedPast:
    """The past that an archive has, for `since=` of a subscription.

        async with bus.subscribe("symbol = 'IBM'", since=past("/data/events", "2 days")) as quotes:
            async for quote in quotes: ...

    The subscription begins with what was archived, goes on with what the brokers' journals hold
    behind that, and then with what comes, without a gap and without a repeat. `since` bounds
    `_time`; without it, all is wanted. The archive must know its places in the journals: one that
    a streaming query writes does. `storage_options` are for object stores.
    """
    return ArchivedPast(place_of(path, None, storage_options), Between.of(since))


@dataclass(frozen=True)
class ArchivedPast:
    """An archive, from some time on."""

    place: Place
    between: Between

    def recall(self, filter: Filter) -> ArchivedEvents:
        """What it has for a filter."""
        return ArchivedEvents(Archive(self.place).table(), filter, self.between)


class ArchivedEvents:
    """What an archive has for a subscription."""

    def __init__(self, table: Table, filter: Filter, between: Between) -> None:
        self.filter = filter & between.filter
        self._ends = table.positions()
        self.positions = _positions(table)
        files = [f for f in table.files.values() if not f.is_left_to(self._ends)]
        self._events = Events(table, filter, between, files)

    def portions(self) -> Iterator[list[Notification]]:
        """The notifications in order."""
        encoders = Encoders()
        for portion in self._events.behind():
            events = portion.events
            keep = before(events, self._ends)
            if keep is not None:
                events = events.filter(keep)
            for batch in events.combine_chunks().to_batches(max_chunksize=PORTION):
                if batch.num_rows:
                    yield encoders.of(batch.schema).notifications(batch)


def _positions(table: Table) -> dict[str, int]:
    """By journal, the last offset that the archive has."""
    table.check_complete()
    ends = table.positions()
    streams = {name: end - 1 for name, end in ends.items() if "#" in name}
    brokers = {name.rpartition("#")[0] for name in streams}
    unknown = sorted(name for name in ends if "#" not in name and name not in brokers)
    if unknown or (table.files and not ends):
        of = f" of the broker {unknown[0]!r}" if unknown else ""
        raise ArchiveError(
            f"the archive at {table.place.root} does not say where it is in the journals{of}; "
            "archive a stream of the source 'stentor', or the column `_stream` with `_offset`"
        )
    return streams
