"""Sets of strings and of byte strings as automata, and back.

Patterns and ranges of strings are regular languages, so `tested` compares them by their automata.
A byte string is read as the text with the same code points, of which only 256 can occur: the
automaton of a set of byte strings treats every higher code point like the last byte, and then
"every other string" means every other byte string.

The way back: a minimal automaton describes a finite union of intervals iff no undecided state
(from which both verdicts can still be reached) leads back to itself. If moreover undecided states
are entered by single characters, the intervals are few, and a walk through the automaton in the
order of the characters finds their ends. So a set of strings that has a plain form is always
brought to it, and sets that are equal have one form, however they were written.
"""

from __future__ import annotations

from typing import Final

from stentor.filters.automata import Dfa, anything, between, determinize, nothing
from stentor.filters.automata.characters import LAST, SURROGATES
from stentor.filters.domains import BYTES, STRING, Cut, Domain
from stentor.filters.effort import spend
from stentor.filters.patterns import Pattern
from stentor.filters.ranges import Piece, Ranges

#: No more states than this for one pattern, or for a combination of several.
STATE_LIMIT: Final = 4_000
COMBINED_LIMIT: Final = 1_000
#: No more pieces than this are turned into an automaton, or come out of one.
PIECE_LIMIT: Final = 64
#: No longer constants than this come out of an automaton.
LENGTH_LIMIT: Final = 200

_LAST_BYTE: Final = 0xFF
_EVERYTHING: Final = determinize(anything())


def is_text(domain: Domain) -> bool:
    """Whether sets over the domain have automata."""
    return domain is STRING or domain is BYTES


def pattern_dfa(domain: Domain, pattern: Pattern) -> Dfa | None:
    """The smallest automaton of a pattern; None if it takes too many states."""
    spend(4 * len(pattern.text))  # before a huge text becomes a huge automaton
    return _of_domain(domain, determinize(pattern.automaton, STATE_LIMIT))


def ranges_dfa(ranges: Ranges) -> Dfa | None:
    """The smallest automaton of a set of strings or byte strings; None if it is too large."""
    if len(ranges.cuts) > 2 * PIECE_LIMIT:
        return None
    result = determinize(nothing())
    for piece in ranges.pieces:
        dfa = determinize(between(*_ends(piece)), STATE_LIMIT)
        if dfa is None or result is None:
            return None
        result = result.union(dfa, STATE_LIMIT)
    return _of_domain(ranges.domain, result)


def _ends(piece: Piece) -> tuple[str | None, bool, str | None, bool]:
    low, high = piece
    return (
        None if low is None else _text(low[0]),
        low is not None and low[1] == 1,
        None if high is None else _text(high[0]),
        high is not None and high[1] == 0,
    )


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _of_domain(domain: Domain, dfa: Dfa | None) -> Dfa | None:
    if domain is BYTES and dfa is not None:
        kept = [k for k, code in enumerate(dfa.cuts) if code <= _LAST_BYTE]
        rows = tuple([tuple([row[k] for k in kept]) for row in dfa.rows])
        narrow = Dfa(tuple([dfa.cuts[k] for k in kept]), rows, dfa.accepting)
        assert _EVERYTHING is not None
        dfa = narrow.intersection(_EVERYTHING)  # which leaves out what is no longer reachable
    return dfa and dfa.minimize()


def ranges_of(domain: Domain, dfa: Dfa) -> Ranges | None:
    """The language of a smallest automaton as a plain set, if it is a short union of intervals."""
    cuts = _Walk(domain, dfa).cuts()
    return None if cuts is None else Ranges.of_cuts(domain, False, cuts)


class _Walk:
    """Visits all strings of an automaton in order and notes where the verdict changes."""

    def __init__(self, domain: Domain, dfa: Dfa) -> None:
        self._domain = domain
        self._dfa = dfa
        last = _LAST_BYTE if domain is BYTES else LAST
        self._classes = list(zip(dfa.cuts, [*(c - 1 for c in dfa.cuts[1:]), last], strict=True))
        self._verdict = False
        self._cuts: list[Cut] = []

    def cuts(self) -> list[Cut] | None:
        return self._cuts if self._visit(0, "", ()) else None

    def _visit(self, state: int, text: str, before: tuple[int, ...]) -> bool:
        """The strings that begin with the text, which leads to the state by way of those before;
        False to give up."""
        spend(1 + len(self._classes))
        self._note((text, 0), self._dfa.accepting[state])
        row = self._dfa.rows[state]
        if row.count(state) == len(row):
            return True
        if len(text) >= LENGTH_LIMIT or len(self._cuts) > 2 * PIECE_LIMIT:
            return False
        for number, (first, last) in enumerate(self._classes):
            target = row[number]
            below = self._dfa.rows[target]
            if below.count(target) == len(below):
                self._note((text + chr(first), 0), self._dfa.accepting[target])
                continue
            if last - first >= PIECE_LIMIT or target == state or target in before:
                return False
            for code in range(first, last + 1):
                if SURROGATES[0] <= code <= SURROGATES[1]:
                    continue
                if not self._visit(target, text + chr(code), (*before, state)):
                    return False
        return True

    def _note(self, cut: Cut, verdict: bool) -> None:
        """From this cut on the verdict is this one."""
        if verdict is not self._verdict:
            self._verdict = verdict
            text, side = cut
            self._cuts.append((text.encode("latin-1") if self._domain is BYTES else text, side))
