"""Matching engines: which filters match this notification?

`Index` is the engine to use. `BruteForce` is the oracle, `Counting` the algorithm of the
literature, and `FilterTable` answers questions about filters instead of notifications. `Commons`
answer for many tables at once.
"""

from stentor.matching.brute import BruteForce
from stentor.matching.commons import Commons
from stentor.matching.counting import Counting
from stentor.matching.index import Index, IndexMemory
from stentor.matching.protocol import Matcher
from stentor.matching.relations import FilterTable

__all__ = [
    "BruteForce",
    "Commons",
    "Counting",
    "FilterTable",
    "Index",
    "IndexMemory",
    "Matcher",
]
