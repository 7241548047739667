"""The options of steps, sources and sinks in a pipeline: their kinds, and what a value must be.

Values come from TOML. Here they are checked and brought into the form that functions take, without
Spark; what only Spark can judge (an expression in SQL, a schema) is left to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from stentor.composite import Pattern
from stentor.composite.parser import parse_pattern
from stentor.errors import InvalidAddress, InvalidValue, PipelineDefinitionError, PipelineError
from stentor.filters import Filter
from stentor.pipeline.steps.durations import DURATION_FORM, microseconds
from stentor.pipeline.steps.rules import WINDOW_FORM, read_rule, read_window
from stentor.transport.address import Address


@dataclass(frozen=True)
class Option:
    """What an option holds (a key of `KINDS`), and what it is for."""

    kind: str
    about: str
    required: bool = False
    #: If not empty, what a text must be one of.
    choices: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """What a value looks like, in a few words."""
        return " | ".join(self.choices) or KINDS[self.kind][0]

    def read(self, value: Any) -> Any:
        """The value as functions take it, or an error that says what it must be."""
        form, read = KINDS[self.kind]
        found = read(value)
        if found is None:
            raise PipelineDefinitionError(f"it must be {form}, not {_shown(value)}")
        if self.choices and found not in self.choices:
            raise PipelineDefinitionError(
                f"it must be one of {', '.join(self.choices)}, not {_shown(value)}"
            )
        return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _texts(value: Any) -> list[str] | None:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(map(_text, value)):
        return None
    return list(value)


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _checked(check: Callable[[str], object]) -> Callable[[Any], str | None]:
    """Reads a text that has to be right: the function raises if it is not."""

    def read(value: Any) -> str | None:
        if isinstance(value, str) and value.strip():
            check(value)
        return _text(value)

    return read


def _word_or_texts(*words: str) -> Callable[[Any], str | list[str] | None]:
    return lambda value: value if value in words else _texts(value)


def _names(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict) or not value:
        return None
    return dict(value) if all(isinstance(each, str) for each in value.values()) else None


def _rule(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    read_rule(value)
    return dict(value)


def _servers(value: Any) -> list[str] | None:
    found = _texts(value)
    parts = [part.strip() for each in found or [] for part in each.split(",") if part.strip()]
    for part in parts:
        if not re.fullmatch(r"[^\s:/]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}", part):
            raise PipelineDefinitionError(
                f"{part!r} is not an address of a Kafka broker: host:port"
            )
    return parts or None


def _settings(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict) or not value:
        return None
    flat = dict(flattened(value))
    if not all(isinstance(each, (str, int, float)) for each in flat.values()):
        return None
    return {key: setting(each) for key, each in flat.items()}


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their full names: dots that are not in quotes make tables in TOML."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def setting(value: Any) -> str:
    """The value of a setting, as programs that know only texts want it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def secret(text: str) -> str:
    """A secret; with @ before it, the file that holds it; @@ stands for a plain @."""
    if text.startswith("@@") or not text.startswith("@"):
        return text.removeprefix("@")
    try:
        return Path(text[1:]).read_text("utf-8").strip()
    except OSError as error:
        raise PipelineError(
            f"the secret cannot be read from {text[1:]}: {error.strerror}"
        ) from None


def _dead_letter(value: Any) -> dict[str, str] | None:
    found = _names(value)
    if found is None or len(found) != 1 or not {*found} <= {"topic", "file", "type"}:
        return None
    return found if _text(next(iter(found.values()))) else None


def _addresses(value: Any) -> list[str] | None:
    found = _texts(value)
    if not found:
        return None
    parts = [part.strip() for each in found for part in each.split(",") if part.strip()]
    for part in parts:
        try:
            Address.parse(part)
        except InvalidAddress as error:
            raise PipelineDefinitionError(str(error)) from None
    return parts or None


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if type(value) is date:
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if not isinstance(value, datetime):
        return None
    if value.tzinfo is None:
        raise InvalidValue(
            f"{value.isoformat()} has no time zone; write {value.isoformat()}Z for UTC"
        )
    return value.astimezone(UTC)


def _offsets(value: Any) -> str | dict[str, Any] | None:
    if isinstance(value, Mapping):
        return dict(value) if value else None
    return _text(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# -- patterns of composite events


def written_pattern(pattern: str, events: Mapping[str, Any], name: str | None = None) -> Pattern:
    """A pattern of texts; events that are tables are patterns themselves."""
    named = {} if name is None else {"name": name}
    return Pattern.load({"pattern": pattern, "events": events, **named})


def read_events(value: Any) -> dict[str, Any] | None:
    """What the names of a pattern stand for: filters, or patterns as tables."""
    if not isinstance(value, dict) or not value:
        return None
    for each in value.values():
        if isinstance(each, dict):
            Pattern.load(each)
        elif isinstance(each, str):
            Filter(each)
        else:
            return None
    return dict(value)


#: By kind: what a value must be, and a function that reads it; None if it is nothing like that.
KINDS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "text": ("a text", _text),
    "texts": ("a list of texts", _texts),
    "flag": ("true or false", _flag),
    "count": ("a whole number of at least 1", _count),
    "duration": (DURATION_FORM, _checked(microseconds)),
    "window": (WINDOW_FORM, _checked(read_window)),
    "filter": ("a filter", _checked(Filter)),
    "names": ("a table of texts", _names),
    "rule": ('a table such as {price = "last"}', _rule),
    "pattern": ("a pattern of composite events, such as A ; B within 10s", _checked(parse_pattern)),
    "events": ("a table of names and filters", read_events),
    "addresses": ("a list of addresses of brokers", _addresses),
    "moment": ("a time with its zone, such as 2026-01-31T12:00:00Z", _moment),
    "offsets": ("earliest, latest or a table of offsets", _offsets),
    "keep": ('"all", "none" or a list of attributes', _word_or_texts("all", "none")),
    "by": ('"producer", "all" or a list of attributes', _word_or_texts("producer", "all")),
    "servers": ("a list of addresses host:port", _servers),
    "settings": ("a table of settings", _settings),
    "dead_letter": ('one of {topic = "…"}, {file = "…"} and {type = "…"}', _dead_letter),
    "schema": ('columns and their types, such as "symbol string, price double"', _text),
    "sql": ("an expression or query in SQL", _text),
    "function": ('the name of a function, as "module:function"', _text),
    "path": ("a path", _text),
    # Resolved by the runner to a DataFrame.
    "table": ("the name of a source or step, or a file", _text),
}
