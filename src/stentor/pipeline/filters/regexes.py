r"""String patterns as regular expressions of Java, where Java gives the same answer in good time.

A pattern of Stentor is a sequence over sets of characters (see `stentor.filters.automata`): what
`\d`, `.` or `(?i)` mean is settled there. Java's text is printed from that, with every set spelled
out and the anchors as `\A` and `\z`, so no construct is left that the two dialects read
differently.

Stentor matches in linear time. Java backtracks, and runs out of stack on repeated groups; so only
sequences of characters, of sets of them and of repetitions of one of these are printed.

*Literals between runs.* A `like` pattern, or `^ab.c$`, is a sequence of single characters (or sets
of them) with runs of anything in between. The stretch between two runs can be taken at its leftmost
place for good, since that leaves the most room for the next: an atomic group, and linear time.

*Other repetitions*, as in `IBM.*USD` or `^[A-Z]+-[0-9]{1,3}$`. A loop that ends where the next
character begins, or with the text, cannot vary: it gets a possessive mark. At most two things may
vary over the length of the text, of which the place where an unanchored search begins is one, so
the time is at most quadratic in it, and in practice linear; and repetitions that are bounded may
have `WAYS` ways together.

Any other pattern, such as one of alternatives, has no native form, and its automaton decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stentor.filters import automata
from stentor.filters.automata.build import like_items
from stentor.filters.automata.characters import ALL, CharSet, negated
from stentor.filters.automata.syntax import (
    ANY_RUN,
    Chars,
    End,
    Repeat,
    Tree,
    search_items,
    size,
)
from stentor.filters.patterns import LIKE, REGEX, Pattern

#: Ways through the repetitions of a pattern that are bounded.
WAYS: Final = 1_000
#: Nodes of a pattern: Java's recursion goes as deep.
NODES: Final = 500

_NOT_NEWLINE: Final = negated(((10, 10),))
_COUNTS: Final = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def java_regex(pattern: Pattern) -> str | None:
    r"""What Java has to find in a text that the pattern accepts; None if that is not for Java.

    >>> java_regex(Pattern("like", "a%b_"))
    '(?s)\\Aa.*b.\\z'
    >>> java_regex(Pattern("regex", "^[A-Z]+-[0-9]+$"))
    '(?s)\\A[A-Z]++\\x{2d}[0-9]++\\z'
    >>> java_regex(Pattern("regex", "^(a|b+)*c"))
    """
    if pattern.kind == LIKE:
        items = like_items(pattern.text)
    elif pattern.kind == REGEX:
        items = search_items(automata.parse_regex(pattern.text))
    else:
        return None
    if sum(map(size, items)) > NODES:
        return None
    plain = all(item == ANY_RUN or isinstance(item, Chars) for item in items)
    found = _stretches(items) if plain else _search(items)
    return None if found is None else "(?s)" + found


def _stretches(items: Sequence[Tree]) -> str:
    """Characters and runs of anything."""
    stretches = [""]
    for item in items:
        if isinstance(item, Chars):
            stretches[-1] += _chars(item.chars)
        else:
            stretches.append("")
    if len(stretches) == 1:
        return rf"\A{stretches[0]}\z"
    first, *middle, last = stretches
    between = "".join([f"(?>.*?{text})" for text in middle if text])
    return rf"\A{first}{between}" + (rf".*{last}\z" if last else "")


def _search(items: list[Tree]) -> str | None:
    """Any other sequence; None if it is not for Java."""
    opened, closed = items[0] != ANY_RUN, items[-1] != ANY_RUN
    body = items[0 if opened else 1 : None if closed else -1]
    text, ways = "", 1
    varying = 0 if opened else 1
    for i, item in enumerate(body):
        after = body[i + 1] if i + 1 < len(body) else End() if closed else None
        match item:
            case Chars(chars):
                text += _chars(chars)
            case Repeat(Chars(chars), low, high):
                possessive = _ends_at(chars, after)
                if high is None:
                    varying += not possessive
                else:
                    ways *= high - low + 1
                count = _COUNTS.get((low, high)) or f"{{{low},{'' if high is None else high}}}"
                text += _chars(chars) + count + ("+" if possessive else "")
            case _:
                return None
    if varying > 2 or ways > WAYS:
        return None
    return (r"\A" if opened else "") + text + (r"\z" if closed else "")


def _ends_at(chars: CharSet, after: Tree | None) -> bool:
    """Whether a run of these can end in one place only: where what comes after it begins."""
    if isinstance(after, Repeat) and after.low > 0:
        after = after.part
    if isinstance(after, Chars):
        return not any(a <= d and c <= b for a, b in chars for c, d in after.chars)
    return isinstance(after, End)


def _chars(chars: CharSet) -> str:
    if chars == ALL:
        return "."
    if chars == _NOT_NEWLINE:
        return r"[^\n]"
    if not chars:
        return "(?!)"
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return _char(chars[0][0])
    ranges = [_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in chars]
    return f"[{''.join(ranges)}]"


def _char(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else rf"\x{{{code:x}}}"
