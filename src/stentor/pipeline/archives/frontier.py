"""Where an archive ends and the journals go on.

The commits say for each journal up to which offset everything is in the archive. Who reads the
archive first and the journals behind it has each event once, if events of the archive beyond that
are left out: there may be some, where several queries write into one archive and one of them is
behind the others.

A query that holds events back in its state, as one does that sorts them, has read further than it
has archived. Then nobody can say where the archive ends.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from stentor.errors import ArchiveError
from stentor.pipeline.archives.order import journals_of
from stentor.pipeline.archives.tables import File, Table

_NEVER = 2**63 - 1


def check_complete(table: Table) -> None:
    """`ArchiveError` if the archive cannot say which events of the journals it has."""
    holding = sorted(name for name, progress in table.progress.items() if progress.holds)
    if holding:
        raise ArchiveError(
            f"the query {holding[0]!r}, which writes the archive at {table.place.root}, holds "
            "events back, so nobody can say where the journals go on; archive the events before "
            "they are ordered or aggregated, into another archive"
        )


def left_to_brokers(file: File, positions: Mapping[str, int]) -> bool:
    """Whether the journals bring all of its events."""
    return file.journal is not None and file.offsets[0] >= positions[file.journal]


def before(events: pa.Table, positions: Mapping[str, int]) -> pa.Array | None:
    """Which events the journals do not bring; None for all."""
    if not positions or "_offset" not in events.schema.names:
        return None
    journals = journals_of(events).dictionary_encode()
    ends = [positions.get(name, _NEVER) for name in journals.dictionary.to_pylist()]
    codes = journals.indices.fill_null(len(ends)).to_numpy(zero_copy_only=False)
    limit = np.array([*ends, _NEVER], np.int64)[codes]
    offsets = events.column("_offset").fill_null(0).to_numpy()
    keep = offsets < limit
    return None if keep.all() else pa.array(keep)
