"""The data pipeline: the same events, the same filters and the same meaning, on Spark.

    register(spark)                      makes `format("stentor")` and `stentor_match` known
    register_subscriptions(spark, ...)   a set of subscriptions as a function in SQL
    events(spark, brokers=..., ...)      the journals of brokers, as a table or a stream
    match(events, subscriptions)         who gets which event
    publish(table, brokers=..., ...)     its rows as events, once for each batch
    archive(events, path)                events as Parquet, exactly once
    history(spark, path, filter, ...)    what was published, between two times
    past(path, since)                    an archive as the beginning of a subscription
    replay(spark, path, brokers, ...)    publish an archive again
    detect(events, pattern)              composite events: patterns over events
    scoped(events, graph)                who gets which event, through scopes and mappings
    audit(trace)                         which guarantee a recorded run has broken

The page for users is docs/pipeline.md. Nothing here imports Spark before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stentor.pipeline.lazy_names import lazily

if TYPE_CHECKING:
    from stentor.pipeline.archives import archive, compact, history, past, replay
    from stentor.pipeline.auditing import audit
    from stentor.pipeline.composites import detect
    from stentor.pipeline.event_table import events
    from stentor.pipeline.filters import to_column
    from stentor.pipeline.matching import match, register_subscriptions
    from stentor.pipeline.scopes import scoped
    from stentor.pipeline.sessions import register, session
    from stentor.pipeline.sink import publish

__all__ = [
    "archive",
    "audit",
    "compact",
    "detect",
    "events",
    "history",
    "match",
    "past",
    "publish",
    "register",
    "register_subscriptions",
    "replay",
    "scoped",
    "session",
    "to_column",
]

__getattr__ = lazily(
    __name__,
    archives="archive compact history past replay",
    auditing="audit",
    composites="detect",
    event_table="events",
    filters="to_column",
    matching="match register_subscriptions",
    scopes="scoped",
    sessions="register session",
    sink="publish",
)
