"""What is worth saying of a filter that is well formed: that nothing matches it, or that it reads
otherwise than it was meant.

Such a filter is no mistake for the language. `x > 5 and x < 3` has a meaning, and programs that put
filters together make some like it on purpose; `high-low > 5` is arithmetic. Whoever subscribes to
one by hand waits for ever, though, and is told: by a warning, or by an error if that was asked for.

There are five such things. Parts of the filter contradict each other; then the two that do are
named. It asks for a reserved name that there is not. It looks into events of a class by a name
that no such event has. Two names stand beside a minus without a space, as in `order-id`, where a
single name with a hyphen may have been meant. Or a date stands there without quotes, which is a
subtraction.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from itertools import combinations
from typing import NamedTuple

from stentor.filters.expression import And, Expression
from stentor.filters.filter import Filter
from stentor.filters.language import parse
from stentor.filters.language.printer import format_expression
from stentor.filters.language.tokens import kinds, offsets, scan
from stentor.model.names import RESERVED

#: Parts of a conjunction that are compared pair by pair.
_COMPARED = 30
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_NAME = re.compile(r"[^\W\d][\w.$]*\Z")


class Advice(NamedTuple):
    """Something to know about a filter."""

    text: str
    #: Whether nothing can match it, so that it is surely not what was meant.
    never: bool
    #: Where in the text it is about, from 0 on.
    offset: int = 0


def advice(text: str, filter: Filter | None = None) -> list[Advice]:
    """What to know about a filter that was written like this.

    >>> advice("price > 100 and symbol = 'IBM' and price < 50")[0].text
    'nothing can match this filter: price > 100 contradicts price < 50'
    >>> advice("order-id = 7")[0].text
    'order-id is read as order minus id; for a name with a hyphen write "order-id"'
    >>> advice("due < 2026-01-31")[0].text
    "2026-01-31 is read as the number 1994; for the date write date '2026-01-31'"
    >>> advice("price > 100")
    []
    """
    filter = Filter(text) if filter is None else filter
    found = [_hyphen(*each) for each in _hyphenated(text)]
    found += [_date(*each) for each in _bare_dates(text)]
    if filter.is_never and text.strip().lower() != "false":
        found.insert(0, Advice(f"nothing can match this filter{_contradiction(text)}", True))
    for name in sorted(filter.names):
        if name.startswith("_") and name not in RESERVED:
            near = difflib.get_close_matches(name, RESERVED, n=1)
            instead = f"did you mean {near[0]}?" if near else f"there are {', '.join(RESERVED)}"
            found.append(
                Advice(
                    f"no event has {name}: names that begin with an underscore are reserved; "
                    f"{instead}",
                    _needs(filter, name),
                    max(0, text.find(name)),
                )
            )
    return found


def unknown_fields(filter: Filter, kind: str, fields: Collection[str]) -> list[Advice]:
    """Names that a filter on events of a class asks for, and that none of its fields has.

    >>> unknown_fields(Filter("prise > 100"), "Quote", ["symbol", "price"])[0].text
    "no Quote has a field prise; did you mean 'price'?"
    """
    found = []
    for name in sorted(filter.names):
        head = name.partition(".")[0]
        if not name.startswith("_") and head not in fields and name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            did = f"; did you mean {near[0]!r}?" if near else ""
            found.append(Advice(f"no {kind} has a field {name}{did}", _needs(filter, name)))
    return found


def _needs(filter: Filter, name: str) -> bool:
    """Whether nothing matches that does not have this name."""
    return all(
        (said := conjunct.constraints.get(name)) is not None and not said.absent
        for conjunct in filter.conjuncts
    )


def _contradiction(text: str) -> str:
    parts = list(_parts(parse(text)))
    for part in parts:
        if Filter.of_expression(part).is_never and len(parts) > 1:
            return f": {format_expression(part)} holds for nothing"
    for one, other in combinations(parts[:_COMPARED], 2):
        if Filter.of_expression(And((one, other))).is_never:
            return f": {format_expression(one)} contradicts {format_expression(other)}"
    return ""


def _parts(expression: Expression) -> list[Expression]:
    if not isinstance(expression, And):
        return [expression]
    return [each for part in expression.parts for each in _parts(part)]


def _hyphenated(text: str) -> list[tuple[str, int]]:
    """Names joined by minus signs without space around them, and where they begin."""
    if "-" not in text:
        return []
    tokens, places = scan(text), offsets(text)
    found: list[tuple[str, int]] = []
    shape = kinds(tokens)
    i = 0
    while i < len(tokens):
        end = i
        while (
            end + 2 < len(tokens)
            and shape[end] == "NAME"
            and tokens[end + 1] == "-"
            and _NAME.match(tokens[end + 2])
            and places[end + 1] == places[end] + len(tokens[end])
            and places[end + 2] == places[end + 1] + 1
        ):
            end += 2
        if end > i:
            found.append((text[places[i] : places[end] + len(tokens[end])], places[i]))
        i = end + 1
    return found


def _bare_dates(text: str) -> list[tuple[str, int]]:
    """Dates that are written as numbers with minus signs between them, and where they begin."""
    tokens, places = scan(text), offsets(text)
    found = []
    for i in range(len(tokens) - 4):
        date = "".join(tokens[i : i + 5])
        if _DATE.match(date) and text.startswith(date, places[i]):
            found.append((date, places[i]))
    return found


def _date(date: str, offset: int) -> Advice:
    year, month, day = map(int, date.split("-"))
    text = f"{date} is read as the number {year - month - day}; for the date write date '{date}'"
    return Advice(text, False, offset)


def _hyphen(name: str, offset: int) -> Advice:
    minus = name.replace("-", " minus ")
    text = f'{name} is read as {minus}; for a name with a hyphen write "{name}"'
    return Advice(text, False, offset)
