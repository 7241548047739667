"""Matching engines: which filters match this notification?"""

from stentor.matching.index import Index, IndexMemory

__all__ = ["Index", "IndexMemory"]
