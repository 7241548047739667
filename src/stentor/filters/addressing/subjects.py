r"""Subject patterns of six kinds, compiled into constraints on `_subject`.

A subject is a path, `stocks.nyse.IBM`. The systems of the field agree on that and on little else:
the same pattern means different things to each, so a pattern is never read without its dialect.

    stentor      `*` is exactly one segment, `**` at the end one or more; within a segment `*` is
                 any run of characters (`MSFT*`). With star="subtree" a `*` at the end is a `**`.
    survey       a name; a subscription reaches that node and all its descendants
    swiftmq      a name; a subscription reaches the node, its ancestors and its descendants
    rendezvous   `*` is exactly one element, `>` at the end one or more
    mqps         `?` is one character, `*` any run of characters; separators mean nothing

`subject_like` adds the SQL LIKE addressing of SwiftMQ: `%` is any run, `_` one character, within
one level or, with `whole`, across levels.

How they compile. What is literal becomes an equality; a literal path with an open end ("everything
below `a.b`") becomes an interval of strings, `_subject > 'a.b.' and _subject < 'a.b/'`; so does
every subscription of the survey and SwiftMQ dialects, as a few points and one interval. Indexes
find all of these without running a test. A wildcard between literals becomes a regular expression,
whose automaton makes covering and overlap exact, and whose literal beginning an index can use.

An element is never empty. Subjects with an empty element (`a..b`) are malformed: `SubjectSpace`
refuses to make them, `*` does not match an empty element, and "everything below `a`" means every
longer text that begins with `a.`, whatever follows. Between two patterns of one dialect this makes
no difference: they cover or overlap each other exactly if they do so for well-formed subjects.

A character that is a wildcard elsewhere, at a place where it would be one there, is an error here
and not a literal: it was most likely meant for another dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from stentor.errors import FilterSyntaxError, FilterTypeError
from stentor.filters.addressing.content import SUBJECT, Content, check_text, with_content
from stentor.filters.expression import And, Atom, Expression, Or
from stentor.filters.filter import Filter
from stentor.filters.language.mistakes import syntax_error
from stentor.model.names import MAX_SUBJECT_BYTES

#: What may stand between the elements of a subject.
SEPARATORS: Final = (".", "/")
#: Elements that are wildcards in one system or another, and so no names in any dialect.
_WILD_ELEMENTS: Final = frozenset(("*", "**", ">", "#", "+", "?", "%"))
_LIKE_ESCAPE: Final = "\\"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern to compile, below a literal beginning that is either empty or ends a level."""

    text: str
    under: str
    separator: str
    star: str

    def elements(self) -> Iterator[tuple[str, int]]:
        """The elements, each with its offset in the text."""
        offset = 0
        for element in self.text.split(self.separator):
            if not element:
                raise self.error(offset, "an element of a subject is never empty")
            yield element, offset
            offset += len(element) + 1

    def error(self, offset: int, message: str) -> FilterSyntaxError:
        return syntax_error(self.text, offset, message)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one system writes subjects and patterns."""

    name: str
    separator: str
    #: Characters that have a meaning in patterns (or are refused there), and so no place in names.
    special: str
    compile: Callable[[Pattern], Expression]


def subject(
    pattern: str,
    dialect: str = "stentor",
    content: Content = None,
    *,
    separator: str | None = None,
    star: str = "segment",
) -> Filter:
    """Notifications whose subject the pattern accepts, in one of the dialects.

    >>> print(subject("stocks.nyse.**"))
    _subject > 'stocks.nyse.' and _subject < 'stocks.nyse/'
    >>> f = subject("stocks.*.IBM", dialect="rendezvous", content="price > 100")
    >>> f.matches({"_subject": "stocks.nyse.IBM", "price": 120})
    True
    >>> subject("stocks.>", dialect="rendezvous").covers(f)
    True
    """
    found = dialect_named(dialect, star)
    if found.name == "mqps":
        if separator is not None:
            raise FilterTypeError("separators mean nothing in MQPS patterns; leave separator out")
        separator = found.separator
    expression = compiled(found, pattern, "", checked_separator(found, separator), star)
    return with_content(Filter.of_expression(expression), content)


def subject_like(
    pattern: str,
    content: Content = None,
    *,
    separator: str = ".",
    whole: bool = False,
    escape: str | None = None,
) -> Filter:
    """Notifications whose subject an SQL LIKE pattern accepts, as SwiftMQ addresses topics.

    `%` and `_` stay within one level, and there are as many levels as in the pattern; with `whole`
    the pattern is matched against the text of the subject, where they also stand for separators.

    >>> f = subject_like("iit.s%s._S")
    >>> f.matches({"_subject": "iit.sales.US"}), f.matches({"_subject": "iit.sales.EU"})
    (True, False)
    >>> print(subject_like("iit.%", whole=True))
    _subject prefix 'iit.'
    """
    checked_separator(DIALECTS["swiftmq"], separator)
    return with_content(
        Filter.of_expression(compiled_like(pattern, "", separator, whole, escape)), content
    )


def dialect_named(name: str, star: str) -> Dialect:
    """The dialect; an error if there is none, or if it has no such option."""
    found = DIALECTS.get(name)
    if found is None:
        raise FilterTypeError(
            f"there is no subject dialect {name!r}; known dialects: {', '.join(DIALECTS)}"
        )
    if star not in ("segment", "subtree"):
        raise FilterTypeError(f"star is 'segment' or 'subtree', not {star!r}")
    if star != "segment" and name != "stentor":
        raise FilterTypeError(f"the dialect {name!r} has no option star; leave it out")
    return found


def checked_separator(dialect: Dialect, separator: str | None) -> str:
    if separator is None:
        return dialect.separator
    if separator not in SEPARATORS:
        raise FilterTypeError(f"subjects are separated by '.' or '/', not by {separator!r}")
    return separator


def compiled(dialect: Dialect, text: str, under: str, separator: str, star: str) -> Expression:
    """The pattern as an expression, below a literal beginning."""
    check_text("a subject pattern", text, MAX_SUBJECT_BYTES)
    return dialect.compile(Pattern(text, under, separator, star))


def check_name(dialect: Dialect, text: str, separator: str, *, rooted: bool) -> None:
    """Raise `FilterSyntaxError` unless the text names a subject that patterns can reach.

    If `rooted`, a separator may come first.
    """
    check_text("a subject", text, MAX_SUBJECT_BYTES)
    if rooted and dialect.name == "stentor":
        text = text.removeprefix(separator)
    name = Pattern(text, "", separator, "segment")
    for offset, character in enumerate(text):
        if character in dialect.special:
            raise name.error(offset, f"{character!r} is a wildcard, and this is a name")
    if dialect.name != "mqps":
        for element, offset in name.elements():
            _refuse_wild(name, element, offset)


# -- paths of elements


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of a path: what it is as a regular expression, and as a text if it is one."""

    regex: str
    literal: str | None = None


