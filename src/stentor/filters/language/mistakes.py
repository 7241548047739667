"""How a mistake in a text is reported: where it is, what is wrong, what was expected instead.

While a text is read, a mistake is a `TextError` that knows only the number of its token (or nothing
yet). `syntax_error` turns it into the error that the user sees, with the line shown and a caret
below the place.
"""

from __future__ import annotations

import unicodedata
from typing import TypeVar

from stentor.errors import FilterSyntaxError, ScopeSyntaxError

#: Longest part of a line that an error shows on each side of the place.
_SHOWN = 60


class TextError(Exception):
    """A mistake at the token number `index`; -1 until the place is known."""

    def __init__(self, message: str, index: int = -1, expected: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.index = index
        self.expected = expected


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Both counted from 1, in characters.

    >>> line_and_column("a = 1 and\\n b == 2", 13)
    (2, 4)
    """
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


_Error = TypeVar("_Error", FilterSyntaxError, ScopeSyntaxError)


def syntax_error(
    text: str,
    offset: int,
    message: str,
    expected: tuple[str, ...] = (),
    *,
    error: type[_Error] = FilterSyntaxError,  # type: ignore[assignment]  # what it mostly is
    file: str = "",
) -> _Error:
    """The error for a mistake at that place in the text, and in the file that it comes from.

    >>> print(syntax_error("a == 1", 2, "unexpected '=='", ("a value",)))
    line 1, column 3: unexpected '=='
        a == 1
          ^
    expected a value
    """
    line, column = line_and_column(text, offset)
    shown, caret = _excerpt(text, offset)
    where = f"{file}, line" if file else "line"
    parts = [f"{where} {line}, column {column}: {message}", f"    {shown}", f"    {caret}"]
    if expected:
        parts.append("expected " + ", or ".join(expected))
    return error("\n".join(parts), line=line, column=column, expected=expected)


def _excerpt(text: str, offset: int) -> tuple[str, str]:
    """The line around the place, and a second line with a caret below it."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    first = max(start, offset - _SHOWN)
    last = min(end, offset + _SHOWN)
    before = ("…" if first > start else "") + text[first:offset]
    after = text[offset:last].rstrip("\r") + ("…" if last < end else "")
    return _visible(before + after), "".join(map(_blank, before)) + "^"


def shown(text: str) -> str:
    """A piece of the text, as it may stand in a message: on one line, and not too long."""
    return _visible(text if len(text) <= 40 else text[:40] + "…").replace("\t", " ")


def _visible(line: str) -> str:
    return "".join(c if c == "\t" or c.isprintable() else "�" for c in line)


def _blank(character: str) -> str:
    """White space as wide as the character appears on a terminal."""
    if character == "\t":
        return "\t"
    if unicodedata.combining(character):
        return ""
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "
