"""Where an archive ends and the journals go on.

The manifests say for each journal up to which offset everything is in the archive. Who reads the
archive first and the journals behind it has each event once, if events of the archive beyond that
are left out: there may be some, where several queries write into one archive and one of them is
behind the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from stentor.pipeline.archives.manifests import File
from stentor.pipeline.archives.ordering import journals_of

_NEVER = 2**63 - 1


def left_to_brokers(file: File, positions: Mapping[str, int]) -> bool:
    """Whether the journals bring all of its events."""
    return not file.outside and all(
        first >= positions[journal] for journal, (first, _) in file.offsets.items()
    )


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
