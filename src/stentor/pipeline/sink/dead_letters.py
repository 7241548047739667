"""Rows that cannot be published, put aside where somebody can look at them.

By default one such row ends the query. With the option `deadLetters`, a path, they are written
there instead, as Parquet: the row as it was, and what is wrong with it. What cannot be published
depends on the row alone, so a task that is tried again puts the same rows aside. Its file is named
after the query, the batch and the partition, and takes the place of the one that an earlier attempt
has written: each row is there once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from stentor.notation.counts import counted
from stentor.pipeline.sink.tasks import Task

#: The columns that are added to those of the row.
ERROR: Final = "_error"
BATCH: Final = "_batch"

_log: Final = logging.getLogger("stentor.pipeline")


@dataclass
class DeadLetters:
    """The rows of one task that were put aside."""

    path: str
    task: Task
    _rows: list[pa.RecordBatch] = field(default_factory=list)
    _errors: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, row: pa.RecordBatch, error: Exception) -> None:
        """Put a row aside."""
        self._rows.append(row)
        self._errors.append(str(error))

    def write(self) -> None:
        """Write them all, in place of what an earlier attempt has written."""
        if not self._rows:
            return
        task = self.task
        table = pa.Table.from_batches(self._rows)
        table = table.append_column(ERROR, pa.array(self._errors, pa.string()))
        table = table.append_column(BATCH, pa.repeat(task.epoch, len(self)).cast(pa.int64()))
        name = f"{task.query}-{task.epoch}-{task.partition}".replace("/", "-")
        system, folder = fs.FileSystem.from_uri(self.path)
        system.create_dir(folder)
        # Readers of the folder pass over names that begin with a dot.
        begun = f"{folder}/.{name}.begun"
        pq.write_table(table, begun, filesystem=system)
        system.move(begun, f"{folder}/{name}.parquet")
        _log.warning(
            "%s of batch %d cannot be published and went to %s; the first: %s",
            counted(len(self), "row"),
            task.epoch,
            self.path,
            self._errors[0],
        )
