"""What all addressing models share: reserved names, and a content filter beside the address."""

from __future__ import annotations

from typing import Final

from stentor.errors import FilterSyntaxError, FilterTypeError
from stentor.filters.filter import Filter
from stentor.model.names import MAX_NAME_BYTES, shown, text_problem

CHANNEL: Final = "_channel"
SUBJECT: Final = "_subject"
TYPE: Final = "_type"
TYPES: Final = "_types"

#: A content filter, as a value or in the subscription language.
Content = Filter | str | None


def with_content(address: Filter, content: Content) -> Filter:
    """The address and the content filter together, folded into one filter."""
    if content is None:
        return address
    return address & (content if isinstance(content, Filter) else Filter(content))


def check_text(what: str, text: object, limit: int = MAX_NAME_BYTES) -> None:
    """Raise unless a notification could carry the text: nothing else would ever match."""
    if not isinstance(text, str):
        raise FilterTypeError(f"{what} is a string, not a {type(text).__name__}")
    problem = text_problem(str.__str__(text), limit)
    if problem is not None:
        raise FilterSyntaxError(f"{what} {shown(text)} {problem}, and no notification can carry it")
