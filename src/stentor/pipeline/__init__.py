"""The data pipeline: the same events, the same filters and the same meaning, on Spark.

    register(spark)                      makes `format("stentor")` known: source and sink
    match(events, subscriptions)         who gets which event
    archive(events, path)                events as Parquet, exactly once
    history(spark, path, filter, ...)    what was published, between two times
    replay(spark, path, brokers, ...)    publish an archive again
    audit(trace)                         which guarantee a recorded run has broken

The page for users is docs/pipeline.md. Nothing here imports Spark before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stentor.pipeline.archives import archive, compact, history, replay
    from stentor.pipeline.auditing import audit
    from stentor.pipeline.filters import to_column
    from stentor.pipeline.matching import match
    from stentor.pipeline.sessions import register, session

_HOME: Final = {
    "archive": "stentor.pipeline.archives",
    "audit": "stentor.pipeline.auditing",
    "compact": "stentor.pipeline.archives",
    "history": "stentor.pipeline.archives",
    "match": "stentor.pipeline.matching",
    "register": "stentor.pipeline.sessions",
    "replay": "stentor.pipeline.archives",
    "session": "stentor.pipeline.sessions",
    "to_column": "stentor.pipeline.filters",
}

__all__ = [
    "archive",
    "audit",
    "compact",
    "history",
    "match",
    "register",
    "replay",
    "session",
    "to_column",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found
