r"""String patterns as regular expressions of Java, where Java gives the same answer in good time.

A pattern of Stentor is a tree over sets of characters (see `stentor.filters.automata`): what `\d`,
`.` or `(?i)` mean is settled there. Java's text is printed from that tree, with every set spelled
out and the anchors as `\A` and `\z`, so no construct is left that the two dialects read
differently.

Stentor matches in linear time. Java backtracks, and runs out of stack on repeated groups; so only
patterns of a form that is good for Java are printed.

*Literals between runs.* A `like` pattern, or `^ab.c$`, is a sequence of single characters (or sets
of them) with runs of anything in between. The stretch between two runs can be taken at its leftmost
place for good, since that leaves the most room for the next: an atomic group, and linear time.

*Others* may have alternatives and repetitions, under these conditions: what is repeated without end
is a single set, on which Java loops without recursion; the number of ways through everything else
is at most `WAYS`; and at most two things can vary over the length of the text, of which the place
where an unanchored search begins is one. A loop that ends where the next character begins, or with
the text, cannot vary: it gets a possessive mark. So the time is at most quadratic in the length of
the text, for `IBM.*USD` as an example, and in practice linear.

Any other pattern has no native form, and its automaton decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stentor.filters import automata
from stentor.filters.automata.build import like_items
from stentor.filters.automata.characters import ALL, CharSet, negated
from stentor.filters.automata.syntax import (
    ANY_RUN,
    Begin,
    Chars,
    Choice,
    Concat,
    End,
    Repeat,
    Tree,
    anchored,
    nullable,
    search_items,
    size,
)
from stentor.filters.patterns import LIKE, REGEX, Pattern

#: Ways through the parts of a pattern that are not loops.
WAYS: Final = 1_000
#: Nodes of a pattern: Java's recursion goes as deep.
NODES: Final = 500

_NOT_NEWLINE: Final = negated(((10, 10),))


class _NotForJava(Exception):
    """The pattern has no form that is good for Java."""


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
    if all(item == ANY_RUN or isinstance(item, Chars) for item in items):
        return "(?s)" + _stretches(items)
    try:
        return "(?s)" + _search(items)
    except _NotForJava:
        return None


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


def _search(items: list[Tree]) -> str:
    """Any other sequence."""
    opened, closed = items[0] != ANY_RUN, items[-1] != ANY_RUN
    body = items[0 if opened else 1 : None if closed else -1]
    printer = _Printer()
    text = ""
    for i, item in enumerate(body):
        after = body[i + 1] if i + 1 < len(body) else End() if closed else None
        text += printer.print(item, possessive=_ends_at(item, after))
    unanchored = 0 if opened else 1
    if unanchored + max(printer.varying, printer.loops > 0) > 2 or printer.ways > WAYS:
        raise _NotForJava
    return (r"\A" if opened else "") + text + (r"\z" if closed else "")


def _ends_at(item: Tree, after: Tree | None) -> bool:
    """Whether a loop can end in one place only: where what comes after it begins."""
    if not isinstance(item, Repeat) or not isinstance(item.part, Chars):
        return False
    if isinstance(after, Repeat) and after.low > 0:
        after = after.part
    if isinstance(after, Chars):
        return not _meet(item.part.chars, after.chars)
    return isinstance(after, End)


def _meet(mine: CharSet, theirs: CharSet) -> bool:
    return any(a <= d and c <= b for a, b in mine for c, d in theirs)


class _Printer:
    """Prints trees, and counts what a backtracking search has to try."""

    def __init__(self) -> None:
        self.loops = 0
        #: Loops that can end in several places.
        self.varying = 0
        #: Ways through everything else.
        self.ways = 1

    def print(self, tree: Tree, possessive: bool = False) -> str:
        text = self._print(tree, possessive)
        self.ways *= _ways(tree)
        return text

    def _print(self, tree: Tree, possessive: bool = False) -> str:
        match tree:
            case Chars(chars):
                return _chars(chars)
            case Concat(parts):
                return "".join([self._print(part) for part in parts])
            case Choice(parts):
                return f"(?:{'|'.join([self._print(part) for part in parts])})" if parts else "(?!)"
            case Repeat(part, low, high):
                return self._repeat(part, low, high, possessive)
            case Begin():
                return r"\A"
            case _:
                return r"\z"

    def _repeat(self, part: Tree, low: int, high: int | None, possessive: bool) -> str:
        if isinstance(part, Chars):
            if high is None:
                self.loops += 1
                self.varying += not possessive
            count = _COUNTS.get((low, high)) or f"{{{low},{'' if high is None else high}}}"
            return _chars(part.chars) + count + ("+" if possessive else "")
        if high is None or nullable(part) or anchored(part) or _has_loop(part):
            raise _NotForJava
        return f"(?:{self._print(part)}){{{low},{high}}}"


_COUNTS: Final = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def _has_loop(tree: Tree) -> bool:
    match tree:
        case Concat(parts) | Choice(parts):
            return any(map(_has_loop, parts))
        case Repeat(part, _, high):
            return high is None or _has_loop(part)
        case _:
            return False


def _ways(tree: Tree) -> int:
    """In how many ways a text can be taken by the tree, loops counted as one."""
    match tree:
        case Concat(parts):
            found = 1
            for part in parts:
                found = min(found * _ways(part), WAYS + 1)
            return found
        case Choice(parts):
            return min(sum(map(_ways, parts)), WAYS + 1)
        case Repeat(part, low, int(high)):
            ways = _ways(part)
            lengths = high - low + 1
            if ways == 1:
                return lengths
            return min(lengths * int(ways ** min(high, WAYS.bit_length())), WAYS + 1)
        case _:
            return 1


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
