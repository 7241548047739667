"""Which filters of a table cover, are covered by, equal or overlap a given one.

filter_table   `FilterTable`, the table with its queries
buckets        conjuncts by shape and by their equalities
point_index    conjuncts by a value that they accept
"""

from stentor.matching.relations.filter_table import FilterTable

__all__ = ["FilterTable"]
