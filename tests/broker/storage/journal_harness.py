"""A host for a journal in a test: its event loop is the test itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from stentor.broker.settings import Retention
from stentor.broker.storage import Committed, Journal, JournalBatch

#: Far longer than anything here takes; a test that waits so long has failed.
PATIENCE = 60.0


class Clock:
    """Shows the time that a test sets."""

    def __init__(self, time: float = 1_000_000.0) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time


class Host:
    """Owns a journal, and runs what its writer posts."""

    def __init__(
        self,
        path: Path | None,
        *,
        name: str = "b1",
        retention: Retention | None = None,
        clock: Callable[[], float] | None = None,
        start: bool = True,
    ) -> None:
        retention = Retention(None, None) if retention is None else retention
        self.clock = Clock() if clock is None else clock
        self.journal = Journal.open(path, name=name, retention=retention, clock=self.clock)
        self.calls: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()
        #: What the callback was given, call by call.
        self.committed: list[Committed] = []
        if start:
            self.journal.start(self.call, self.committed.append)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        self.calls.put((function, args))

    def step(self) -> None:
        """Run the next call; wait for it if there is none."""
        function, args = self.calls.get(timeout=PATIENCE)
        function(*args)

    def settle(self) -> None:
        """Until everything appended has been dealt with."""
        while self.journal.pending:
            self.step()

    def publish(self, *items: bytes, **more: Any) -> int:
        """Append one batch, wait for it, and return its offset."""
        batch = JournalBatch(list(items), **more)
        self.journal.append(batch)
        self.settle()
        if batch.error is not None:
            raise batch.error
        return next(first for done in self.committed for b, first in done if b is batch)

    def publish_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        for items in batches:
            self.publish(*items)

    def entries(self, first: int | None = None) -> list[bytes]:
        """All that can be read."""
        journal = self.journal
        offset = journal.low if first is None else first
        found: list[bytes] = []
        while offset <= journal.head:
            part = journal.read(offset, 1000)
            assert part
            found += part
            offset += len(part)
        return found

    def close(self) -> None:
        self.journal.close()
        while not self.calls.empty():
            self.step()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
