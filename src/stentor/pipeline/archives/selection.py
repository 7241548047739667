"""`stentor.history`: what was published and archived, for programs without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stentor.errors import ArchiveError
from stentor.filters import Filter
from stentor.pipeline.archives.columns import typed
from stentor.pipeline.archives.facts import RowFilter
from stentor.pipeline.archives.merge import in_order
from stentor.pipeline.archives.moments import Between, Moment
from stentor.pipeline.archives.places import place_of
from stentor.pipeline.archives.schemas import fitted
from stentor.pipeline.archives.statistics import Pruner, table_schema
from stentor.pipeline.archives.tables import Archive, File, Table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


def history(
    path: str | os.PathLike[str],
    filter: str | Filter = "",
    since: Moment | None = None,
    until: Moment | None = None,
    *,
    version: int | str | datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Selection:
    """What was published and archived, in the order of the archive; read when it is asked for.

        history("archive/", "symbol = 'IBM'", since="1d").to_arrow()

    The filter means what it means for a subscriber. `since` and `until` bound `_time`, the latter
    exclusively: a datetime or ISO text with its zone, or a duration for so long ago. Files that
    cannot hold such events are not read. `version` is an earlier version of the archive, by its
    number or its time; `storage_options` are for object stores, as `deltalake` takes them. With
    Spark, `stentor.pipeline.history` gives the same as a DataFrame.
    """
    wanted = filter if isinstance(filter, Filter) else Filter(filter)
    between = Between.of(since, until)
    archive = Archive(place_of(path, None, storage_options))
    table = archive.table() if version is None else archive.at(version)
    return Selection(table, wanted & between.filter, between)


@dataclass(frozen=True)
class Selection:
    """Events of an archive at one version, which may be read as often as one likes."""

    table: Table
    filter: Filter
    between: Between

    @property
    def schema(self) -> pa.Schema:
        """The columns, as Arrow has them."""
        return table_schema(self.table)

    @property
    def files(self) -> list[File]:
        """The files that have to be read."""
        pruner = Pruner(self.filter, self.table.columns)
        return [file for file in self.table.files.values() if pruner.may_match(file)]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events, a portion at a time, in bounded memory."""
        schema, wanted = self.schema, RowFilter(self.filter)
        place, columns = self.table.place, self.table.columns
        for portion in in_order(place, self.files, columns, self.between):
            for _, _, events in typed(portion.events):
                found = events.filter(pa.array(wanted.matches(events)))
                for batch in found.combine_chunks().to_batches():
                    yield fitted(batch, schema)

    def to_arrow(self) -> pa.Table:
        """All of them, as a table of Arrow's."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All of them, as a DataFrame of pandas.

        Its columns have the types of Arrow, since those of NumPy round integers where some are
        missing.
        """
        return self.to_arrow().to_pandas(types_mapper=_needed("pandas").ArrowDtype)

    def to_polars(self) -> pl.DataFrame:
        """All of them, as a DataFrame of Polars."""
        found: Any = _needed("polars").from_arrow(self.to_arrow())
        return found  # type: ignore[no-any-return]


def _needed(library: str) -> Any:
    from importlib import import_module

    try:
        return import_module(library)
    except ModuleNotFoundError:
        raise ArchiveError(
            f"{library} is not installed; pip install {library}, or use to_arrow()"
        ) from None
