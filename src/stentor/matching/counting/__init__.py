"""The counting algorithm: each distinct predicate is decided once, then satisfied ones are counted.

engine           `Counting`, the engine
conjunct_index   conjuncts by their predicates, with a counter for each
value_index      the predicates on one attribute, by kind of test
structure        indexes of single kinds: points, half-open ranges, prefixes, patterns, ...
interval_tree    intervals that contain a value
cells            tests on collections
"""

from stentor.matching.counting.engine import Counting

__all__ = ["Counting"]
