"""Reads notifications as JSON and publishes them, for `stentor publish`."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from stentor.cli.exits import FAILURE, OK, complain
from stentor.cli.json_forms import from_json
from stentor.cli.options import Connecting
from stentor.cli.streams import CHUNK, Worker
from stentor.client import Bus, connect
from stentor.errors import InvalidNotification, StentorError
from stentor.model import Notification

#: Bytes of the longest line: the largest notification, its payload in hexadecimal.
MAX_LINE: Final = 48 * 2**20
#: Bad lines that are named when they are skipped.
_NAMED: Final = 10

Key: TypeAlias = Callable[[Notification], str | None]


def key_of(fixed: str | None, attribute: str | None) -> Key | None:
    """How the key of a last value is made, if it is to be kept at all."""
    if fixed is not None:
        return lambda _: fixed
    if attribute is None:
        return None

    def key(notification: Notification) -> str | None:
        value = notification.get(attribute)
        return None if value is None else str(value)

    return key


@dataclass
class Publishing:
    """One run of the command."""

    ack: bool
    volatile: bool
    type: str | None
    key: Key | None
    rate: float | None
    skip_bad: bool
    #: Handed to the client so far, and of these not answered when it was over.
    handed: int = 0
    unanswered: int = 0
    skipped: int = 0
    #: What to tell about progress: notifications and bytes of input so far.
    advance: Callable[[int, int], None] = field(default=lambda count, size: None)

    async def run(self, how: Connecting, name: str | None, events: list[str]) -> int:
        """Publish everything; the exit code."""
        bus = connect(
            *how.addresses,
            name=name,
            token=how.token,
            tls=how.tls,
            timeout=how.timeout,
            trust=how.trust,
        )
        await bus.open()
        try:
            async with bus:
                try:
                    if events:
                        await self._all(bus, _arguments(events), "argument")
                    else:
                        with self._progress():
                            await self._all(bus, _stdin_lines(), "line")
                finally:
                    if self.ack:
                        self.unanswered = bus.unacknowledged
        finally:
            # Whoever does not wait for answers has them when the bus is closed.
            self._sum_up(bus.rejected)
        return FAILURE if bus.rejected else OK

    async def _all(
        self, bus: Bus, batches: AsyncIterator[list[tuple[int, bytes]]], what: str
    ) -> None:
        """Publish everything; what came before a bad line is safe when that is reported."""
        try:
            async for batch in batches:
                good: list[Notification] = []
                failure: StentorError | None = None
                for number, line in batch:
                    try:
                        good.append(self._notification(line))
                    except StentorError as error:
                        failure = _placed(error, what, number)
                        if not self.skip_bad:
                            break
                        self._skip(failure)
                        failure = None
                await self._publish(bus, good)
                self.advance(len(good), sum(len(line) + 1 for _, line in batch))
                if failure is not None:
                    raise failure
                if bus.rejected and self.ack:
                    break  # the reason comes with `flush`
        finally:
            if self.ack:
                await bus.flush()

    def _notification(self, line: bytes) -> Notification:
        notification = from_json(line)
        if self.type is not None and notification.type is None:
            notification = notification.replace(type=self.type)
        return notification

    def _skip(self, error: Exception) -> None:
        self.skipped += 1
        if self.skipped <= _NAMED:
            complain(f"stentor: skipped {error}")
        elif self.skipped == _NAMED + 1:
            complain("stentor: more are skipped without a word")

    async def _publish(self, bus: Bus, notifications: list[Notification]) -> None:
        if self.rate is None:
            await self._put(bus, notifications)
            return
        # Twenty portions a second look like a steady flow, and cost little.
        portion = max(1, int(self.rate / 20))
        for start in range(0, len(notifications), portion):
            now = notifications[start : start + portion]
            began = time.monotonic()
            await self._put(bus, now)
            spent = time.monotonic() - began
            await asyncio.sleep(max(0.0, len(now) / self.rate - spent))

    async def _put(self, bus: Bus, notifications: list[Notification]) -> None:
        if notifications:
            await bus.publish_many(notifications, volatile=self.volatile, retain=self.key)
            self.handed += len(notifications)

    def _sum_up(self, refused: int) -> None:
        """Say what became of what was given."""
        published = self.handed - refused - self.unanswered
        told = [f"{published:,} published" if self.ack else f"{published:,} sent"]
        if refused:
            told.append(f"{refused:,} refused")
        if self.unanswered:
            told.append(f"{self.unanswered:,} without an answer")
        if self.skipped:
            told.append(f"{self.skipped:,} {'line' if self.skipped == 1 else 'lines'} skipped")
        complain(f"stentor: {', '.join(told)}")

    @contextmanager
    def _progress(self) -> Iterator[None]:
        """A bar on stderr, if somebody can see it."""
        if not sys.stderr.isatty():
            yield
            return
        from stentor.cli.progress import progress  # a lot to load, and seldom seen

        with progress(_size_of_stdin()) as self.advance:
            yield


def _placed(error: StentorError, what: str, number: int) -> StentorError:
    """The same error with the place that it is about."""
    return type(error)(f"{what} {number}: {error}")


async def _arguments(events: list[str]) -> AsyncIterator[list[tuple[int, bytes]]]:
    # What the shell passes may be no text at all.
    yield [(n, text.encode("utf-8", "surrogateescape")) for n, text in enumerate(events, 1)]


async def _stdin_lines() -> AsyncIterator[list[tuple[int, bytes]]]:
    """Lines with their numbers, as they have come; empty ones are passed over."""
    worker = Worker()
    number = 0
    rest = b""
    while True:
        data = await worker.do(os.read, sys.stdin.fileno(), CHUNK)
        *lines, rest = (rest + data).split(b"\n") if data else ([rest, b""])
        found = []
        for line in lines:
            number += 1
            if line.strip():
                found.append((number, line))
        if found:
            yield found
        if not data:
            return
        if len(rest) > MAX_LINE:
            raise InvalidNotification(
                f"line {number + 1}: longer than any notification ({MAX_LINE} bytes); "
                "is there one JSON object per line?"
            )


def _size_of_stdin() -> int | None:
    """Bytes that are left to read, if that is known."""
    descriptor = sys.stdin.fileno()
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR)
