"""The sink: each row of a DataFrame is published as a notification, once."""

from stentor.pipeline.sink.transactions import publish
from stentor.pipeline.sink.writers import BatchWriter, StreamWriter

__all__ = ["BatchWriter", "StreamWriter", "publish"]
