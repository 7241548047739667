"""The source: the journals of many brokers as one table, for batches and for streams."""

from stentor.pipeline.source.counting import counted
from stentor.pipeline.source.datasource import StentorSource
from stentor.pipeline.source.reserved import teach_readers

__all__ = ["StentorSource", "counted", "teach_readers"]
