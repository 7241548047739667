"""Archives: events as a Delta table, exactly once; their history; and publishing them again.

    archive(events, path)                    events into an archive, a batch or a stream
    history(spark, path, filter, since=...)  what was published; with live=True, and what will be
    compact(spark, path)                     join small files, delete what is no longer needed
    past(path, since)                        an archive as the beginning of a subscription
    replay(None, path, brokers, speed=10)    publish archived events again, in order

How an archive works is described in `stentor.pipeline.archives.tables`. Nothing here imports Spark
before it is used, and `past` and `replay` start none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stentor.pipeline.lazy_names import lazily

if TYPE_CHECKING:
    from stentor.pipeline.archives.appender import archive
    from stentor.pipeline.archives.compaction import compact
    from stentor.pipeline.archives.histories import history
    from stentor.pipeline.archives.pasts import past
    from stentor.pipeline.archives.replayer import replay

__all__ = ["archive", "compact", "history", "past", "replay"]

__getattr__ = lazily(
    __name__,
    appender="archive",
    compaction="compact",
    histories="history",
    pasts="past",
    replayer="replay",
)
