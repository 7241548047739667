"""The options of steps, sources and sinks in a pipeline: their kinds, and what a value must be.

Values come from TOML. Here they are checked and brought into the form that functions take, without
Spark; what only Spark can judge (an expression in SQL, a schema) is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from stentor.errors import InvalidAddress, InvalidValue, PipelineDefinitionError
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


def _duration(value: Any) -> str | None:
    if isinstance(value, str):
        microseconds(value)
    return _text(value)


def _window(value: Any) -> str | None:
    if isinstance(value, str):
        read_window(value)
    return _text(value)


def _filter(value: Any) -> str | None:
    if isinstance(value, str):
        Filter(value)
    return _text(value)


def _names(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict) or not value:
        return None
    return dict(value) if all(isinstance(each, str) for each in value.values()) else None


def _rule(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    read_rule(value)
    return dict(value)


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


def _keep(value: Any) -> str | list[str] | None:
    return value if value in ("all", "none") else _texts(value)


def _by(value: Any) -> str | list[str] | None:
    return value if value in ("producer", "all") else _texts(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


#: By kind: what a value must be, and a function that reads it; None if it is nothing like that.
KINDS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "text": ("a text", _text),
    "texts": ("a list of texts", _texts),
    "flag": ("true or false", _flag),
    "count": ("a whole number of at least 1", _count),
    "duration": (DURATION_FORM, _duration),
    "window": (WINDOW_FORM, _window),
    "filter": ("a filter", _filter),
    "names": ("a table of texts", _names),
    "rule": ('a table such as {price = "last"}', _rule),
    "addresses": ("a list of addresses of brokers", _addresses),
    "moment": ("a time with its zone, such as 2026-01-31T12:00:00Z", _moment),
    "offsets": ("earliest, latest or a table of offsets", _offsets),
    "keep": ('"all", "none" or a list of attributes', _keep),
    "by": ('"producer", "all" or a list of attributes', _by),
    "schema": ('columns and their types, such as "symbol string, price double"', _text),
    "sql": ("an expression or query in SQL", _text),
    "function": ('the name of a function, as "module:function"', _text),
    "path": ("a path", _text),
    # Resolved by the runner to a DataFrame.
    "table": ("the name of a source or step, or a file", _text),
}
