"""From a file to a `Pipeline`: every mistake is found, and told with its place.

Nothing here needs Spark. What is checked: that every key is known and holds what it should; that
filters, rules, windows and addresses are right; that every table that is asked for exists, and
none depends on itself; that sinks can take what comes. What only Spark can know, such as whether a
column exists, is for `analysis`, and told when the pipeline is run, before anything is read.

Python files that a pipeline brings along (functions for `apply`, steps of its own) are loaded when
it is read, so that the steps they register are known to the checks. A module has the name of its
file. When the pipeline is run, Spark sends the files to the executors.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final, NamedTuple

from stentor.errors import PipelineDefinitionError
from stentor.notation.document import Document
from stentor.notation.toml_lines import KeyPath
from stentor.pipeline.runs.definition import Pipeline, Source, Step
from stentor.pipeline.runs.engines import read_engine
from stentor.pipeline.runs.reader import Reader, is_remote, read_sinks, read_sources, read_steps
from stentor.pipeline.steps.options import flattened, setting

_KEYS: Final = ("name", "engine", "python", "checkpoints", "spark", "source", "step", "sink")
_SPARK_KEYS: Final = ("master", "config")


def load(file: str | Path, *, set: Sequence[str] = ()) -> Pipeline:
    """Read a pipeline, or raise `PipelineDefinitionError` with all that is wrong.

    `set` has changes to its values as texts, "KEY=VALUE".

        pipeline = load("market.toml", set=["source.quotes.filter=price > 5"])
    """
    loaded = read(file, set=set)
    loaded.document.check()
    return loaded.pipeline


class Loaded(NamedTuple):
    """A pipeline that was read, and where its tables and its sinks stand in the file."""

    pipeline: Pipeline
    document: Document
    places: Mapping[str, KeyPath]
    sinks: Mapping[str, KeyPath]


def read(file: str | Path, *, set: Sequence[str] = ()) -> Loaded:
    """As `load`, for who has more to say about what stands where.

    What is wrong is not raised but noted in the document; the pipeline lacks it.
    """
    document = Document.read(Path(file), PipelineDefinitionError)
    for change in set:
        document.change(change)
    reader = Reader(document)
    return Loaded(_pipeline(reader), document, reader.places, reader.sinks)


def _pipeline(reader: Reader) -> Pipeline:
    document = reader.document
    data = document.data
    for key in data:
        if key not in _KEYS:
            document.unknown((key,), _KEYS)
    name = reader.text(data, ("name",), document.file.stem)
    reader.is_name(name, ("name",))
    python = _python(reader, data.get("python", []))
    master, config = _spark(reader, data.get("spark", {}))
    base = reader.text(data, ("checkpoints",), f".stentor/{name}")
    sources = read_sources(reader, data.get("source", {}))
    steps = read_steps(reader, data.get("step", []))
    sinks = read_sinks(
        reader,
        data.get("sink", []),
        reader.path(base),
        lambda table: _is_stream(table, sources, steps),
        lambda table: _is_updated(table, sources, steps),
    )
    _check_tables(reader, steps)
    used = needed(steps, [sink.input for sink in sinks.values()])
    warnings = [
        f"{document.origin(reader.places[name])}: nothing uses {name!r}, so it is not read"
        for name in (*sources, *steps)
        if sinks and name not in used
    ]
    made = {name: steps[name] for name in ordered(steps)}
    engine = read_engine(reader, sources, steps, sinks)
    return Pipeline(
        name, document.file, sources, made, sinks, engine, master, config, python, tuple(warnings)
    )


def _python(reader: Reader, value: Any) -> tuple[Path, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        reader.problem(("python",), "it must be a list of Python files")
        return ()
    files = tuple(Path(reader.path(name)) for name in names)
    for index, problem in load_modules(files):
        reader.problem(("python", index), problem)
    return files


def _spark(reader: Reader, value: Any) -> tuple[str | None, dict[str, str]]:
    if not isinstance(value, dict):
        reader.problem(("spark",), "it is a table; write [spark] and its keys below")
        return None, {}
    for key in value:
        if key not in _SPARK_KEYS:
            reader.document.unknown(("spark", key), _SPARK_KEYS)
    master = reader.text(value, ("spark", "master")) if "master" in value else None
    config = value.get("config", {})
    if not isinstance(config, dict):
        reader.problem(("spark", "config"), "it is a table of settings of Spark")
        config = {}
    flat = dict(flattened(config))
    for key, given in flat.items():
        if not key.startswith("spark."):
            text = f"settings of Spark begin with spark., not {key!r}"
            reader.problem(("spark", "config", key), text)
        elif not isinstance(given, (str, int, float)):
            reader.problem(("spark", "config", key), f"{given!r} is not a value of a setting")
    return master, {key: setting(each) for key, each in flat.items()}


def _check_tables(reader: Reader, steps: Mapping[str, Step]) -> None:
    """Every table exists, and none needs itself."""
    for step in steps.values():
        place = reader.places[step.name]
        for table in step.inputs:
            reader.check_table(table, (*place, "from"))
        for key, table in step.options.items():
            path = (*place, step.kind.name, key)
            if step.kind.options[key].kind != "table" or table in reader.places:
                continue
            if "." not in table and "/" not in table:
                reader.check_table(table, path)
            elif not is_remote(table) and not Path(reader.path(table)).exists():
                reader.problem(path, f"there is no file {reader.path(table)}")
    for cycle in cycles(steps):
        shown = " → ".join([*cycle, cycle[0]])
        reader.problem(reader.places[cycle[0]], f"it depends on itself: {shown}")


def _is_stream(table: str, sources: Mapping[str, Source], steps: Mapping[str, Step]) -> bool:
    """Whether the table is made of a stream."""
    return any(name in sources and sources[name].stream for name in needed(steps, [table]))


def _is_updated(table: str, sources: Mapping[str, Source], steps: Mapping[str, Step]) -> bool:
    """Whether, as a stream, the table's rows replace earlier ones."""
    made = [steps[name] for name in needed(steps, [table]) if name in steps]
    return any(s.kind.updates(s.options) and _is_stream(s.name, sources, steps) for s in made)


