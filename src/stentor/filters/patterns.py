r"""String patterns as immutable values: suffix, substring, SQL LIKE and regular expression.

The constructors `suffix`, `contains`, `like` and `regex` validate what they are given and return
the plainest form of the same meaning. A pattern that turns out to be an equality, a prefix or no
condition at all comes back as `Exactly`, `StartsWith` or `Anything`, which the filter algebra has
cheaper ways to handle; `regex("abc$")` comes back as a suffix and `like("%a%%")` as a substring.
What remains is a `Pattern`, which is equal to another one iff kind and text are.

The text of a `like` pattern is in a normal form, so that equal patterns written with different
escape characters are equal values: the escape character is a backslash, used before %, _ and
backslash only; a run of wildcards is as many _ as it needs, then at most one %.

The meaning of a pattern is its automaton (see `stentor.filters.automata`), through which patterns
are compared with each other and with ranges of strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from stentor.errors import UnsupportedPattern
from stentor.filters import automata
from stentor.filters.automata.build import characters, like_items
from stentor.filters.automata.characters import only_member
from stentor.filters.automata.syntax import (
    ANY_CHARACTER,
    ANY_RUN,
    Chars,
    Choice,
    Concat,
    Repeat,
    Tree,
    search_items,
    size,
)
from stentor.filters.effort import spend

SUFFIX: Final = "suffix"
CONTAINS: Final = "contains"
LIKE: Final = "like"
REGEX: Final = "regex"

MAX_LIKE_LENGTH: Final = 10_000
_ESCAPE: Final = "\\"


@dataclass(frozen=True, slots=True)
class Exactly:
    """The one string."""

    text: str


@dataclass(frozen=True, slots=True)
class StartsWith:
    """Every string with this prefix."""

    text: str


@dataclass(frozen=True, slots=True)
class Anything:
    """Every string."""


@dataclass(frozen=True)
class Pattern:
    """A set of strings that is no equality, prefix or range.

    >>> pattern = like("I%_M")
    >>> pattern
    Pattern(kind='like', text='I_%M')
    >>> pattern.matches("INTERCOM")
    True
    """

    kind: str
    text: str

    def __post_init__(self) -> None:
        if self.kind not in (SUFFIX, CONTAINS, LIKE, REGEX):
            raise UnsupportedPattern(
                f"there is no pattern kind {self.kind!r}; use suffix, contains, like or regex"
            )

    def __reduce__(self) -> tuple[type[Pattern], tuple[str, str]]:
        return Pattern, (self.kind, self.text)  # without what is cached

    @property
    def literal(self) -> str:
        """The text to print between quotes."""
        return self.text

    @property
    def escape(self) -> str | None:
        """The escape character to print after a `like` pattern, if its text needs one."""
        return _ESCAPE if self.kind == LIKE and _ESCAPE in self.text else None

    def matches(self, text: str) -> bool:
        """Whether the pattern accepts the text; linear in the length of the text."""
        if self.kind == CONTAINS:
            return self.text in text
        if self.kind == SUFFIX:
            return text.endswith(self.text)
        if self._segments is not None:
            return _in_order(self._segments, text)
        return self.automaton.accepts(text)

    @cached_property
    def trial(self) -> int:
        """Steps that trying it takes for each character of a text."""
        if self.kind in (SUFFIX, CONTAINS) or self._segments is not None:
            return 0
        return 1 + sum(map(size, self._items)) // 4

    @cached_property
    def automaton(self) -> automata.Automaton:
        """The pattern's language."""
        return automata.from_items(self._items)

    @cached_property
    def literal_prefix(self) -> str:
        """The longest prefix that every accepted string has.

        >>> regex("^(abc|abd)").literal_prefix
        'ab'
        """
        return "" if self.kind in (SUFFIX, CONTAINS) else self.automaton.literal_prefix()

    @cached_property
    def literal_suffix(self) -> str:
        """Letters that every accepted string ends with.

        >>> like("a%.tar_gz").literal_suffix
        'gz'
        """
        found: list[str] = []
        for item in reversed(self._items):
            character = only_member(item.chars) if isinstance(item, Chars) else None
            if character is None:
                break
            found.append(character)
        return "".join(reversed(found))

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Strings that every accepted string contains, longest first, none within another.

        >>> like("%stock%quote%").required
        ('stock', 'quote')
        """
        found = sorted(dict.fromkeys(_required(self._items)), key=len, reverse=True)
        kept: list[str] = []
        for text in found:
            if not any(text in other for other in kept):
                kept.append(text)
        return tuple(kept)

    @cached_property
    def _items(self) -> list[Tree]:
        """The pattern as a sequence that a whole text has to match."""
        if self.kind == SUFFIX:
            return [ANY_RUN, *characters(self.text)]
        if self.kind == CONTAINS:
            return [ANY_RUN, *characters(self.text), ANY_RUN]
        if self.kind == LIKE:
            return like_items(self.text)
        return search_items(automata.parse_regex(self.text))

    @cached_property
    def _segments(self) -> tuple[str, ...] | None:
        """The literals between the runs, if the pattern has no other parts."""
        tokens = _tokens(self._items) if self.kind == LIKE else None
        if tokens is None or any(wild and text != "%" for wild, text in tokens):
            return None
        segments = [""]
        for wild, text in tokens:
            if wild:
                segments.append("")
            else:
                segments[-1] = text
        return tuple(segments) if len(segments) > 1 else None


Plain = Pattern | Exactly | StartsWith | Anything


def suffix(text: str) -> Pattern | Anything:
    """The strings that end with the text.

    >>> suffix(".com")
    Pattern(kind='suffix', text='.com')
    """
    _check_text(text)
    return Pattern(SUFFIX, text) if text else Anything()


def contains(text: str) -> Pattern | Anything:
    """The strings that have the text somewhere in them.

    >>> contains("")
    Anything()
    """
    _check_text(text)
    return Pattern(CONTAINS, text) if text else Anything()


def like(text: str, escape: str | None = None) -> Plain:
    """The strings of an SQL LIKE pattern: % is any run of characters, _ is one character.

    After the escape character, %, _ and the escape character stand for themselves.

    >>> like("IB%"), like("100!%", escape="!")
    (StartsWith(text='IB'), Exactly(text='100%'))
    """
    _check_text(text)
    if len(text) > MAX_LIKE_LENGTH:
        raise UnsupportedPattern(
            f"a like pattern of {len(text):,} characters is longer than {MAX_LIKE_LENGTH:,}; "
            "split it into several conditions"
        )
    spend(3 * len(text))
    plain = _plainest(like_items(_with_backslashes(text, escape)))
    assert plain is not None  # a like pattern has no other parts than text and wildcards
    return plain


def regex(text: str) -> Plain:
    r"""The strings in which the regular expression matches somewhere, as grep would find it.

    The dialect is described in `stentor.filters.automata.regex`.

    >>> regex("^abc"), regex(r"\.com$")
    (StartsWith(text='abc'), Pattern(kind='suffix', text='.com'))
    >>> regex(r"\bword")
    Traceback (most recent call last):
    ...
    stentor.errors.UnsupportedPattern: a word boundary at position 0 is not supported: name the ...
    """
    _check_text(text)
    items = search_items(automata.parse_regex(text))
    spend(len(text) + 2 * len(items) + 2 * sum(map(size, items)))
    return _plainest(items) or Pattern(REGEX, text)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedPattern(
            f"half of a surrogate pair at position {error.start} occurs in no text; "
            "write the whole character"
        ) from None


def _with_backslashes(text: str, escape: str | None) -> str:
    """The same LIKE pattern with a backslash as escape character."""
    if escape is None:
        return text.replace(_ESCAPE, _ESCAPE * 2)
    if len(escape) != 1:
        raise UnsupportedPattern(f"the escape must be one character, not {escape!r}")
    parts: list[str] = []
    rest = iter(enumerate(text))
    for position, character in rest:
        if character == escape:
            _, escaped = next(rest, (0, ""))
            if escaped not in ("%", "_", escape):
                raise UnsupportedPattern(
                    f"the escape character {escape!r} at position {position} must be followed by "
                    f"%, _ or {escape!r}; write it twice to mean itself"
                )
            parts.append(_ESCAPE + escaped)
        else:
            parts.append(_ESCAPE * 2 if character == _ESCAPE else character)
    return "".join(parts)


def _tokens(items: Sequence[Tree]) -> list[tuple[bool, str]] | None:
    """Literals and normal runs of wildcards in turn; None if there are other items.

    A token is (wild, text).
    """
    singles: list[tuple[bool, str]] = []
    for item in items:
        if item == ANY_RUN:
            singles.append((True, "%"))
        elif item == ANY_CHARACTER:
            singles.append((True, "_"))
        elif isinstance(item, Chars) and (character := only_member(item.chars)) is not None:
            singles.append((False, character))
        else:
            return None
    tokens: list[tuple[bool, str]] = []
    for wild, group in groupby(singles, key=lambda token: token[0]):
        text = "".join([token[1] for token in group])
        if wild:
            text = "_" * text.count("_") + ("%" if "%" in text else "")
        tokens.append((wild, text))
    return tokens


def _plainest(items: Sequence[Tree]) -> Plain | None:
    """The simplest value for the items; None if only a regular expression can say it."""
    tokens = _tokens(items)
    match tokens:
        case None:
            return None
        case []:
            return Exactly("")
        case [(False, text)]:
            return Exactly(text)
        case [(True, "%")]:
            return Anything()
        case [(False, text), (True, "%")]:
            return StartsWith(text)
        case [(True, "%"), (False, text)]:
            return Pattern(SUFFIX, text)
        case [(True, "%"), (False, text), (True, "%")]:
            return Pattern(CONTAINS, text)
        case _:
            return Pattern(
                LIKE, "".join([text if wild else _escaped(text) for wild, text in tokens])
            )


def _escaped(text: str) -> str:
    return "".join([_ESCAPE + c if c in ("%", "_", _ESCAPE) else c for c in text])


def _required(items: Sequence[Tree]) -> list[str]:
    """Literal runs at the top of the sequence, and within parts that must occur."""
    found: list[str] = []
    run: list[str] = []
    for item in items:
        character = only_member(item.chars) if isinstance(item, Chars) else None
        if character is not None:
            run.append(character)
            continue
        found.append("".join(run))
        run.clear()
        match item:
            case Repeat(part, low, _) if low > 0:
                found.extend(_required([part]))
            case Concat(parts):
                found.extend(_required(parts))
            case Choice((first, *others)):
                found.extend(_required_by_all(first, others))
            case _:
                pass
    found.append("".join(run))
    return [text for text in found if text]


def _required_by_all(first: Tree, others: Sequence[Tree]) -> list[str]:
    """Strings required by every alternative."""
    required = [_required([other]) for other in others]
    return [
        text
        for text in _required([first])
        if all(any(text in other for other in texts) for texts in required)
    ]


def _in_order(segments: tuple[str, ...], text: str) -> bool:
    """Whether the text starts with the first segment, ends with the last, and has the others in
    this order between them. Taking each at its leftmost place leaves the most room for the next."""
    first, *middle, last = segments
    position, end = len(first), len(text) - len(last)
    if position > end or not text.startswith(first) or not text.endswith(last):
        return False
    for segment in middle:
        found = text.find(segment, position, end)
        if found < 0:
            return False
        position = found + len(segment)
    return True
