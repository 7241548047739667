"""What is handed to the journal to be stored, all of it or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stentor.errors import StentorError
from stentor.node.schedule import Delayed


class JournalLine(Protocol):
    """A sequence of batches of which none is stored once one of them has `failed`."""

    failed: bool


class JournalBatch:
    """Notifications and changes of state that are committed together.

    The journal hands the same object back when it has been dealt with; `error` then says whether
    it was stored. Between `append` and then it belongs to the journal and must not be changed.

    >>> batch = JournalBatch([b"first", b"second"], producers={"ann": (0, 1)}, context="for whom")
    >>> len(batch), batch.error
    (2, None)
    """

    __slots__ = (
        "context",
        "durables",
        "error",
        "forget",
        "items",
        "line",
        "producers",
        "retain",
        "schedule",
        "size",
        "unschedule",
    )

    def __init__(
        self,
        items: list[bytes] | None = None,
        *,
        producers: dict[str, tuple[int, int]] | None = None,
        retain: list[tuple[str, int]] | None = None,
        forget: list[str] | None = None,
        durables: dict[str, bytes | None] | None = None,
        schedule: Sequence[Delayed] = (),
        unschedule: Sequence[str] = (),
        line: JournalLine | None = None,
        context: Any = None,
    ) -> None:
        #: Encoded notifications; they get consecutive offsets.
        self.items = [] if items is None else items
        #: The newest epoch and sequence number of each producer among them.
        self.producers = {} if producers is None else producers
        #: Last values to keep: a key, and the index of the item.
        self.retain = [] if retain is None else retain
        #: Keys whose last value is dropped. This comes before `retain`.
        self.forget = [] if forget is None else forget
        #: The state of durable subscriptions by name; None deletes.
        self.durables = {} if durables is None else durables
        #: Publications to keep until they are due, and ids of those that are kept no longer.
        self.schedule = schedule
        self.unschedule = unschedule
        #: Whose batches must not be stored behind one that could not be.
        self.line = line
        #: Whatever the caller wants to find again.
        self.context = context
        #: Why nothing of it was stored.
        self.error: StentorError | None = None
        #: About how many bytes wait with it.
        self.size = sum(map(len, self.items)) + sum(len(each.data) for each in schedule)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def weight(self) -> int:
        """What it counts among what waits: its notifications; a change of state alone is one."""
        return len(self.items) + len(self.schedule) or 1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to store."""
        state = self.producers or self.forget or self.durables
        return not (self.items or state or self.schedule or self.unschedule)
