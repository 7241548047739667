"""A pipeline as a value, and the form in which it is written.

A pipeline is a graph: sources of events, steps that make tables of tables, and sinks that take
tables away. Every table has a name. In TOML:

    name = "market"                         # by default the name of the file
    python = ["mappings.py"]                # files with functions, or steps of your own
    checkpoints = "/data/checkpoints"       # by default .stentor/<name> beside the file

    [spark]                                 # all of it may be left out
    master = "local[*]"                     # --master goes before it
    config = { "spark.sql.shuffle.partitions" = 8 }

    [source.quotes]                         # the journals of brokers, as a stream
    brokers = ["127.0.0.1:7411"]
    filter = "symbol = 'IBM'"               # the brokers filter
    schema = "symbol string, price double, volume long"

    [source.orders]                         # topics of Kafka
    kafka = "orders"
    servers = ["127.0.0.1:9092"]
    schema = "id long, symbol string"

    [source.companies]                      # files: parquet, json or csv; or a table by jdbc
    parquet = "companies.parquet"           # stream = true takes files as they come

    [source.past]                           # an archive
    archive = "archive"
    since = 2026-01-01T00:00:00Z

    [[step]]
    name = "bars"
    from = "quotes"                         # by default the table of the step or source before it
    [step.collapse]
    key = ["symbol"]
    rule = { high = "max price", low = "min price", close = "last price", trades = "count" }
    window = "1 minute"
    watermark = "10 seconds"

    [[sink]]
    from = "bars"                           # by default the last step
    stentor = { brokers = ["127.0.0.1:7411"], type = "bar" }
    trigger = "1 second"                    # how often; "0 seconds" means as often as possible
    checkpoint = "checkpoints/bars"         # by default under `checkpoints`, by the sink's name

    [[sink]]
    from = "companies"                      # no stream: written once in each run
    parquet = "known"
    existing = "replace"                    # or "add"; by default it fails if there is something

A step is one key beside `name` and `from`: any that `stentor pipeline steps` lists. Given just a
value, it is the step's main option: `select = "price > 100"`. The kinds of sources and sinks are in
`kinds`. Paths are relative to the file; those that begin with a scheme (`s3a://…`) are taken as
they are.

Each sink is a query of its own, with its own checkpoint: it reads its sources by itself, and goes
on where it was when the pipeline is run again. What only carries events between Kafka and brokers
is run without Spark (see `engines`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stentor.pipeline.steps.registry import StepKind

_EXISTING: Final = {
    "fail": "fails if it exists",
    "replace": "replaces what is there",
    "add": "adds to what is there",
}


@dataclass(frozen=True)
class Source:
    """Where events come from."""

    name: str
    kind: str
    options: Mapping[str, Any]
    stream: bool


@dataclass(frozen=True)
class Step:
    """A table that is made of others."""

    name: str
    kind: StepKind
    #: The tables it is made of: one, unless the kind takes many.
    inputs: tuple[str, ...]
    #: As the function takes them; those of the kind `table` are still names or paths.
    options: Mapping[str, Any]

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables that it needs, those in its options among them, and paths of files."""
        kinds = self.kind.options
        named = [v for k, v in self.options.items() if kinds[k].kind == "table"]
        return (*self.inputs, *named)


@dataclass(frozen=True)
class Sink:
    """Where a table goes."""

    name: str
    kind: str
    input: str
    options: Mapping[str, Any]
    #: None where the kind keeps its own.
    checkpoint: str | None
    #: Output mode of the query.
    mode: str
    #: An interval as Spark writes it.
    trigger: str
    #: What a batch does with a target that is there already.
    existing: str = "fail"
    #: Whether what comes is a stream, so that it goes on where it was.
    stream: bool = True


@dataclass(frozen=True)
class Pipeline:
    """All of it, found to be in order. Steps stand behind those that they need."""

    name: str
    file: Path
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Sink]
    #: What runs it: spark, or bridge.
    engine: str = "spark"
    master: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    #: Python files, for the driver and the executors.
    python: tuple[Path, ...] = ()
    #: What the user should know, though it is no mistake.
    warnings: tuple[str, ...] = ()

    def outline(self) -> dict[str, Any]:
        """What it does, for machines."""
        return {
            "file": str(self.file),
            "pipeline": self.name,
            "engine": self.engine,
            "sources": [
                {"name": each.name, "kind": each.kind, "stream": each.stream}
                for each in self.sources.values()
            ],
            "steps": [
                {"name": each.name, "kind": each.kind.name, "tables": list(each.tables)}
                for each in self.steps.values()
            ],
            "sinks": [
                {
                    "name": each.name,
                    "input": each.input,
                    "kind": each.kind,
                    "how": self._how_written(each),
                }
                for each in self.sinks.values()
            ],
            "warnings": list(self.warnings),
        }

    def describe(self) -> str:
        """What it does, in a few lines."""
        runs = "runs on Spark" if self.engine == "spark" else "a bridge, runs without Spark"
        lines = [f"{self.file}: pipeline {self.name}, {runs}"]
        for source in self.sources.values():
            how = "stream" if source.stream else "batch"
            lines.append(f"  source {source.name}: {source.kind}, {how}")
        for step in self.steps.values():
            lines.append(f"  step {step.name}: {step.kind.name} of {', '.join(step.tables)}")
        for sink in self.sinks.values():
            how = self._how_written(sink)
            lines.append(f"  sink {sink.name}: {sink.input} to {sink.kind}, {how}")
        return "\n".join(lines)

    def _how_written(self, sink: Sink) -> str:
        if sink.kind == "kafka":
            once = self.engine == "bridge" and sink.options.get("exactly_once", True)
            return "each record once" if once else "each record at least once"
        return sink.mode if sink.stream else f"once, {_EXISTING[sink.existing]}"
