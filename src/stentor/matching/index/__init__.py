"""The production index: see `index.index` for its theory, `kernels` for its inner loops."""

from stentor.matching.index.direct import select
from stentor.matching.index.index import Index, IndexMemory

__all__ = ["Index", "IndexMemory", "select"]