def _literal(text: str) -> _Element:
    return _Element(re.escape(text), text)


def _path(pattern: Pattern, elements: list[_Element], deeper: bool) -> Expression:
    """Exactly these elements; or, with `deeper`, at least one more after them."""
    under, separator = pattern.under, pattern.separator
    literals = [e.literal for e in elements if e.literal is not None]
    if len(literals) == len(elements):
        if not deeper:
            return Atom(SUBJECT, "=", (under + separator.join(literals),))
        return below(under + "".join([text + separator for text in literals]))
    regex = "^" + re.escape(under) + re.escape(separator).join([e.regex for e in elements])
    regex += re.escape(separator) + "(?s:.)" if deeper else "$"
    return Atom(SUBJECT, "regex", (regex,))


def below(beginning: str) -> Expression:
    """Every longer subject with this beginning: one interval of strings."""
    if not beginning:
        return Atom(SUBJECT, "exists")
    return And((Atom(SUBJECT, "prefix", (beginning,)), Atom(SUBJECT, ">", (beginning,))))


def _one(separator: str) -> _Element:
    return _Element(f"[^{separator}]+")


def _refuse_wild(pattern: Pattern, element: str, offset: int) -> None:
    if element in _WILD_ELEMENTS:
        raise pattern.error(
            offset,
            f"{element!r} is neither a wildcard of this dialect nor a name, because it is one in "
            "others",
        )


# -- the dialects


def _stentor(pattern: Pattern) -> Expression:
    if not pattern.under and pattern.text.startswith(pattern.separator):
        # A rooted path, `/a/b`: the first separator is part of the text, not after an element.
        rest = Pattern(pattern.text[1:], pattern.separator, pattern.separator, pattern.star)
        return _stentor(rest)
    separator = pattern.separator
    found: list[_Element] = []
    elements = list(pattern.elements())
    last = len(elements) - 1
    for i, (element, offset) in enumerate(elements):
        if element == "**" or (element == "*" and pattern.star == "subtree" and i == last):
            if i < last:
                raise pattern.error(offset, "'**' can only be the last segment")
            return _path(pattern, found, deeper=True)
        if element == "*":
            found.append(_one(separator))
        elif "*" in element:
            found.append(_partial(pattern, element, offset))
        else:
            _refuse_wild(pattern, element, offset)
            found.append(_literal(element))
    return _path(pattern, found, deeper=False)


def _partial(pattern: Pattern, element: str, offset: int) -> _Element:
    """A segment with stars among its characters."""
    if "**" in element:
        raise pattern.error(offset + element.index("**"), "'**' must be a whole segment")
    other = "/" if pattern.separator == "." else "."
    if other in element:
        raise pattern.error(
            offset,
            f"this segment has a wildcard and {other!r} in it, but segments are separated by "
            f"{pattern.separator!r} here; pass separator={other!r}, or spell the segment out",
        )
    run = f"[^{pattern.separator}]*"
    return _Element(run.join([re.escape(text) for text in element.split("*")]))


