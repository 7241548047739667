"""Traces in files: JSON lines for recorders and for people, Parquet for runs that are large.

Both hold the columns of the trace table (`stentor.pipeline.auditing.table`). A line is an object
with the columns that the action has, and `body` in base64:

    {"trace": "run", "pos": 0, "op": "sub", "comp": "b", "fid": "b#1", "filter": "price > 10"}
    {"trace": "run", "pos": 1, "op": "quiescent"}

The suffix of a name says which form it is: `.parquet`, or `.jsonl` and `.json`, which may be
compressed (`.jsonl.gz`, ...) when they are read. What clients record (`stentor.Recorder`) has the
same form; lines that name no trace are of one run. Recordings of several clients are joined before
they are audited, since their clocks may disagree:
`audit(stentor.recorded("a.jsonl", "b.jsonl").trace)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from stentor.errors import PipelineError
from stentor.pipeline.auditing.table import ARROW_SCHEMA, RUN, SCHEMA, record_batches
from stentor.semantics import Action
from stentor.semantics.lines import Line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_JSON: Final = (".jsonl", ".json")
_COMPRESSED: Final = (".gz", ".bz2", ".zst")


def write_trace(trace: Iterable[Action], path: str | Path, *, run: str = RUN) -> None:
    """Write a run to a file on this machine; the actions are taken one after the other.

    write_trace(trace, "monday.parquet", run="monday")
    audit("monday.parquet", spark).report()
    """
    target = Path(path)
    batches = record_batches(trace, run)
    if target.suffix == ".parquet":
        with pq.ParquetWriter(target, ARROW_SCHEMA) as writer:
            for batch in batches:
                writer.write_batch(batch)
    elif target.suffix in _JSON:
        with target.open("wb") as lines:
            for batch in batches:
                lines.writelines(Line(**row).encoded() for row in batch.to_pylist())
    else:
        raise PipelineError(
            f"the name {target.name!r} does not say how to write the trace; "
            "end it with .jsonl or .parquet"
        )


def read_traces(spark: SparkSession, *paths: str | Path, form: str | None = None) -> DataFrame:
    """The trace table that files or folders hold, of one run or of many.

    `form` is "json" or "parquet", for names that do not say it, such as those of folders.
    """
    if not paths:
        raise PipelineError("no path is given to read traces from")
    found: DataFrame | None = None
    forms = {_form(str(path), form) for path in paths}
    if len(forms) > 1:
        for each in sorted(forms):
            part = read_traces(spark, *[p for p in paths if _form(str(p), form) == each], form=each)
            found = part if found is None else found.unionByName(part)
        assert found is not None
        return found
    names = [str(path) for path in paths]
    if forms == {"parquet"}:
        return spark.read.schema(SCHEMA).parquet(*names)
    # A line that is no object, or in which something has the wrong type, must not pass as nulls.
    lines = spark.read.schema(SCHEMA).option("mode", "FAILFAST").json(names)
    return lines.na.fill(RUN, ["trace"])


def _form(name: str, given: str | None) -> str:
    if given is not None:
        if given not in ("json", "parquet"):
            raise PipelineError(f"traces are json or parquet, not {given!r}")
        return given
    plain = name.rstrip("/")
    for compressed in _COMPRESSED:
        plain = plain.removesuffix(compressed)
    if plain.endswith(".parquet"):
        return "parquet"
    if plain.endswith(_JSON):
        return "json"
    raise PipelineError(
        f"the name {name!r} does not say what is in there; give form='json' or form='parquet'"
    )
