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
    #: The number of the micro-batch, or the version of a transaction; else 0.
    epoch: int
    partition: int
    #: Whether another attempt may have had its rows in another order, and other partitions; then
    #: what is there of an earlier one is compared with what comes.
    compared: bool = False
    #: The columns that tell rows apart; none for all.
    key: tuple[str, ...] = ()

    @property
    def producer(self) -> str:
        """Who publishes them: the same for all batches, so that numbers only rise."""
        return f"spark/{self.query}/{self.partition}"
