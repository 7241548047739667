"""Reading the tables of a pipeline's file: what every part of it has in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from stentor.errors import StentorError
from stentor.notation.document import Document, near
from stentor.notation.toml_lines import KeyPath
from stentor.pipeline.runs.definition import Sink, Source, Step
from stentor.pipeline.runs.kinds import SINKS, SOURCES, EndKind
from stentor.pipeline.steps.durations import DURATION_FORM, interval
from stentor.pipeline.steps.options import Option
from stentor.pipeline.steps.registry import RESERVED_KEYS, StepKind, steps

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
        self.problem(path, f"{name!r} is not a name: {NAME_FORM}")
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


# -- sources and steps


_FILES: Final = ("parquet", "json", "csv")
#: Stands for what could not be read: it is known by name, or others would be told it is not.
_UNKNOWN: Final = StepKind("unknown", "")


def read_sources(reader: Reader, value: Any) -> dict[str, Source]:
    """All sources, by name."""
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        reader.problem(("source",), "each source has a name; write [source.NAME]")
        return {}
    if not value:
        reader.problem((), "there is no source; add [source.NAME] with its brokers")
    return {name: _source(reader, name, table) for name, table in value.items()}


def _source(reader: Reader, name: str, table: dict[str, Any]) -> Source:
    path: KeyPath = ("source", name)
    reader.add_table(name, path, path)
    kind = _source_kind(reader, table, path)
    if kind is None:
        return Source(name, "unknown", {}, stream=False)
    stream = table.get("stream", kind.stream)
    if not isinstance(stream, bool):
        reader.problem((*path, "stream"), "it must be true or false")
        stream = kind.stream
    if stream and not kind.both:
        reader.problem((*path, "stream"), f"{kind.about} is read as it is, not as a stream")
    if kind.name == "jdbc" and ("table" in table) == ("query" in table):
        reader.problem(path, "give a table, or a query")
    own = {key: value for key, value in table.items() if key != "stream"}
    options = reader.options(kind.options, own, path, ("stream",) if kind.both else ())
    if stream and kind.name in _FILES and "schema" not in own:
        reader.problem(path, "schema is missing: a stream of files needs one")
    if kind.name == "delta":  # another word for it
        return Source(name, "archive", {"archive": options.pop("delta", ""), **options}, stream)
    return Source(name, kind.name, options, stream)


def _source_kind(reader: Reader, table: dict[str, Any], path: KeyPath) -> EndKind | None:
    found = [kind for kind in SOURCES.values() if kind.main in table]
    if len(found) == 1:
        return found[0]
    keys = [kind.main for kind in SOURCES.values()]
    typos = [key for key in table if near(key, keys) != ";"]
    if found:
        mains = " and ".join(kind.main for kind in found)
        reader.problem(path, f"a source has one of {', '.join(keys)}, not {mains}")
    elif typos:
        reader.document.unknown((*path, typos[0]), keys)
    else:
        reader.problem(path, f"where does it read? Give one of {', '.join(keys)}")
    return None


def read_steps(reader: Reader, value: Any) -> dict[str, Step]:
    """All steps, by name, as they are written."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        reader.problem(("step",), "steps are a list of tables; write [[step]] for each")
        return {}
    found = [_step(reader, table, ("step", index)) for index, table in enumerate(value)]
    return {step.name: step for step in found}


def _step(reader: Reader, table: dict[str, Any], path: KeyPath) -> Step:
    inputs = reader.inputs(table, path)
    name = f"step {path[-1]}"  # no name that anything could be given
    if "name" in table:
        name = reader.text(table, (*path, "name"), name)
        reader.add_table(name, (*path, "name"), path)
    else:
        reader.problem(path, "name is missing: others refer to the step by it")
        reader.places[name] = path
    kind = _step_kind(reader, table, path)
    if kind is None:
        return Step(name, _UNKNOWN, inputs, {})
    key = kind.name
    given = _given(reader, kind, table[key], (*path, key))
    options = reader.options(kind.options, given, (*path, key))
    if len(inputs) > 1 and not kind.many:
        reader.problem((*path, "from"), f"{key} takes one table, not {len(inputs)}")
    required = [name for name, option in kind.options.items() if option.required]
    right = not reader.document.is_wrong((*path, key))
    if right and all(name in options for name in required):
        reader.guarded(lambda: kind.check(options), (*path, key))
    return Step(name, kind, inputs, options)


def _step_kind(reader: Reader, table: dict[str, Any], path: KeyPath) -> StepKind | None:
    known = steps()
    keys = [key for key in table if key not in RESERVED_KEYS]
    found = [key for key in keys if key in known]
    for key in keys:
        if key not in known:
            reader.document.unknown((*path, key), [*known, *RESERVED_KEYS])
    if len(found) > 1:
        text = f"a step does one thing, not {' and '.join(found)}; make a step of each"
        reader.problem((*path, found[1]), text)
    elif not keys:
        reader.problem(path, f"what does it do? Give one of {', '.join(known)}")
    return known[found[0]] if found else None


def _given(reader: Reader, kind: StepKind, value: Any, path: KeyPath) -> dict[str, Any]:
    """The options of a step; just a value, or a table of names, is its main one."""
    main = kind.main
    if isinstance(value, dict):
        if main is None or kind.options[main].kind != "names":
            return value
        return value if isinstance(value.get(main), dict) else {main: value}
    if main is None:
        reader.problem(path, f"it is a table, with {', '.join(kind.options)}")
        return {}
    return {main: value}


# -- sinks


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
