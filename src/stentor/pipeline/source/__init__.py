"""The source: the journals of many brokers as one table, for batches and for streams."""

from stentor.pipeline.source.counting import counted
from stentor.pipeline.source.datasource import StentorSource
from stentor.pipeline.source.event_table import Events, events, table_of

__all__ = ["Events", "StentorSource", "counted", "events", "table_of"]
