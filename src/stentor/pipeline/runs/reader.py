"""Reading the tables of a pipeline's file: what every part of it has in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from stentor.errors import StentorError
from stentor.notation.document import Document, near
from stentor.notation.toml_lines import KeyPath
from stentor.pipeline.steps.options import Option

NAME_FORM: Final = "a letter, then letters, digits, - or _"

#: Kinds of options whose entries are judged one by one.
_ENTRIES: Final = ("rule", "names", "events")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


class Reader:
    """Reads values of a document; whatever is wrong with one becomes a problem of it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._base = document.file.absolute().parent
        #: The tables of events that are known so far, and where each is written.
        self.places: dict[str, KeyPath] = {}
        #: The same for sinks.
        self.sinks: dict[str, KeyPath] = {}

    def problem(self, path: KeyPath, text: str) -> None:
        self.document.problem(path, text)

    def text(self, table: Mapping[str, Any], path: KeyPath, default: str = "") -> str:
        """The text under the last key of the path."""
        value = table.get(str(path[-1]), default)
        if isinstance(value, str) and value.strip():
            return value
        self.problem(path, f"it must be a text, not {value!r}")
        return default

    def choice(
        self, table: Mapping[str, Any], path: KeyPath, choices: Sequence[str], default: str
    ) -> str:
        """The same, one of several."""
        value = table.get(str(path[-1]), default)
        if value in choices:
            return str(value)
        self.problem(path, f"it must be one of {', '.join(choices)}, not {value!r}")
        return default

    def is_name(self, name: str, path: KeyPath) -> bool:
        """Whether something can be called so."""
        if _NAME.fullmatch(name):
            return True
        self.problem(path, f"{name!r} is no name: {NAME_FORM}")
        return False

    def add_table(self, name: str, path: KeyPath, place: KeyPath) -> None:
        """Note that there is a table of events; `path` is where it gets its name."""
        if self.is_name(name, path) and name in self.places:
            first = self.document.origin(self.places[name])
            self.problem(path, f"there is another table {name!r}, at {first}")
        self.places.setdefault(name, place)

    def inputs(self, table: Mapping[str, Any], path: KeyPath) -> tuple[str, ...]:
        """What `from` says; by default the table that was written last."""
        value = table.get("from")
        if value is None:
            before = list(self.places)
            if not before:
                self.problem(path, "there is no table before it to take events from")
            return tuple(before[-1:])
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            self.problem((*path, "from"), "it must name a source or step, or a list of such")
            return ()
        return tuple(names)

    def options(
        self,
        known: Mapping[str, Option],
        given: Mapping[str, Any],
        path: KeyPath,
        extra: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The options that are right. Names in `extra` are only mentioned to the user."""
        found = {}
        for key, value in given.items():
            option = known.get(key)
            if option is None:
                self.document.unknown((*path, key), [*known, *extra])
                continue
            if option.kind in _ENTRIES and isinstance(value, dict):
                value = self._right_entries(option, value, (*path, key))
                if not value:
                    continue
            read = self.guarded(_reading(option, value), (*path, key), f"{key}: ")
            if read is not None:
                found[key] = self._placed(option, read)
        for key, option in known.items():
            if option.required and key not in given:
                self.problem(path, f"{key} is missing: {option.about}")
        return found

    def _placed(self, option: Option, value: Any) -> Any:
        """The value, paths in it seen from where the file is."""
        if option.kind == "path":
            return self.path(value)
        if option.kind == "dead_letter" and "file" in value:
            return {"file": self.path(value["file"])}
        return value

    def _right_entries(
        self, option: Option, value: dict[str, Any], path: KeyPath
    ) -> dict[str, Any]:
        """Those that are right by themselves, unless the whole of it is wrong."""
        if len(value) < 2:
            return value
        return {
            name: each
            for name, each in value.items()
            if self.guarded(_reading(option, {name: each}), (*path, name), f"{path[-1]}: ")
            is not None
        }

    def guarded(self, read: Callable[[], Any], path: KeyPath, prefix: str = "") -> Any:
        """What the function returns. If it complains, that is a problem, and the result None."""
        try:
            return read()
        except StentorError as error:
            self.problem(path, f"{prefix}{error}")
            return None

    def path(self, written: str) -> str:
        """A path, seen from where the file is."""
        return written if is_remote(written) else str(self._base / written)

    def check_table(self, name: str, path: KeyPath) -> None:
        """Note if there is no table of that name."""
        if name not in self.places:
            known = list(filter(_NAME.fullmatch, self.places))
            self.problem(
                path, f"there is no table {name!r}{near(name, known)} known: {', '.join(known)}"
            )


def _reading(option: Option, value: Any) -> Callable[[], Any]:
    return lambda: option.read(value)


def is_remote(path: str) -> bool:
    """Whether a path begins with a scheme, such as s3a:// or hdfs://."""
    return _SCHEME.match(path) is not None
