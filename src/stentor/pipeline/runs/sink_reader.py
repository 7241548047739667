"""Reading `[[sink]]`: where tables go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stentor.notation.toml_lines import KeyPath
from stentor.pipeline.runs.definition import Sink
from stentor.pipeline.runs.kinds import SINKS, EndKind
from stentor.pipeline.runs.reader import Reader
from stentor.pipeline.steps.durations import DURATION_FORM, interval

_KEYS: Final = ("name", "from", "checkpoint", "mode", "trigger", "existing")
_MODES: Final = ("append", "update", "complete")
_TRIGGER: Final = "1 second"
#: As often as possible; not a length of time.
_AT_ONCE: Final = "0 seconds"


def read_sinks(
    reader: Reader,
    value: Any,
    checkpoints: str,
    is_stream: Callable[[str], bool],
    is_updated: Callable[[str], bool],
) -> dict[str, Sink]:
    """All sinks, by name.

    `is_stream` says whether a table is one, `is_updated` whether its rows replace earlier ones.
    """
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        reader.problem(("sink",), "sinks are a list of tables; write [[sink]] for each")
        return {}
    if not value:
        reader.problem((), "there is no sink, so nothing would happen; add [[sink]]")
    found: dict[str, Sink] = {}
    for index, table in enumerate(value):
        path: KeyPath = ("sink", index)
        kind = _kind(reader, table, path)
        inputs = reader.inputs(table, path)
        for input in inputs:
            reader.check_table(input, (*path, "from"))
        if len(inputs) > 1:
            reader.problem((*path, "from"), "a sink takes one table; add a sink for each")
        if kind is not None and inputs:
            name = _name(reader, table, path, f"{inputs[0]}-{kind.name}", found)
            stream, updated = is_stream(inputs[0]), is_updated(inputs[0])
            sink = _sink(reader, table, path, kind, name, inputs[0], checkpoints, stream, updated)
            _check_memory(reader, path, sink, found)
            found[name] = sink
            reader.sinks[name] = path
    return found


def _check_memory(reader: Reader, path: KeyPath, sink: Sink, others: dict[str, Sink]) -> None:
    """A table in memory, and the query that fills it, belong to one sink."""
    table = sink.options.get("table")
    for other in others.values():
        if sink.kind == other.kind == "memory" and table and other.options.get("table") == table:
            text = f"the sink {other.name!r} makes the table {table!r}, too; give each its own"
            reader.problem((*path, "memory"), text)


def _kind(reader: Reader, table: dict[str, Any], path: KeyPath) -> EndKind | None:
    unknown = [key for key in table if key not in SINKS and key not in _KEYS]
    for key in unknown:
        reader.document.unknown((*path, key), [*SINKS, *_KEYS])
    found = [key for key in table if key in SINKS]
    if len(found) > 1:
        text = f"a sink is one thing, not {' and '.join(found)}; make a sink of each"
        reader.problem((*path, found[1]), text)
    elif not found and not unknown:
        reader.problem(path, f"where does it go? Give one of {', '.join(SINKS)}")
    return SINKS[found[0]] if found else None


def _name(
    reader: Reader, table: dict[str, Any], path: KeyPath, default: str, taken: dict[str, Sink]
) -> str:
    name = reader.text(table, (*path, "name"), default) if "name" in table else default
    place = (*path, "name") if "name" in table else path
    if reader.is_name(name, place) and name in taken:
        reader.problem(place, f"there is another sink {name!r}; give each a name of its own")
    return name


def _sink(
    reader: Reader,
    table: dict[str, Any],
    path: KeyPath,
    kind: EndKind,
    name: str,
    input: str,
    checkpoints: str,
    stream: bool,
    updated: bool,
) -> Sink:
    given = table[kind.name]
    if not isinstance(given, dict):
        # Nothing has to be said to a console.
        given = {} if given is True and kind.name == "console" else {kind.main: given}
    options = reader.options(kind.options, given, (*path, kind.name))
    checkpoint = None if kind.own_checkpoint else f"{checkpoints}/{name}"
    if "checkpoint" in table:
        checkpoint = reader.path(reader.text(table, (*path, "checkpoint"), "-"))
    mode = reader.choice(table, (*path, "mode"), _MODES, "update" if updated else "append")
    if mode not in kind.modes:
        reason = f"the mode is {mode}"
        if updated:
            reason = f"{input!r} is a state whose rows replace earlier ones"
        text = (
            f"{reason}, and {kind.name} can only {' or '.join(kind.modes)}; "
            "collapse with a window and a watermark, or choose another sink"
        )
        reader.problem((*path, "mode" if "mode" in table else kind.name), text)
    existing = reader.choice(table, (*path, "existing"), kind.existing, kind.existing[0])
    if "existing" in table and stream:
        text = f"it is for what is written at once; {input!r} is a stream, and goes on where it was"
        reader.problem((*path, "existing"), text)
    trigger = _trigger(reader, table, (*path, "trigger"))
    stored = "archive" if kind.name == "delta" else kind.name  # another word for it
    return Sink(name, stored, input, options, checkpoint, mode, trigger, existing, stream)


def _trigger(reader: Reader, table: dict[str, Any], path: KeyPath) -> str:
    value = table.get("trigger", _TRIGGER)
    if value in (0, "0s", _AT_ONCE):
        return _AT_ONCE
    if not isinstance(value, str):
        reader.problem(path, f"it must be {DURATION_FORM}; {_AT_ONCE!r}: as often as possible")
        return _TRIGGER
    return reader.guarded(lambda: interval(value), path) or _TRIGGER
