"""A TOML file: its values, where each of them stands, and what is wrong with it.

Problems are collected and told all at once, in the order of their lines, each with its place.

A value can be changed before anything is looked at, as `--set source.quotes.filter="price > 5"`
does for pipelines. Elements of a list of tables are named by their `name`, or by their number:
`sink.0.trigger=5s`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from stentor.errors import StentorError
from stentor.notation.toml_lines import KeyPath, TomlLines

_MAX_FILE_BYTES: Final = 8 * 2**20


class Place(str):
    """Where something is written, as a user would find it."""

    line: int

    def __new__(cls, text: str, line: int = 0) -> Place:
        """`line` is that of a file, if it is in one."""
        place = super().__new__(cls, text)
        place.line = line
        return place


class Problems:
    """Collects what is wrong, and raises it all.

    >>> problems = Problems()
    >>> problems.add(Place("b.toml:7", 7), "there is no key 'x'")
    >>> problems.add("--name", "it is empty")
    >>> problems.check(StentorError)
    Traceback (most recent call last):
    stentor.errors.StentorError: --name: it is empty
    b.toml:7: there is no key 'x'
    """

    def __init__(self) -> None:
        self._found: list[tuple[int, str]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, place: str, text: str) -> None:
        """What is not in a file comes first."""
        self._found.append((place.line if isinstance(place, Place) else 0, f"{place}: {text}"))

    def check(self, error: type[StentorError]) -> None:
        """Raise what was found, if anything was."""
        if self._found:
            # The sort is stable: problems of one line stay in the order they were found in.
            ordered = [text for _, text in sorted(self._found, key=lambda each: each[0])]
            raise error("\n".join(dict.fromkeys(ordered)))


class Document:
    """What is written, and the problems that were found with it."""

    def __init__(self, file: Path, text: str, error: type[StentorError]) -> None:
        """`error` is raised if it is no TOML, and by `check`."""
        self.file = file
        self._error = error
        self.problems = Problems()
        #: Where they are.
        self._wrong: list[KeyPath] = []
        #: Values that were changed, and by what.
        self._changed: dict[KeyPath, str] = {}
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
            self._lines = TomlLines(text)
        except tomllib.TOMLDecodeError as mistake:
            raise error(_syntax_problem(file, text, str(mistake))) from None
        except RecursionError:
            raise error(f"{file}: nested too deeply") from None

    @classmethod
    def read(cls, file: Path, error: type[StentorError]) -> Document:
        """Read a file; `error` is raised if that cannot be, or it is no TOML."""
        try:
            if file.stat().st_size > _MAX_FILE_BYTES:
                raise error(f"{file}: too large for what is written by hand")
            text = file.read_text("utf-8")
        except FileNotFoundError:
            raise error(f"{file}: there is no such file") from None
        except OSError as failure:
            raise error(f"{file}: cannot be read: {failure.strerror}") from None
        except UnicodeDecodeError as failure:
            line = failure.object.count(b"\n", 0, failure.start) + 1
            raise error(f"{file}:{line}: not UTF-8") from None
        return cls(file, text, error)

    def origin(self, path: KeyPath) -> Place:
        """The place of a key, or of what it would be in."""
        line = self._lines.of(*path)
        for end in range(len(path), 0, -1):
            if path[:end] in self._changed:
                return Place(self._changed[path[:end]], line)
        return Place(f"{self.file}:{line}", line)

    def problem(self, path: KeyPath, text: str) -> None:
        """Note that something is wrong there."""
        self._wrong.append(path)
        self.problems.add(self.origin(path), text)

    def is_wrong(self, path: KeyPath) -> bool:
        """Whether a problem was found there or below."""
        return any(each[: len(path)] == path for each in self._wrong)

    def unknown(self, path: KeyPath, names: Iterable[str]) -> None:
        """Note that there is no such key."""
        known = sorted(names)
        name, table = str(path[-1]), dotted(path[:-1])
        inside = f" in {table}" if table else ""
        self.problem(
            path, f"there is no key {name!r}{inside}{near(name, known)} known: {', '.join(known)}"
        )

    def check(self) -> None:
        """Raise all problems, if there are any."""
        self.problems.check(self._error)

    def change(self, text: str) -> None:
        """Set a value, written as KEY=VALUE."""
        key, equals, value = text.partition("=")
        origin = f"--set {key.strip()}"
        if not equals or not key.strip():
            self.problems.add(f"--set {text}", "write --set KEY=VALUE")
            return
        place: Any = self.data
        path: KeyPath = ()
        *tables, last = key.strip().split(".")
        for part in tables:
            if isinstance(place, list):
                index = _element(place, part)
                if index is None:
                    self.problems.add(origin, f"there is no {part!r} in {dotted(path)}")
                    return
                place, path = place[index], (*path, index)
            elif isinstance(place, dict):
                place, path = place.setdefault(part, {}), (*path, part)
        if not isinstance(place, dict):
            self.problems.add(origin, f"{dotted(path)} has no keys")
            return
        place[last] = _value(value.strip())
        self._changed[(*path, last)] = origin


def _element(tables: list[Any], name: str) -> int | None:
    for index, table in enumerate(tables):
        if isinstance(table, dict) and table.get("name") == name:
            return index
    return int(name) if name.isdigit() and int(name) < len(tables) else None


def _value(text: str) -> Any:
    """A value as TOML has it; what is none is a text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def dotted(path: KeyPath) -> str:
    """A path as a user writes it.

    >>> dotted(("step", 0, "collapse"))
    'step[0].collapse'
    """
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).lstrip(".")


def near(name: str, known: Iterable[str]) -> str:
    """A question after the nearest known name, or a semicolon."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ";"


def _syntax_problem(file: Path, text: str, message: str) -> str:
    """tomllib's message with the place at its beginning."""
    what, _, place = message.rpartition(" (at ")
    place = place.rstrip(")")
    if place.startswith("line "):
        line, _, column = place.removeprefix("line ").partition(", column ")
        return f"{file}:{line}:{column}: {what[0].lower()}{what[1:]}"
    if what:  # at end of document
        return (
            f"{file}:{text.count(chr(10)) + 1}: {what[0].lower()}{what[1:]} at the end of the file"
        )
    return f"{file}: {message}"
