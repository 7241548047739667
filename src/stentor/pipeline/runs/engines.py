"""What runs a pipeline: Spark, or a bridge, which needs neither Spark nor Java.

A bridge carries events between brokers and topics of Kafka, as they are: each sink takes from a
source of the other side, with nothing but `select` between them. If all of a pipeline is like that,
a bridge runs it, unless the file says `engine = "spark"` or has something that is Spark's matter:
a schema, settings of Spark, Python files. With `engine = "bridge"`, what only Spark could do is a
mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from stentor.notation.toml_lines import KeyPath
from stentor.pipeline.runs.definition import Pipeline, Sink, Source, Step
from stentor.pipeline.runs.reader import Reader

ENGINES: Final = ("bridge", "spark")

#: Keys of the file, of sources and of sinks that only Spark has a use for.
_SPARK_KEYS: Final = ("spark", "python", "checkpoints")
_SPARK_SOURCE_KEYS: Final = {
    "kafka": ("schema",),
    "stentor": (
        "schema",
        "event_type",
        "ending_offsets",
        "ending_timestamp",
        "max_rows_per_partition",
        "time_column",
        "wait_for_brokers",
        "fail_on_data_loss",
        "mode",
        "sample",
    ),
}
_SPARK_SINK_KEYS: Final = ("checkpoint", "mode", "trigger", "existing")
#: Settings of Kafka's client that promises rest on, so that nobody else sets them.
_OWN_SETTINGS: Final = (
    "acks",
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "isolation.level",
    "transactional.id",
)
#: What goes from where to where without Spark.
_BRIDGED: Final = (("kafka", "stentor"), ("stentor", "kafka"))


class Leg(NamedTuple):
    """One way over a bridge: a source, what is taken of it, and where that goes."""

    source: Source
    filters: tuple[str, ...]
    sink: Sink


def legs(pipeline: Pipeline) -> list[Leg]:
    """The ways over a pipeline that is a bridge."""
    found = [_leg(sink, pipeline.sources, pipeline.steps) for sink in pipeline.sinks.values()]
    return [leg for leg in found if leg is not None]


def _leg(sink: Sink, sources: Mapping[str, Source], steps: Mapping[str, Step]) -> Leg | None:
    filters: list[str] = []
    name = sink.input
    while (step := steps.get(name)) is not None and step.kind.name == "select":
        filters.append(str(step.options.get("filter", "")))
        name = step.inputs[0] if step.inputs else ""
        if len(filters) > len(steps):  # a cycle, which is told elsewhere
            return None
    source = sources.get(name)
    return None if source is None else Leg(source, tuple(filters), sink)


def read_engine(
    reader: Reader,
    sources: Mapping[str, Source],
    steps: Mapping[str, Step],
    sinks: Mapping[str, Sink],
) -> str:
    """Which engine it is; what does not go with the one that was asked for becomes a problem."""
    for path, options in _kafka_ends(reader, sources, sinks):
        for name in options.get("settings", {}):
            if name in _OWN_SETTINGS:
                reader.problem((*path, "settings"), f"{name} is not for you to set")
    asked = ""
    if "engine" in reader.document.data:
        asked = reader.choice(reader.document.data, ("engine",), ENGINES, "spark")
    reasons = list(_reasons(reader, sources, steps, sinks))
    if asked == "bridge":
        for path, text in reasons:
            reader.problem(path, f"{text}, and the engine is a bridge; leave out `engine`")
    if asked == "bridge" or (not asked and not reasons and sinks):
        return "bridge"
    for path, text in _unfit(reader, sources, sinks):
        reader.problem(path, text)
    return "spark"


def _reasons(
    reader: Reader,
    sources: Mapping[str, Source],
    steps: Mapping[str, Step],
    sinks: Mapping[str, Sink],
) -> Iterator[tuple[KeyPath, str]]:
    """Where the file has what only Spark can do, and what that is."""
    for key in _SPARK_KEYS:
        if key in reader.document.data:
            yield (key,), f"{key!r} is for Spark"
    for name, step in steps.items():
        if step.kind.name not in ("select", "unknown"):
            yield reader.places[name], f"the step {step.kind.name!r} needs Spark"
    for name, source in sources.items():
        for key in _SPARK_SOURCE_KEYS.get(source.kind, ()):
            if key in source.options:
                yield (*reader.places[name], key), f"{key!r} is for Spark"
        if source.kind in _SPARK_SOURCE_KEYS and not source.stream:
            yield (*reader.places[name], "stream"), "what is not a stream needs Spark"
        if isinstance(source.options.get("starting_offsets"), dict):
            yield (*reader.places[name], "starting_offsets"), "a table of offsets is for Spark"
    for name, sink in sinks.items():
        path = reader.sinks[name]
        for key in _SPARK_SINK_KEYS:
            if key in _table(reader, path):
                yield (*path, key), f"{key!r} is for Spark"
        leg = _leg(sink, sources, steps)
        if leg is not None and (leg.source.kind, sink.kind) not in _BRIDGED:
            yield path, f"from {leg.source.kind} to {sink.kind} only Spark goes"


def _kafka_ends(
    reader: Reader, sources: Mapping[str, Source], sinks: Mapping[str, Sink]
) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """The options of what reads or writes Kafka, and where they stand."""
    for name, source in sources.items():
        if source.kind == "kafka":
            yield reader.places[name], source.options
    for name, sink in sinks.items():
        if sink.kind == "kafka":
            yield (*reader.sinks[name], "kafka"), sink.options


def _unfit(
    reader: Reader, sources: Mapping[str, Source], sinks: Mapping[str, Sink]
) -> Iterator[tuple[KeyPath, str]]:
    """Where the file has what only a bridge can do, though it is for Spark."""
    for path, options in _kafka_ends(reader, sources, sinks):
        form = options.get("format", "json")
        if form in ("avro", "json_schema"):
            text = (
                f"Spark's connector knows no schema registry, so {form} needs a bridge: a file of "
                "its own, with nothing but `select` between Kafka and brokers"
            )
            yield (*path, "format"), text
        for key in ("dead_letter", "registry", "registry_settings"):
            if key in options:
                yield (*path, key), f"{key!r} is for a bridge, and this pipeline runs on Spark"
        if options.get("exactly_once"):
            text = "Spark writes to Kafka at least once; leave it out, or make it false"
            yield (*path, "exactly_once"), text
        if "kafka" in options and form == "json" and "schema" not in options:
            yield path, "schema is missing: Spark reads JSON by it"


def _table(reader: Reader, path: KeyPath) -> Mapping[str, Any]:
    table: Any = reader.document.data
    for part in path:
        table = table[part]
    found: Mapping[str, Any] = table
    return found
