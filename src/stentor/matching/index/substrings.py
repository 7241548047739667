"""Which of many texts a string contains: all of them are found in one pass over the string.

This is the automaton of Aho and Corasick. Its states are the beginnings of the texts. After each
letter it is in the longest of them that the string ends with so far; where a state knows no way to
go on with a letter, `fail` leads to the longest state that it ends with itself. `ends` is the text
that a state is the whole of, and `link` the longest other state at its end that is the whole of a
text. So a pass takes as many steps as the string has letters and texts are found, however many
texts there are. Letters are code points, and all transitions are in one hash table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index import kernels

Int64s = NDArray[np.int64]

#: Up to this many strings are searched without letting go of the interpreter.
_FEW: Final = 1_024
#: Texts that there is room for at first, in all strings of a search.
_ROOM: Final = 256


class Substrings:
    """Some texts, to be found in strings.

    >>> texts = Substrings(["ab", "b", "bc"])
    >>> sorted(texts.within("abba")), sorted(texts.within("c"))
    ([0, 1], [])
    """

    def __init__(self, texts: Sequence[str]) -> None:
        letters, ends = _letters(texts)
        size = 1 << (2 * len(letters)).bit_length()
        table = np.full(size, -1, np.int64), np.empty(size, np.int32)
        states = np.zeros((3, len(letters) + 1), np.int32)
        count = kernels.build_automaton(letters, ends, *table, states)
        self._automaton = (*table, np.ascontiguousarray(states[:, :count]))
        self._count = len(texts)
        #: For each text the number of the last string it was found in, and the numbers used up; a
        #: thread takes it for itself.
        self._seen: list[tuple[Int64s, int]] = []

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._automaton)

    def within(self, string: str) -> list[int]:
        """The numbers of the texts that one string contains."""
        found: list[int] = self.within_each([string])[1].tolist()
        return found

    def within_each(self, strings: Sequence[str | None]) -> tuple[Int64s, Int64s]:
        """For each string how many texts it contains, and their numbers, string after string."""
        letters, ends = _letters(["" if string is None else string for string in strings])
        find = kernels.find_texts if len(strings) <= _FEW else kernels.find_texts_freely
        try:
            seen, used = self._seen.pop()
        except IndexError:  # other threads use what there was
            seen, used = np.zeros(self._count, np.int64), 0
        counts = np.zeros(len(strings), np.int64)
        found = np.empty(max(_ROOM, 4 * len(strings)), np.int32)
        start = total = 0
        while start < len(strings):
            start, total = find(
                letters, ends, start, self._automaton, seen, used, counts, found, total
            )
            if start < len(strings):
                found = np.concatenate((found, np.empty_like(found)))
                used += len(strings)  # the string is searched again
        self._seen.append((seen, used + len(strings)))
        return counts, found[:total].astype(np.int64)


def _letters(texts: Sequence[str]) -> tuple[NDArray[np.uint32], Int64s]:
    """The letters of all texts, and where those of each end."""
    letters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    return letters, np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
