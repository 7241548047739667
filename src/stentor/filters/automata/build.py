"""Automata for the string constraints of the filter language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stentor.filters.automata.characters import ALL, LAST, CharSet, char_set, single
from stentor.filters.automata.nfa import (
    ANCHOR_BEGIN,
    ANCHOR_END,
    ANCHOR_NONE,
    FINAL,
    Automaton,
)
from stentor.filters.automata.syntax import (
    ANY_CHARACTER,
    ANY_RUN,
    Begin,
    Chars,
    Choice,
    Concat,
    End,
    Repeat,
    Tree,
    flatten,
    search_items,
)


class Builder:
    """Nodes in the making, from the end of the expression to its beginning.

    Each method takes the node to go on to and returns the node to enter at.
    """

    def __init__(self) -> None:
        self._labels: list[CharSet | None] = [None]
        self._targets: list[int] = [FINAL]
        self._follow: list[tuple[int, ...]] = [()]
        self._guards: list[int] = [ANCHOR_NONE]

    def consume(self, chars: CharSet, then: int) -> int:
        self._labels.append(chars)
        self._targets.append(then)
        self._follow.append(())
        self._guards.append(ANCHOR_NONE)
        return len(self._labels) - 1

    def split(self, *then: int, guard: int = ANCHOR_NONE) -> int:
        self._labels.append(None)
        self._targets.append(FINAL)
        self._follow.append(then)
        self._guards.append(guard)
        return len(self._labels) - 1

    def run(self, then: int) -> tuple[int, int]:
        """`.*`: the node to enter at, and the one that consumes."""
        loop = self.split()
        body = self.consume(ALL, loop)
        self._follow[loop] = (body, then)
        return loop, body

    def text(self, text: str, then: int) -> int:
        for character in reversed(text):
            then = self.consume(single(character), then)
        return then

    def tree(self, tree: Tree, then: int) -> int:
        match tree:
            case Chars(chars):
                return self.consume(chars, then)
            case Concat(parts):
                for part in reversed(parts):
                    then = self.tree(part, then)
                return then
            case Choice(parts):
                return self.split(*[self.tree(part, then) for part in parts])
            case Repeat(part, low, high):
                return self._repeat(part, low, high, then)
            case Begin():
                return self.split(then, guard=ANCHOR_BEGIN)
            case End():
                return self.split(then, guard=ANCHOR_END)

    def _repeat(self, part: Tree, low: int, high: int | None, then: int) -> int:
        entry = then
        if high is None:
            entry = self.split()
            body = self.tree(part, entry)
            self._follow[entry] = (body, then)
        else:
            for _ in range(high - low):
                entry = self.split(self.tree(part, entry), then)
        for _ in range(low):
            entry = self.tree(part, entry)
        return entry

    def automaton(
        self, start: int, barriers: Iterable[int] = (), everything: int | None = None
    ) -> Automaton:
        return Automaton(
            self._labels,
            self._targets,
            self._follow,
            self._guards,
            start,
            barriers,
            everything,
        )


def from_items(items: Sequence[Tree]) -> Automaton:
    """The strings that the items accept one after the other."""
    builder = Builder()
    entry = FINAL
    barriers: list[int] = []
    everything: int | None = None
    for item in reversed(items):
        if item == ANY_RUN:
            at_end = entry == FINAL
            entry, body = builder.run(entry)
            barriers.append(body)
            everything = body if at_end else everything
        else:
            entry = builder.tree(item, entry)
    return builder.automaton(entry, barriers, everything)


def from_regex_tree(tree: Tree, search: bool = False) -> Automaton:
    """The strings that the tree matches as a whole or, with `search`, somewhere.

    >>> from stentor.filters.automata import parse_regex
    >>> from_regex_tree(parse_regex("^a|b$"), search=True).accepts("xb")
    True
    """
    return from_items(search_items(tree) if search else flatten(tree))


def characters(text: str) -> list[Tree]:
    """The text as a sequence of items."""
    return [Chars(single(character)) for character in text]


def nothing() -> Automaton:
    """No string."""
    return from_items([Choice(())])


def anything() -> Automaton:
    """Every string."""
    return from_items([ANY_RUN])


def literal(text: str) -> Automaton:
    """The text only."""
    return from_items(characters(text))


def prefix(text: str) -> Automaton:
    """The strings that start with the text."""
    return from_items([*characters(text), ANY_RUN])


def suffix(text: str) -> Automaton:
    """The strings that end with the text."""
    return from_items([ANY_RUN, *characters(text)])


def contains(text: str) -> Automaton:
    """The strings that have the text somewhere in them."""
    return from_items([ANY_RUN, *characters(text), ANY_RUN])


def like(text: str) -> Automaton:
    r"""The strings of an SQL pattern: % is any run, _ one character, \ takes the next as itself.

    >>> like(r"a_\%").accepts("ab%")
    True
    """
    return from_items(like_items(text))


def like_items(text: str) -> list[Tree]:
    r"""The items of an SQL pattern whose escape character is \."""
    wildcards: dict[str, Tree] = {"%": ANY_RUN, "_": ANY_CHARACTER}
    items: list[Tree] = []
    rest = iter(text)
    for character in rest:
        if character == "\\":
            items.append(Chars(single(next(rest, "\\"))))
        else:
            items.append(wildcards.get(character) or Chars(single(character)))
    return items


def between(
    low: str | None = None,
    low_open: bool = False,
    high: str | None = None,
    high_open: bool = False,
) -> Automaton:
    """The strings between two bounds in the order by code points; None is no bound.

    >>> between("a", True, "b", False).accepts("aa")
    True
    """
    builder = Builder()
    rest, everything = builder.run(FINAL)
    edges = _Edges(builder, rest)
    if low is None and high is None:
        start = rest
    elif high is None:
        start = edges.above(low or "", low_open)
    elif low is None:
        start = edges.below(high, high_open)
    else:
        start = edges.both(low, low_open, high, high_open)
    return builder.automaton(start, [everything], everything)


class _Edges:
    """The two ends of an interval of strings. `rest` accepts whatever may follow."""

    def __init__(self, builder: Builder, rest: int) -> None:
        self._builder = builder
        self._rest = rest

    def above(self, low: str, is_open: bool) -> int:
        builder, rest = self._builder, self._rest
        entry = builder.consume(ALL, rest) if is_open else rest
        for character in reversed(low):
            greater = builder.consume(char_set([(ord(character) + 1, LAST)]), rest)
            entry = builder.split(greater, builder.consume(single(character), entry))
        return entry

    def below(self, high: str, is_open: bool) -> int:
        builder, rest = self._builder, self._rest
        entry = builder.split() if is_open else FINAL
        for character in reversed(high):
            less = builder.consume(char_set([(0, ord(character) - 1)]), rest)
            # A proper prefix of the bound is below it, hence FINAL.
            entry = builder.split(FINAL, less, builder.consume(single(character), entry))
        return entry

    def both(self, low: str, low_open: bool, high: str, high_open: bool) -> int:
        builder, rest = self._builder, self._rest
        if low > high or (low == high and (low_open or high_open)):
            return builder.split()
        if low == high:
            return builder.text(low, FINAL)
        common = 0
        while common < len(low) and low[common] == high[common]:
            common += 1
        top = high[common]
        upper = builder.consume(single(top), self.below(high[common + 1 :], high_open))
        if common == len(low):
            middle = builder.consume(char_set([(0, ord(top) - 1)]), rest)
            fork = builder.split(middle, upper, *([] if low_open else [FINAL]))
        else:
            bottom = low[common]
            middle = builder.consume(char_set([(ord(bottom) + 1, ord(top) - 1)]), rest)
            lower = builder.consume(single(bottom), self.above(low[common + 1 :], low_open))
            fork = builder.split(lower, middle, upper)
        return builder.text(low[:common], fork)
