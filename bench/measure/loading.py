"""Loading from text: how long parsing, adding and compiling take, and how much memory stays.

Filters are parsed and added in chunks and then dropped, as a program would that reads them from a
file. The index compiles in the background while it is being filled; what it still has to do after
the last filter was added is the time of compiling.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from time import perf_counter
from typing import Any

from engines import SLOW, Engine
from measure.clock import resident_bytes
from stentor.filters import Filter
from stentor.matching.index import Index

CHUNK = 1_000


def load(name: str, texts: Iterable[str]) -> tuple[Engine, dict[str, Any]]:
    """A filled engine, and what filling it took."""
    engine: Engine = Index() if name == "Index" else SLOW[name]()
    before = resident_bytes()
    parsing = adding = 0.0
    key = 0
    remaining = iter(texts)
    while chunk := list(islice(remaining, CHUNK)):
        start = perf_counter()
        filters = [Filter(text) for text in chunk]
        middle = perf_counter()
        for filter_ in filters:
            engine.add(key, filter_)
            key += 1
        adding += perf_counter() - middle
        parsing += middle - start
        del filters
    start = perf_counter()
    segments = None
    if isinstance(engine, Index):
        engine.settle()
        segments = engine.segment_count
        engine.compact()
    compiling = perf_counter() - start
    cost: dict[str, Any] = {
        "filters": key,
        "parse_s": parsing,
        "add_s": adding,
        "compile_s": compiling,
        "total_s": parsing + adding + compiling,
        "rss_growth": resident_bytes() - before,
    }
    if isinstance(engine, Index):
        memory = engine.memory
        cost["own_count"] = memory.total
        cost["segments_before_compact"] = segments
    if hasattr(engine, "predicate_count"):
        cost["predicates"] = engine.predicate_count
    return engine, cost