def _rendezvous(pattern: Pattern) -> Expression:
    found: list[_Element] = []
    elements = list(pattern.elements())
    for i, (element, offset) in enumerate(elements):
        if element == ">":
            if i < len(elements) - 1:
                raise pattern.error(offset, "'>' can only be the last element")
            return _path(pattern, found, deeper=True)
        if element == "*":
            found.append(_one(pattern.separator))
            continue
        _refuse_wild(pattern, element, offset)
        for wildcard in "*>":
            if wildcard in element:
                place = offset + element.index(wildcard)
                raise pattern.error(place, f"{wildcard!r} stands for whole elements only")
        found.append(_literal(element))
    return _path(pattern, found, deeper=False)


def _survey(pattern: Pattern) -> Expression:
    path = _node(pattern)
    return Or((Atom(SUBJECT, "=", (path[-1],)), below(path[-1] + pattern.separator)))


def _swiftmq(pattern: Pattern) -> Expression:
    path = _node(pattern)
    return Or((Atom(SUBJECT, "in", tuple(path)), below(path[-1] + pattern.separator)))


def _node(pattern: Pattern) -> list[str]:
    """The subjects on the way from the root to the node, and the node as the last."""
    for offset, character in enumerate(pattern.text):
        if character in _NODE_SPECIAL:
            raise pattern.error(
                offset,
                f"this dialect subscribes to named nodes and has no wildcard {character!r} "
                "(for SQL LIKE patterns use subject_like)",
            )
    path: list[str] = []
    for element, offset in pattern.elements():
        _refuse_wild(pattern, element, offset)
        path.append(path[-1] + pattern.separator + element if path else pattern.under + element)
    return path


def _mqps(pattern: Pattern) -> Expression:
    wildcards = {"*": "%", "?": "_"}
    text = "".join([wildcards.get(c, _like_literal(c)) for c in pattern.text])
    return _like(pattern.under, text)


_NODE_SPECIAL: Final = "*>?%"

DIALECTS: Final = {
    dialect.name: dialect
    for dialect in (
        Dialect("stentor", ".", "*", _stentor),
        Dialect("survey", ".", _NODE_SPECIAL, _survey),
        Dialect("swiftmq", ".", _NODE_SPECIAL, _swiftmq),
        Dialect("rendezvous", ".", "*>", _rendezvous),
        Dialect("mqps", "/", "*?", _mqps),
    )
}


# -- SQL LIKE


def compiled_like(
    text: str, under: str, separator: str, whole: bool, escape: str | None
) -> Expression:
    """An SQL LIKE pattern as an expression, below a literal beginning."""
    check_text("a subject pattern", text, MAX_SUBJECT_BYTES)
    tokens = _like_tokens(text, escape, separator)
    if whole:
        like = "".join([_like_literal(c) if literal else c for c, literal in tokens])
        return _like(under, like)
    levels: list[list[tuple[str, bool]]] = [[]]
    for character, literal in tokens:
        if character == separator:
            levels.append([])
        else:
            levels[-1].append((character, literal))
    pattern = Pattern(text, under, separator, "segment")
    list(pattern.elements())  # none is empty
    return _path(pattern, [_like_level(level, separator) for level in levels], deeper=False)


def _like_tokens(text: str, escape: str | None, separator: str) -> list[tuple[str, bool]]:
    """The characters, each with whether it stands for itself."""
    if escape is not None and (len(escape) != 1 or escape in ("%", "_", separator)):
        raise FilterTypeError(
            f"{escape!r} cannot be the escape; take one character that is not %, _ or {separator!r}"
        )
    tokens: list[tuple[str, bool]] = []
    characters = iter(enumerate(text))
    for offset, character in characters:
        if character != escape:
            tokens.append((character, character not in "%_"))
            continue
        _, escaped = next(characters, (0, ""))
        if escaped not in ("%", "_", escape):
            raise syntax_error(text, offset, f"{escape!r} escapes only %, _ and itself")
        tokens.append((escaped, True))
    return tokens


def _like_level(level: list[tuple[str, bool]], separator: str) -> _Element:
    if all(literal for _, literal in level):
        return _literal("".join([c for c, _ in level]))
    if all(c == "%" and not literal for c, literal in level):
        return _one(separator)
    wildcards = {"%": f"[^{separator}]*", "_": f"[^{separator}]"}
    return _Element("".join([re.escape(c) if literal else wildcards[c] for c, literal in level]))


def _like(under: str, pattern: str) -> Expression:
    if not under and set(pattern) <= {"%", "_"} and "%" in pattern and pattern.count("_") <= 1:
        return Atom(SUBJECT, "exists")  # one character at least, which every subject has
    return Atom(SUBJECT, "like", (_like_literal(under) + pattern, _LIKE_ESCAPE))


def _like_literal(text: str) -> str:
    return "".join([_LIKE_ESCAPE + c if c in ("%", "_", _LIKE_ESCAPE) else c for c in text])
