"""Client processes that are killed and started again, and what their diaries say.

A consumer of a durable subscription may be given again, after it was killed, what it had not
confirmed; never what it had. So of notifications that were not confirmed when the process died, a
second delivery is taken for the first one. Everything else goes to the recorder as it is.

A producer's publications count as acknowledged as far as its diary says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nursery import Child, Nursery
from overlay_processes import until
from recorder import Recorder

from stentor.model import NotificationId, decode


class Mortal:
    """A client process with its diary."""

    def __init__(self, nursery: Nursery, directory: Path, what: str, **arguments: Any) -> None:
        self.name = arguments["name"]
        self._nursery = nursery
        self._what = what
        self._arguments = arguments
        self._log = directory / f"{self.name}.log"
        self._diary = directory / f"{self.name}.diary"
        self._read = 0
        self.child: Child | None = None
        self.lives = 0

    def start(self) -> None:
        self.child = self._nursery.start(
            self._what, log=self._log, diary=str(self._diary), **self._arguments
        )

    def move(self, *addresses: str) -> None:
        """Connect to other brokers in the next life."""
        self._arguments["addresses"] = list(addresses)

    def kill(self) -> None:
        assert self.child is not None
        self.child.kill()

    def catch_up(self) -> None:
        """Read what has been written since the last time."""
        if not self._diary.exists():
            return
        with self._diary.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode().splitlines():
            at, kind, data = line.split(" ")
            if kind == "S":
                self.lives += 1
            self.entry(float(at), kind, bytes.fromhex(data))

    def entry(self, at: float, kind: str, data: bytes) -> None:
        raise NotImplementedError

    async def alive(self) -> None:
        """Until it has started once more."""
        lives = self.lives

        def again() -> bool:
            self.catch_up()
            return self.lives > lives

        await until(again, lambda: f"{self.name} starts\n{self._log.read_text()[-2000:]}")


class MortalConsumer(Mortal):
    """A durable subscription whose process dies again and again."""

    def __init__(
        self, recorder: Recorder, nursery: Nursery, directory: Path, filter: str, **arguments: Any
    ) -> None:
        super().__init__(nursery, directory, "durable", filter=filter, **arguments)
        self._recorder = recorder
        self.component = recorder.component(self.name, filter)
        self._unconfirmed: set[NotificationId] = set()
        #: Not confirmed when a process died: may come again.
        self._doubtful: set[NotificationId] = set()
        self.again = 0

    def entry(self, at: float, kind: str, data: bytes) -> None:
        if kind == "S":
            self.component.begin(at)
            self._doubtful |= self._unconfirmed
            self._unconfirmed.clear()
        elif kind == "C":
            self._doubtful -= self._unconfirmed
            self._unconfirmed.clear()
        else:
            notification = decode(data)
            assert notification.id is not None
            self._unconfirmed.add(notification.id)
            if notification.id in self._doubtful:
                self.again += 1
                self._doubtful.discard(notification.id)
            else:
                self._recorder.notified(self.component, notification, at)


class MortalProducer(Mortal):
    """A publisher whose process dies again and again."""

    def __init__(
        self, recorder: Recorder, nursery: Nursery, directory: Path, **arguments: Any
    ) -> None:
        super().__init__(nursery, directory, "producer", **arguments)
        self._recorder = recorder
        self._waiting: list[NotificationId] = []

    def entry(self, at: float, kind: str, data: bytes) -> None:
        if kind == "S":
            self._waiting.clear()
        elif kind == "A":
            self._recorder.acknowledge(self._waiting)
            self._waiting.clear()
        else:
            notification = decode(data)
            assert notification.id is not None
            self._recorder.published(self.name, notification, at)
            self._waiting.append(notification.id)
