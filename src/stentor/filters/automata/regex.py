r"""The regular expression dialect, from text to tree.

The syntax is Python's, read by the standard library's own parser, restricted to what is regular:
literals, `.`, classes, alternation, groups, greedy or lazy repetition, the anchors `^ $ \A \Z` and
the flags `i`, `s` and `a`. Three meanings differ from Python's on purpose:

    \d \w \s     are ASCII: [0-9], [A-Za-z0-9_], [ \t\n\r\f\v]
    $            is the end of the text, never the place before a final newline
    (?i)         uses single-character case mappings (see `characters.ignoring_case`)

Before anything is parsed, `_check` walks over the text token by token: it names each construct that
is not regular together with its position (which the parser's tree no longer knows) and limits the
nesting, so that neither the parser nor the recursions over its tree can run out of stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from stentor.errors import UnsupportedPattern
from stentor.filters.automata.characters import (
    ALL,
    CharSet,
    char_set,
    ignoring_case,
    negated,
)
from stentor.filters.automata.syntax import Begin, Chars, Choice, Concat, End, Repeat, Tree, size

# The standard library's own parser, which has no public name.
sre: Any = import_module("re._constants")
sre_parser: Any = import_module("re._parser")

#: Longest text of a regular expression, deepest nesting of its groups, and most automaton states
#: after its repetitions are written out.
MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 100
MAX_STATES: Final = 2_000

_TOKEN: Final = re.compile(
    r"""
      (?P<class>      \[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?\Z) )
    | (?P<comment>    \(\?\#[^)]*\)? )
    | (?P<look>       \(\?<?[=!] )
    | (?P<backref>    \(\?P= | \\(?![1-3][0-7][0-7])[1-9] )
    | (?P<condition>  \(\?\( )
    | (?P<atomic>     \(\?> )
    | (?P<boundary>   \\[bB] )
    | (?P<flags>      \(\?(?!P)[a-zA-Z-]+ )
    | (?P<escape>     \\. )
    | (?P<open>       \( )
    | (?P<close>      \) )
    | (?P<possessive> (?:[*+?]|\{(?:\d+(?:,\d*)?|,\d*)\})\+ )
    | (?P<repeat>     [*+?]\?? )
    """,
    re.VERBOSE | re.DOTALL,
)

_REASONS: Final = {
    "look": ("lookaround", "write one `regex` condition per requirement and join them with and"),
    "backref": ("a backreference", "spell out the alternatives"),
    "condition": ("a conditional group", "write an alternation"),
    "atomic": ("an atomic group", "use a plain group (?:...)"),
    "boundary": ("a word boundary", r"name the neighbors, for example (^|\W)word(\W|$)"),
    "flags": ("a flag other than i, s and a", "leave it out"),
    "possessive": ("a possessive repetition", "drop the trailing +"),
}

_SUPPORTED_FLAGS: Final = frozenset("(?isa-")
_SET_OPERATION: Final = re.compile(r"\[\^?\[|--|&&|~~|\|\|")
_ESCAPES: Final = re.compile(r"\\.", re.DOTALL)

_CATEGORIES: Final[dict[Any, CharSet]] = {
    sre.CATEGORY_DIGIT: char_set([(0x30, 0x39)]),
    sre.CATEGORY_SPACE: char_set([(9, 13), (32, 32)]),
    sre.CATEGORY_WORD: char_set([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]),
}
_NEGATED_CATEGORIES: Final[dict[Any, CharSet]] = {
    sre.CATEGORY_NOT_DIGIT: negated(_CATEGORIES[sre.CATEGORY_DIGIT]),
    sre.CATEGORY_NOT_SPACE: negated(_CATEGORIES[sre.CATEGORY_SPACE]),
    sre.CATEGORY_NOT_WORD: negated(_CATEGORIES[sre.CATEGORY_WORD]),
}
_NOT_NEWLINE: Final = negated(((10, 10),))


def parse_regex(text: str) -> Tree:
    r"""The tree of a regular expression, or `UnsupportedPattern`.

    >>> parse_regex("a|b") == Chars(((97, 98),))
    True
    >>> parse_regex(r"(x)\1")
    Traceback (most recent call last):
    ...
    stentor.errors.UnsupportedPattern: a backreference at position 3 is not supported: spell out ...
    """
    _check(text)
    try:
        parsed = sre_parser.parse(text)
    except (re.error, OverflowError, ValueError) as error:  # the last: thousands of digits
        raise UnsupportedPattern(
            f"not a regular expression: {error}; correct it, or escape the character with \\"
        ) from None
    tree = _sequence(parsed, parsed.state.flags)
    if size(tree) > MAX_STATES:
        raise UnsupportedPattern(
            f"the regular expression needs more than {MAX_STATES:,} states when its repetitions "
            "are written out; use smaller repetition counts, or * and +"
        )
    return tree


def _check(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise UnsupportedPattern(
            f"a regular expression of {len(text):,} characters is longer than {MAX_LENGTH:,}; "
            "split it into several conditions"
        )
    depth = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup or ""
        if kind == "flags" and _SUPPORTED_FLAGS.issuperset(token.group()):
            kind = "open"  # of the group, or of the ")" that ends the flags themselves
        if kind in _REASONS:
            what, advice = _REASONS[kind]
            raise UnsupportedPattern(
                f"{what} at position {token.start()} is not supported: {advice}"
            )
        if kind == "class" and _SET_OPERATION.search(_ESCAPES.sub("", token.group())):
            raise UnsupportedPattern(
                f"a set operation or POSIX class at position {token.start()} is not supported: "
                r"write the members, with \[ \- \& \~ \| for these characters themselves"
            )
        depth += {"open": 1, "close": -1}.get(kind, 0)
        if depth > MAX_DEPTH:
            raise UnsupportedPattern(
                f"groups nested deeper than {MAX_DEPTH} at position {token.start()}; "
                "write the expression with fewer groups"
            )


def _sequence(nodes: Iterable[tuple[Any, Any]], flags: int) -> Tree:
    parts = tuple(_node(code, argument, flags) for code, argument in nodes)
    return parts[0] if len(parts) == 1 else Concat(parts)


def _node(code: Any, argument: Any, flags: int) -> Tree:
    if code is sre.LITERAL:
        if 0xD800 <= argument <= 0xDFFF:
            raise UnsupportedPattern(
                f"U+{argument:04X} is half of a surrogate pair and occurs in no text; "
                "write the whole character"
            )
        return Chars(_folded(((argument, argument),), flags))
    if code is sre.NOT_LITERAL:
        return Chars(negated(_folded(char_set([(argument, argument)]), flags)))
    if code is sre.ANY:
        return Chars(ALL if flags & sre.SRE_FLAG_DOTALL else _NOT_NEWLINE)
    if code is sre.IN:
        return Chars(_class(argument, flags))
    if code is sre.BRANCH:
        return Choice(tuple(_sequence(branch, flags) for branch in argument[1]))
    if code is sre.SUBPATTERN:
        _, added, removed, part = argument
        return _sequence(part, (flags | added) & ~removed)
    if code in (sre.MAX_REPEAT, sre.MIN_REPEAT):  # greedy or not: the same language
        low, high, part = argument
        return Repeat(
            _sequence(part, flags), int(low), None if high is sre.MAXREPEAT else int(high)
        )
    if code is sre.AT and argument in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
        return Begin()
    if code is sre.AT and argument in (sre.AT_END, sre.AT_END_STRING):
        return End()
    raise UnsupportedPattern(f"{str(code).lower()} is not supported: use regular constructs only")


def _class(items: Iterable[tuple[Any, Any]], flags: int) -> CharSet:
    ranges: list[tuple[int, int]] = []
    categories: list[tuple[int, int]] = []
    inverted = False
    for code, argument in items:
        if code is sre.NEGATE:
            inverted = True
        elif code is sre.LITERAL:
            ranges.append((argument, argument))
        elif code is sre.RANGE:
            ranges.append(argument)
        else:
            categories.extend(_CATEGORIES.get(argument) or _NEGATED_CATEGORIES[argument])
    chars = char_set([*_folded(char_set(ranges), flags), *categories])
    return negated(chars) if inverted else chars


def _folded(chars: CharSet, flags: int) -> CharSet:
    if not flags & sre.SRE_FLAG_IGNORECASE:
        return chars
    return ignoring_case(chars, ascii_only=bool(flags & sre.SRE_FLAG_ASCII))
