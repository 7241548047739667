"""The keys of a configuration, read off the classes in `stentor.broker.settings`.

A setting has one name in three spellings, made by rule: the key `limits.link_queue` of a
configuration file is the option `--limits-link-queue` and the variable `STENTOR_LIMITS_LINK_QUEUE`.
The one exception is `neighbors`, whose option is given once per neighbor and so is `--neighbor`.

A list of tables (`[[grants]]`) has neither option nor variable: it is set in a file.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from stentor.broker.settings import About, Grant, Settings
from stentor.notation.units import format_duration, format_size

#: Before the names of variables.
PREFIX: Final = "STENTOR_"
#: How "no value" is written where a setting may have none; TOML has no null.
NONE: Final = "none"

_FLAGS: Final = {"neighbors": "--neighbor"}


@dataclasses.dataclass(frozen=True)
class Key:
    """One setting."""

    path: tuple[str, ...]
    about: About
    #: `dataclasses.MISSING` if there is none.
    default: Any
    #: Whether it may have no value.
    optional: bool

    @property
    def dotted(self) -> str:
        """As in a configuration file."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """As an option of the command."""
        return _FLAGS.get(self.dotted) or "--" + "-".join(self.path).replace("_", "-")

    @property
    def variable(self) -> str:
        """As a variable of the environment."""
        return PREFIX + "_".join(self.path).upper()

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def shown_default(self) -> str:
        """The default as one would write it; empty for none."""
        return "" if self.required else shown(self, self.default)


def shown(key: Key, value: Any) -> str:
    """A value as one would write it as an option."""
    if value is None:
        return NONE if key.about.kind in ("duration", "size") else ""
    match key.about.kind:
        case "duration":
            return format_duration(value)
        case "size":
            return format_size(value)
        case "flag":
            return "true" if value else "false"
        case "addresses" | "filters" | "texts" | "choices":
            return ", ".join(value)
        case _:
            return str(value)


@cache
def broker_keys() -> tuple[Key, ...]:
    """Every key of a broker but those of lists of tables.

    >>> [key.flag for key in broker_keys()][:4]
    ['--listen', '--advertise', '--name', '--data']
    """
    return tuple(_keys(Settings, ()))


@cache
def grant_keys() -> tuple[Key, ...]:
    """The keys of `[[grants]]`."""
    return tuple(_keys(Grant, ()))


@cache
def sections() -> dict[tuple[str, ...], type]:
    """Tables inside a broker's table, and the class that each becomes."""
    hints = get_type_hints(Settings, include_extras=True)
    found: dict[tuple[str, ...], type] = {}
    for field in dataclasses.fields(Settings):
        cls = _section_class(hints[field.name])
        if cls is not None:
            found[(field.name,)] = cls
    return found


def _keys(cls: type, path: tuple[str, ...]) -> Iterator[Key]:
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        section = _section_class(hint)
        if section is not None:
            yield from _keys(section, (*path, field.name))
        elif get_origin(hint) is Annotated:
            plain, about = get_args(hint)[:2]
            optional = type(None) in get_args(plain)
            yield Key((*path, field.name), about, field.default, optional)


def _section_class(hint: Any) -> type | None:
    """The class of a nested table, if this is the type of one."""
    if get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


# -- the reference, for people

_KINDS: Final = {
    "text": "text",
    "secret": "text, or @FILE",
    "flag": "true or false",
    "count": "whole number",
    "share": "number from 0 to 1",
    "duration": "duration",
    "size": "size",
    "path": "path",
    "address": "address",
    "addresses": "list of addresses",
    "filters": "list of filters",
    "texts": "list of texts",
    "choices": "list",
}


def value_form(key: Key) -> str:
    """What a value of the setting looks like, in a few words."""
    form = " | ".join(key.about.choices) or _KINDS[key.about.kind]
    if key.about.kind == "choices":
        form = f"list of {form}"
    if key.about.kind in ("duration", "size") and key.optional:
        form += f", or {NONE}"
    return form


def reference() -> str:
    """Every key, as a page in Markdown."""
    lines = [
        "| Key | Option | Variable | Value | Default | Meaning |",
        "|---|---|---|---|---|---|",
    ]
    for key in broker_keys():
        default = f"`{key.shown_default}`" if key.shown_default else ""
        lines.append(
            f"| `{key.dotted}` | `{key.flag}` | `{key.variable}` | {_cell(value_form(key))} "
            f"| {default} | {_cell(key.about.text)} |"
        )
    lines += [
        "",
        "`[[grants]]`, as often as needed, has these keys:",
        "",
        "| Key | Value | Default | Meaning |",
        "|---|---|---|---|",
    ]
    for key in grant_keys():
        default = key.shown_default
        if key.about.kind == "filters":
            default = '[""]: everything'
        shown_default = f"`{default}`" if default else ""
        lines.append(
            f"| `{key.dotted}` | {_cell(value_form(key))} | {shown_default} "
            f"| {_cell(key.about.text)} |"
        )
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
