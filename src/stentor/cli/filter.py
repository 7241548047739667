"""`stentor filter`: filters in files, checked and completed without a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from click.exceptions import BadParameter, Exit

from stentor.cli.command import Argument, Option
from stentor.cli.exits import FAILURE, note
from stentor.cli.json_forms import print_json
from stentor.cli.options import JsonOption

if TYPE_CHECKING:
    from stentor.model import EventTypes


class Action(StrEnum):
    """What to do."""

    CHECK = "check"
    COMPLETE = "complete"


class Language(StrEnum):
    """What a filter is written in."""

    STENTOR = "stentor"
    SELECTOR = "selector"
    PATTERN = "pattern"
    CESQL = "cesql"


def filter(
    action: Annotated[Action, Argument(help="What to do.", show_default=False)],
    given: Annotated[
        list[str],
        Argument(
            metavar="FILE...|TEXT",
            help="check: files of filters, - for standard input. complete: the beginning of one.",
            show_default=False,
        ),
    ],
    language: Annotated[
        Language, Option("--language", metavar="WORD", help="What the filters are written in.")
    ] = Language.STENTOR,
    types: Annotated[
        Path | None,
        Option(
            "--types",
            metavar="FILE",
            help="Event types and their attributes, in TOML.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check files of filters, or complete the beginning of one.

    `check` reports each mistake as FILE:LINE:COLUMN. A file has one filter per line; lines that
    begin with white space continue the one before, and those that begin with # are ignored. An
    event pattern is a file of its own. With --types, attributes that no event type declares are
    reported, too: that file has a table for each type, such as [quote.stock], with lines such as
    price = "number". `complete` lists the words that could follow.

    \b
    Examples:
      stentor filter check filters.txt
      stentor filter check --language cesql --json rules.sql
      stentor filter complete --types types.toml "isa quote and pr"
    """
    known = None if types is None else _types(types)
    if action is Action.COMPLETE:
        _complete(" ".join(given), known, json)
        return
    found = [each for name in given for each in _mistakes(name, language, known)]
    if json:
        print_json(found)
    else:
        for each in found:
            place = f"{each['file']}:{each['line']}:{each['column']}"
            sys.stdout.write(f"{place}: {each['severity']}: {each['message']}\n")
    if any(each["severity"] == "error" for each in found):
        raise Exit(FAILURE)


def _complete(text: str, types: EventTypes | None, json: bool) -> None:
    from stentor.filters.completion import completions
    from stentor.model.event_types import event_types

    found = completions(text, types=types or event_types)
    if json:
        print_json([each._asdict() for each in found])
        return
    if not found:
        note("nothing is known that could follow; --types names attributes")
    for each in found:
        detail = f" ({each.detail})" if each.detail else ""
        sys.stdout.write(f"{each.text}  {each.kind}{detail}\n")


def _mistakes(name: str, language: Language, types: EventTypes | None) -> Iterator[dict[str, Any]]:
    from stentor.errors import FilterSyntaxError, StentorError
    from stentor.filters import Filter
    from stentor.filters.advice import advice
    from stentor.filters.completion import unknown_names
    from stentor.filters.language.mistakes import line_and_column

    readers: dict[Language, Callable[[str], Filter]] = {
        Language.STENTOR: Filter,
        Language.SELECTOR: Filter.from_selector,
        Language.PATTERN: Filter.from_pattern,
        Language.CESQL: Filter.from_cesql,
    }
    read = readers[language]
    text = _text(name)
    pieces = [(1, text)] if language is Language.PATTERN else list(_filters(text))
    for first, piece in pieces:

        def told(
            severity: str, message: str, line: int, column: int, first: int = first
        ) -> dict[str, Any]:
            place = {"file": name, "line": first + line - 1, "column": column}
            return {**place, "severity": severity, "message": message}

        try:
            found = read(piece)
        except FilterSyntaxError as error:
            line, column = error.line or 1, error.column or 1
            message = str(error).partition("\n")[0]
            yield told(
                "error", message.removeprefix(f"line {line}, column {column}: "), line, column
            )
            continue
        except StentorError as error:
            yield told("error", str(error), 1, 1)
            continue
        if language is Language.STENTOR:
            for each in advice(piece, found):
                yield told("warning", each.text, *line_and_column(piece, each.offset))
        elif found.is_never:
            yield told("warning", "nothing can match this filter", 1, 1)
        if types is not None and language is Language.STENTOR:
            for unknown in unknown_names(piece, found.names, types):
                near = f"; did you mean {unknown.near}?" if unknown.near else ""
                message = f"no declared event type has an attribute {unknown.name}{near}"
                yield told("warning", message, unknown.line, unknown.column)


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except OSError as error:
        text = f"{name} cannot be read: {error.strerror}"
        if isinstance(error, FileNotFoundError) and " " in name:
            text += "; a single filter can be piped in: echo FILTER | stentor filter check -"
        raise BadParameter(text) from None
    except UnicodeError as error:
        raise BadParameter(f"{name} is not text in UTF-8: {error}") from None


def _filters(text: str) -> Iterator[tuple[int, str]]:
    """Each filter of a file, with the number of its first line."""
    begun: list[str] = []
    first = 0
    for number, line in enumerate([*text.splitlines(), "#"], 1):
        goes_on = bool(begun) and line[:1].isspace() and line.strip()
        if begun and not goes_on:
            yield first, "\n".join(begun)
            begun = []
        if line.strip() and not line.startswith("#"):
            if not begun:
                first = number
            begun.append(line)


def _types(path: Path) -> EventTypes:
    """From a table for each event type: strings are attributes, tables are types below it."""
    import tomllib

    from stentor.model import EventTypes

    types = EventTypes()

    def declare(prefix: str, table: dict[str, Any]) -> None:
        attributes = {name: kind for name, kind in table.items() if isinstance(kind, str)}
        if prefix:
            types.declare(prefix, attributes=attributes)
        for name, inner in table.items():
            if isinstance(inner, dict):
                declare(f"{prefix}.{name}" if prefix else name, inner)

    try:
        declare("", tomllib.loads(path.read_text("utf-8")))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise BadParameter(f"--types {path}: {error}") from None
    return types
