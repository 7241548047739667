"""Files of notifications: JSON lines or arrays, or CSV whose first line names the attributes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from stentor.errors import InvalidConfiguration, InvalidNotification

#: Lines that are handed over at a time.
_AT_ONCE: Final = 1_000
#: Bytes of a file, at most, that is read as a whole.
_WHOLE: Final = 64 * 2**20
#: How the names of such files end.
_ENDINGS: Final = (".csv", ".json", ".jsonl", ".ndjson")
_WORDS: Final = {"true": True, "false": False}


_JSON: Final = re.compile(r"\s*(\{|\[\s*\{)")


def is_json(text: str) -> bool:
    """Whether this word is an event, or an array of them.

    >>> [is_json(each) for each in ('{"a": 1}', '[{"a": 1}]', "quotes.jsonl", "[::1]:7411")]
    [True, True, False, False]
    """
    return _JSON.match(text) is not None


def elements(line: bytes) -> list[bytes]:
    """The events of a line: one, or those of an array.

    >>> elements(b'{"a": 1}'), elements(b'[{"a": 1}, {"a": 2}]')
    ([b'{"a": 1}'], [b'{"a": 1}', b'{"a": 2}'])
    """
    if not line.lstrip().startswith(b"["):
        return [line]
    try:
        found = [bytes(each) for each in msgspec.json.decode(line, type=list[msgspec.Raw])]
    except msgspec.DecodeError:
        found = []
    return found or [line]  # whoever reads it says what is wrong with it


def is_file_name(text: str) -> bool:
    """Whether this word, which might be an address as well, is meant as a file.

    >>> [is_file_name(each) for each in ("quotes.jsonl", "b1.example", "b1.example:7411")]
    [True, False, False]
    """
    return text.lower().endswith(_ENDINGS) or Path(text).is_file()


def check_files(events: list[str]) -> None:
    """Raise if something is neither a JSON object nor a file."""
    for each in events:
        if is_json(each):
            continue
        try:
            with open(each, "rb"):
                pass
        except OSError as error:
            raise InvalidConfiguration(
                f"{each!r} is neither a JSON object nor a file that can be read "
                f"({error.strerror}); "
                """write an object as in '{"price": 9}', or name a file"""
            ) from None


async def lines_of(events: list[str]) -> AsyncIterator[list[tuple[int, bytes]]]:
    """The lines of all files, with their numbers; an argument that is JSON is a line by itself."""
    for each in events:
        found: list[tuple[int, bytes]] = []
        for numbered in _lines(each):
            found.append(numbered)
            if len(found) == _AT_ONCE:
                yield found
                found = []
        if found:
            yield found


def _lines(text: str) -> Iterator[tuple[int, bytes]]:
    if is_json(text):
        yield 1, text.encode("utf-8", "surrogateescape")
    elif Path(text).suffix.lower() == ".csv":
        yield from _csv(text)
    else:
        with open(text, "rb") as file:
            first = file.readline()
            if not _is_whole(first) and _is_whole(first + (rest := file.read(_WHOLE))):
                yield 1, first + rest  # one object or array, over several lines
                return
            file.seek(0)
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line


def _is_whole(data: bytes) -> bool:
    """Whether this is JSON by itself."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _csv(path: str) -> Iterator[tuple[int, bytes]]:
    """Rows as JSON objects: what looks like a number is one, an empty field is left out."""
    import csv

    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, strict=True)
            for row in rows:
                if None in row:
                    raise InvalidNotification(
                        f"{path}, line {rows.line_num}: it has more fields than the first line"
                    )
                event = {name: _value(text) for name, text in row.items() if text}
                yield rows.line_num, msgspec.json.encode(event)
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidNotification(f"{path} is not a CSV file in UTF-8: {error}") from None


def _value(text: str) -> Any:
    """A number or a truth value, or the text itself.

    >>> [_value(text) for text in ("7", "-0.5", "007", "true", "1e3", "nan", "IBM")]
    [7, -0.5, '007', True, 1000.0, 'nan', 'IBM']
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    digits = text.removeprefix("-")
    if not digits[:1].isdigit() or (digits[0] == "0" and digits[1:2].isdigit()):
        return text  # also 007, which somebody has written so on purpose
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
