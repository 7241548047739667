"""Client processes that are killed and started again, and what they have recorded.

A consumer of a durable subscription may be given again, after it was killed, what it had not
confirmed; never what it had. A producer's publications count as acknowledged as far as its
recording says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nursery import Child, Nursery
from overlay_processes import until
from witness import Follower, Run

from stentor.semantics.lines import BEGIN, IN_FORCE


class Mortal:
    """A client process with its recording."""

    #: What the process runs, and by which step of its recording it has started.
    what: str
    started: str

    def __init__(self, run: Run, nursery: Nursery, directory: Path, **arguments: Any) -> None:
        self.name = arguments["name"]
        self._nursery = nursery
        self._arguments = arguments
        self._log = directory / f"{self.name}.log"
        self._recording = directory / f"{self.name}.jsonl"
        self._steps = Follower(self._recording)
        self.child: Child | None = None
        run.follow(self._recording)

    def start(self) -> None:
        self.child = self._nursery.start(
            self.what, log=self._log, record=str(self._recording), **self._arguments
        )

    def move(self, *addresses: str) -> None:
        """Connect to other brokers in the next life."""
        self._arguments["addresses"] = list(addresses)

    def kill(self) -> None:
        assert self.child is not None
        self.child.kill()

    async def alive(self) -> None:
        """Until it has started once more."""
        await until(
            lambda: any(line.step == self.started for line in self._steps.new()),
            lambda: f"{self.name} starts\n{self._log.read_text()[-2000:]}",
        )


class MortalConsumer(Mortal):
    """A durable subscription whose process dies again and again."""

    what, started = "durable", IN_FORCE


class MortalProducer(Mortal):
    """A publisher whose process dies again and again."""

    what, started = "producer", BEGIN


class MortalWorker(Mortal):
    """A handler that fails on some orders, in a process that dies again and again."""

    what, started = "worker", IN_FORCE
