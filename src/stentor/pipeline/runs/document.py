"""A pipeline's file: its values, where each of them stands, and what is wrong with it.

Problems are collected and told all at once, each with the line that it is on.

`--set source.quotes.filter="price > 5"` changes a value before anything is looked at. Elements of
a list of tables are named by their `name`, or by their number: `sink.0.trigger=5s`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from stentor.errors import PipelineDefinitionError
from stentor.notation.toml_lines import KeyPath, TomlLines

_MAX_FILE_BYTES: Final = 8 * 2**20


class Document:
    """What is written, and the problems that were found with it."""

    def __init__(self, file: Path, text: str, set: Sequence[str] = ()) -> None:
        """`tomllib.TOMLDecodeError` if it is no TOML. `set` has changes, as KEY=VALUE."""
        self.file = file
        self.data: dict[str, Any] = tomllib.loads(text)
        self._lines = TomlLines(text)
        self._problems: list[tuple[int, str]] = []
        #: Where they are.
        self._wrong: list[KeyPath] = []
        #: Values that were given as `--set`.
        self._changed: dict[KeyPath, str] = {}
        for text in set:
            self._set(text)

    def origin(self, path: KeyPath) -> str:
        """The place of a key, as a user would find it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._changed:
                return self._changed[path[:end]]
        return f"{self.file}:{self._lines.of(*path)}"

    def problem(self, path: KeyPath, text: str) -> None:
        """Note that something is wrong there."""
        self._wrong.append(path)
        self._problems.append((self._lines.of(*path), f"{self.origin(path)}: {text}"))

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
        """Raise all problems, in the order of their lines, if there are any."""
        if self._problems:
            # The sort is stable: problems of one line stay in the order they were found in.
            ordered = [text for _, text in sorted(self._problems, key=lambda each: each[0])]
            raise PipelineDefinitionError("\n".join(dict.fromkeys(ordered)))

    def _set(self, text: str) -> None:
        key, equals, value = text.partition("=")
        origin = f"--set {key.strip()}"
        if not equals or not key.strip():
            self._problems.append((-1, f"--set {text}: write --set KEY=VALUE"))
            return
        place: Any = self.data
        path: KeyPath = ()
        *tables, last = key.strip().split(".")
        for part in tables:
            if isinstance(place, list):
                index = _element(place, part)
                if index is None:
                    self._problems.append((-1, f"{origin}: there is no {part!r} in {dotted(path)}"))
                    return
                place, path = place[index], (*path, index)
            elif isinstance(place, dict):
                place, path = place.setdefault(part, {}), (*path, part)
        if not isinstance(place, dict):
            self._problems.append((-1, f"{origin}: {dotted(path)} has no keys"))
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


def read_document(file: Path, set: Sequence[str] = ()) -> Document:
    """Read a file; `PipelineDefinitionError` if it is no TOML."""
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise PipelineDefinitionError(f"{file}: too large for a pipeline")
        text = file.read_text("utf-8")
        return Document(file, text, set)
    except FileNotFoundError:
        raise PipelineDefinitionError(f"{file}: there is no such file") from None
    except OSError as error:
        raise PipelineDefinitionError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PipelineDefinitionError(f"{file}:{line}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise PipelineDefinitionError(_syntax_problem(file, str(error))) from None
    except RecursionError:
        raise PipelineDefinitionError(f"{file}: nested too deeply") from None


def _syntax_problem(file: Path, message: str) -> str:
    """tomllib's message with the place at its beginning."""
    what, _, place = message.rpartition(" (at ")
    line, _, column = place.rstrip(")").removeprefix("line ").partition(", column ")
    if not what or not line.isdigit():
        return f"{file}: {message}"
    return f"{file}:{line}:{column}: {what[0].lower()}{what[1:]}"
