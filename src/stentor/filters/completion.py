"""What could stand at a place in a filter: for editors, shells and whoever writes filters.

The grammar says what it would accept after the tokens before the place. Where it accepts an
attribute, these are the attributes of declared event types, and only of those that the filter asks
for by `isa`, if it does; after `isa` they are the types themselves, after `is` the types of values.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final, NamedTuple

from stentor.filters.language.grammar import UnexpectedTextError, parse_kinds
from stentor.filters.language.literals import tested_types
from stentor.filters.language.mistakes import TextError, line_and_column
from stentor.filters.language.printer import format_name
from stentor.filters.language.tokens import KEYWORDS, kinds, offsets, scan
from stentor.model.event_types import EventTypes, event_types

_WORD: Final = re.compile(r'"[^"]*$|[\w$.]*$')
_KEYWORD_OF: Final = {kind: word for word, kind in reversed(KEYWORDS.items())}


class Completion(NamedTuple):
    """A word that could stand there, what it is, and for an attribute its type if it has one."""

    text: str
    kind: str
    detail: str = ""


def completions(
    text: str, cursor: int | None = None, types: EventTypes = event_types
) -> list[Completion]:
    """The words that could stand at the cursor, which is at the end unless it is given.

    >>> types = EventTypes()
    >>> _ = types.declare("quote", attributes={"price": "number", "symbol": "string"})
    >>> [found.text for found in completions("isa quote and pr", types=types)]
    ['price']
    """
    before = text if cursor is None else text[:cursor]
    match = _WORD.search(before)
    begun = match[0] if match else ""
    tokens = scan(before[: len(before) - len(begun)])
    shape = kinds(tokens)
    try:
        parse_kinds((*shape, "UNKNOWN"))  # which nothing accepts
        return []
    except UnexpectedTextError as problem:
        if problem.index != len(shape):
            return []  # there is a mistake before the place
        accepted = problem.accepted
    except TextError:
        return []
    found: list[Completion] = []
    last = shape[-1] if shape else ""
    if last == "ISA":
        found += [Completion(format_name(name), "event type") for name in types.declared]
    elif last == "IS" or shape[-2:] == ("IS", "NOT"):
        found += [Completion(name, "type") for name in tested_types()]
    elif "QUOTED" in accepted:
        found += [
            Completion(format_name(name), "attribute", detail)
            for name, detail in sorted(known_attributes(text, types).items())
        ]
    if last not in ("ISA",):
        words = [_KEYWORD_OF[kind] for kind in sorted(accepted) if kind in _KEYWORD_OF]
        found += [Completion(word, "keyword") for word in words]
    start = begun.lower()
    return [each for each in dict.fromkeys(found) if each.text.lower().startswith(start)]


def known_attributes(text: str, types: EventTypes = event_types) -> dict[str, str]:
    """The declared attributes, with their types, of the event types that a filter asks for."""
    asked = [name for name in _asked(text) if name in types.declared]
    found: dict[str, str] = {}
    for name in asked or types.declared:
        found |= types.attributes(name)
        for other in types.declared:
            if name in types.ancestors(other):
                found |= types.attributes(other)
    return found


def _asked(text: str) -> list[str]:
    tokens = scan(text)
    shape = kinds(tokens)
    return [
        tokens[i + 1].strip("\"'")
        for i, kind in enumerate(shape[:-1])
        if kind == "ISA" and shape[i + 1] in ("NAME", "QUOTED", "STRING")
    ]


class UnknownName(NamedTuple):
    """An attribute of a filter that no declared event type has."""

    name: str
    line: int
    column: int
    near: str | None


def unknown_names(
    text: str, names: frozenset[str], types: EventTypes = event_types
) -> list[UnknownName]:
    """Those of a filter's attributes that no event type it asks for declares.

    >>> types = EventTypes()
    >>> _ = types.declare("quote", attributes={"price": "number"})
    >>> unknown_names("prise > 5", frozenset(["prise"]), types)
    [UnknownName(name='prise', line=1, column=1, near='price')]
    """
    known = known_attributes(text, types)
    if not known:
        return []
    tokens, starts = scan(text), offsets(text)
    found: list[UnknownName] = []
    for name in sorted(names):
        if name in known or name.startswith("_"):
            continue
        place = next((s for t, s in zip(tokens, starts, strict=True) if t.strip('"') == name), 0)
        near = get_close_matches(name, known, 1)
        found.append(UnknownName(name, *line_and_column(text, place), near[0] if near else None))
    return found
