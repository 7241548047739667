"""Which rows a task publishes."""

from __future__ import annotations

from typing import NamedTuple


class Task(NamedTuple):
    """One partition of one micro-batch of one query.

    >>> Task("5b1c", 7, 2).producer
    'spark/5b1c/2'
    """

    #: The id of the query, or of the write.
    query: str
    #: The number of the micro-batch; 0 for a batch write.
    epoch: int
    partition: int

    @property
    def producer(self) -> str:
        """Who publishes them: the same for all batches, so that numbers only rise."""
        return f"spark/{self.query}/{self.partition}"
