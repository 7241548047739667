"""Exact algebra over sets of strings.

Prefix, suffix, substring, SQL LIKE, regular expressions and ranges in the order of strings all
describe regular languages. As finite automata, covering, overlap and equality are decided without
approximation, and a text is matched in one pass over its characters.

    characters   sets of code points
    syntax       regular expressions as trees
    regex        the regular expression dialect: text to tree
    nfa          nondeterministic automata; matching in linear time
    build        automata for each string constraint
    dfa          deterministic automata; complement, intersection, union, inclusion, overlap
    minimize     the canonical smallest automaton, for equality
"""

from stentor.filters.automata.build import (
    anything,
    between,
    contains,
    from_items,
    from_regex_tree,
    like,
    literal,
    nothing,
    prefix,
    suffix,
)
from stentor.filters.automata.dfa import DEFAULT_LIMIT, Dfa, determinize
from stentor.filters.automata.nfa import Automaton
from stentor.filters.automata.regex import parse_regex

__all__ = [
    "DEFAULT_LIMIT",
    "Automaton",
    "Dfa",
    "anything",
    "between",
    "contains",
    "determinize",
    "from_items",
    "from_regex_tree",
    "like",
    "literal",
    "nothing",
    "parse_regex",
    "prefix",
    "suffix",
]
