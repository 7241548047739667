"""Sets of characters, as sorted ranges of code points.

A character is a Unicode scalar value. The surrogates U+D800 to U+DFFF are not characters: no
string attribute can hold one, so no set here contains one. Without that rule the complement of
"every real character" would not be empty and decisions about languages would be wrong.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from sys import byteorder
from typing import Final

#: Disjoint ranges (first, last), both inclusive, ascending, never adjacent. Both ends are
#: characters; a range may run across the surrogates, which are then not members.
CharSet = tuple[tuple[int, int], ...]

LAST: Final = 0x10FFFF
SURROGATES: Final = (0xD800, 0xDFFF)
ALL: Final[CharSet] = ((0, LAST),)
NONE: Final[CharSet] = ()


def character_from(code: int) -> int:
    """The first character at or after the code point."""
    return SURROGATES[1] + 1 if SURROGATES[0] <= code <= SURROGATES[1] else code


def char_set(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """The set of the characters in any of the ranges, in normal form.

    >>> char_set([(98, 99), (97, 97), (0xD7FF, 0xDA00)])
    ((97, 99), (55295, 55295))
    """
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        first = character_from(first)
        if SURROGATES[0] <= last <= SURROGATES[1]:
            last = SURROGATES[0] - 1
        if first > last:
            continue
        if merged and first <= character_from(merged[-1][1] + 1):
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def single(character: str) -> CharSet:
    code = ord(character)
    return ((code, code),)


def negated(chars: CharSet) -> CharSet:
    """All characters that are not in the set."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for first, last in chars:
        gaps.append((start, first - 1))
        start = last + 1
    gaps.append((start, LAST))
    return char_set(gaps)


def only_member(chars: CharSet) -> str | None:
    """The character, if the set has exactly one."""
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return chr(chars[0][0])
    return None


def ignoring_case(chars: CharSet, ascii_only: bool = False) -> CharSet:
    """The set with every case variant of its members.

    Two characters are case variants if one is the other's single-character upper or lower case,
    directly or through a third one (so K, k and the Kelvin sign are variants of each other).
    With `ascii_only` only A-Z and a-z have variants.

    >>> ignoring_case(single("x"))
    ((88, 88), (120, 120))
    """
    variants = _ascii_variants() if ascii_only else _variants()
    added: list[tuple[int, int]] = []
    for first, last in chars:
        if last - first < len(variants):
            members: Iterable[int] = range(first, last + 1)
        else:
            members = [code for code in variants if first <= code <= last]
        for code in members:
            added.extend((other, other) for other in variants.get(code, ()))
    return char_set([*chars, *added]) if added else chars


@cache
def _ascii_variants() -> dict[int, tuple[int, ...]]:
    pairs = [(ord("A") + i, ord("a") + i) for i in range(26)]
    return {code: pair for pair in pairs for code in pair}


#: So many characters are asked at once whether one of them has letter case.
_BLOCK: Final = 64


@cache
def _variants() -> dict[int, tuple[int, ...]]:
    """Every character that has case variants, with all of its group."""
    leader: dict[int, int] = {}

    def find(code: int) -> int:
        while leader.setdefault(code, code) != code:
            code = leader[code]
        return code

    # No script above this plane has letter case, and few characters below have it.
    codes = array("I", (*range(SURROGATES[0]), *range(SURROGATES[1] + 1, 0x20000)))
    text = codes.tobytes().decode(f"utf-32-{byteorder[0]}e")
    for start in range(0, len(text), _BLOCK):
        block = text[start : start + _BLOCK]
        if block.lower() != block or block.upper() != block:
            for character in block:
                _join_cases(ord(character), leader, find)
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for code in leader:
        groups[find(code)].append(code)
    return {code: tuple(group) for group in groups.values() for code in group}


def _join_cases(code: int, leader: dict[int, int], find: Callable[[int], int]) -> None:
    character = chr(code)
    for variant in (character.lower(), character.upper()):
        if variant != character and len(variant) == 1:
            leader[find(code)] = find(ord(variant))
