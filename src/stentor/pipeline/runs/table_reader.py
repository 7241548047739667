"""Reading `[source.NAME]` and `[[step]]`: the tables of events."""

from __future__ import annotations

from typing import Any, Final

from stentor.notation.document import near
from stentor.notation.toml_lines import KeyPath
from stentor.pipeline.runs.definition import Source, Step
from stentor.pipeline.runs.kinds import SOURCES, EndKind
from stentor.pipeline.runs.reader import Reader
from stentor.pipeline.steps.registry import RESERVED_KEYS, StepKind, steps

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