def cycles(steps: Mapping[str, Step]) -> list[list[str]]:
    """Steps that need each other, one list for each such group."""
    found: list[list[str]] = []
    left = {
        name: [table for table in step.tables if table in steps] for name, step in steps.items()
    }
    while left:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            cycle = list(error.args[1][1:])[::-1]
            found.append(cycle)
            gone = set(cycle)
            left = {n: [t for t in ts if t not in gone] for n, ts in left.items() if n not in gone}
        else:
            break
    return found


def ordered(steps: Mapping[str, Step]) -> list[str]:
    """The names of the steps, each behind those that it needs, else as they are written.

    Steps of a cycle, and behind one, are left out.
    """
    found: list[str] = []
    waiting = list(steps)
    while True:
        ready = [
            name
            for name in waiting
            if all(t in found or t not in steps for t in steps[name].tables)
        ]
        if not ready:
            return found
        found.append(ready[0])
        waiting.remove(ready[0])


def needed(steps: Mapping[str, Step], wanted: Iterable[str]) -> set[str]:
    """These tables and all that they are made of."""
    found: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name in steps:
                waiting.extend(steps[name].tables)
    return found


def load_modules(files: Sequence[Path]) -> Iterator[tuple[int, str]]:
    """Load them; yields the number and the problem of each that cannot be loaded."""
    for index, file in enumerate(files):
        if file.suffix not in (".py", ".zip"):
            yield index, f"{file.name} is neither a Python file nor a zip of such"
        elif not file.is_file():
            yield index, f"there is no file {file}"
        else:
            problem = _load(file)
            if problem is not None:
                yield index, problem


def _load(file: Path) -> str | None:
    directory = str(file if file.suffix == ".zip" else file.parent)
    if directory not in sys.path:
        sys.path.append(directory)
    if file.suffix == ".zip":
        return None
    try:
        module = importlib.import_module(file.stem)
    except Exception as error:
        return f"{file.name} cannot be loaded: {type(error).__name__}: {error}"
    loaded = getattr(module, "__file__", None)
    if loaded is None or Path(loaded).resolve() != file.resolve():
        return f"there is another module {file.stem!r}, from {loaded}; give the file another name"
    return None
