"""Reads notifications as JSON and publishes them, for `stentor publish`."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stentor.cli.exits import FAILURE, OK, exit_code, note, report, shows_progress, warn
from stentor.cli.input_files import check_files, elements, is_json, lines_of
from stentor.cli.json_forms import from_json
from stentor.cli.options import Connecting
from stentor.cli.streams import CHUNK, Worker
from stentor.client import Bus
from stentor.client.times import resolve
from stentor.errors import InvalidNotification, StentorError
from stentor.model import Notification
from stentor.model.handling import DEFAULT
from stentor.notation.counts import counted

if TYPE_CHECKING:
    from stentor.filters import Filter

#: Bytes of the longest line: the largest notification, its payload in hexadecimal.
MAX_LINE: Final = 48 * 2**20
#: Bad lines that are named when they are skipped.
_NAMED: Final = 10

Key: TypeAlias = Callable[[Notification], str | None]
#: Lines with their numbers, as many at a time as have come.
Batches: TypeAlias = AsyncIterator[list[tuple[int, bytes]]]


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


class Refusals:
    """Which lines the broker refused, and why.

    Publications have consecutive numbers, so of those without an answer, which are the last ones,
    the lines are known by them.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        #: The lines of the publications from a sequence number on.
        self._lines: deque[int] = deque()
        self._first = 0
        #: By reason: how many lines, and the first of them.
        self._found: dict[tuple[type[StentorError], str], tuple[int, list[int]]] = {}

    def expect(self, lines: Iterable[int]) -> None:
        """These are published next."""
        self._lines.extend(lines)

    def forget(self, unanswered: int) -> None:
        """All but so many have their answer."""
        while len(self._lines) > unanswered:
            self._lines.popleft()
            self._first += 1

    def add(self, notification: Notification, error: StentorError) -> None:
        """This one was refused."""
        assert notification.id is not None
        line = self._lines[notification.id.sequence - self._first]
        reason = (type(error), str(error))
        if reason not in self._found and len(self._found) == _NAMED:
            return  # `bus.rejected` counts it all the same
        count, lines = self._found.get(reason, (0, []))
        self._found[reason] = (count + 1, [*lines, line] if count < _NAMED else lines)

    def told(self) -> list[StentorError]:
        """An error for each reason, with the lines that it is about."""
        return [
            kind(f"{_places(self.what, lines, count)}: {text}")
            for (kind, text), (count, lines) in self._found.items()
        ]


def _places(what: str, lines: list[int], count: int) -> str:
    """Where something is.

    >>> _places("line", [3], 1), _places("line", [3, 4, 7], 3), _places("line", [3, 4], 9)
    ('line 3', 'lines 3, 4 and 7', 'lines 3, 4 and 7 more')
    """
    shown = [*map(str, lines)]
    if count > len(lines):
        shown.append(f"{count - len(lines):,} more")
    if len(shown) == 1:
        return f"{what} {shown[0]}"
    return f"{what}s {', '.join(shown[:-1])} and {shown[-1]}"


@dataclass
class Publishing:
    """One run of the command."""

    ack: bool
    volatile: bool
    type: str | None
    key: Key | None
    rate: float | None
    skip_bad: bool
    sequencer: str | None = None
    record: Path | None = None
    #: When, until when, and before which others those are delivered that do not say it themselves.
    deliver_at: str | None = None
    expires: str | None = None
    priority: int | None = None
    #: What is advertised before anything is published.
    advertise: Sequence[Filter] = ()
    #: Handed to the client so far, and of these not answered when it was over.
    handed: int = 0
    unanswered: int = 0
    skipped: int = 0
    #: The sum, when it is over.
    told: dict[str, int] = field(default_factory=dict)
    #: What to tell about progress: notifications and bytes of input so far.
    advance: Callable[[int, int], None] = field(default=lambda count, size: None)

    async def run(self, how: Connecting, name: str | None, events: list[str]) -> int:
        """Publish everything; the exit code."""
        check_files(events)
        bus = how.bus(name, sequencer=self.sequencer, record=self.record)
        await bus.open()
        files = [each for each in events if not is_json(each)]
        refusals = Refusals("line" if files or not events else "argument")
        bus.on_refusal(refusals.add)
        problems: list[StentorError] = []
        try:
            async with bus:
                for filter in self.advertise:
                    await bus.advertise(filter, demand=False)
                try:
                    if files:
                        with self._progress(sum(os.path.getsize(each) for each in files)):
                            await self._all(bus, lines_of(events), refusals, problems)
                    elif events:
                        await self._all(bus, _arguments(events), refusals, problems)
                    else:
                        with self._progress(_size_of_stdin()):
                            await self._all(bus, _stdin_lines(), refusals, problems)
                finally:
                    if self.ack:
                        self.unanswered = bus.unacknowledged
        except StentorError as error:
            if error not in problems:
                problems.append(error)
        finally:
            # Whoever does not wait for answers has them when the bus is closed.
            self._sum_up(bus.rejected)
            for problem in [*refusals.told(), *problems]:
                report(problem)
        if problems:
            return exit_code(problems[0])
        return FAILURE if bus.rejected else OK

    async def _all(
        self, bus: Bus, batches: Batches, refusals: Refusals, problems: list[StentorError]
    ) -> None:
        """Publish everything; what came before a bad line is safe when that is reported."""
        try:
            await self._each(bus, batches, refusals)
        except StentorError as error:
            problems.append(error)
        finally:
            if self.ack:
                await bus.flush()

    async def _each(self, bus: Bus, batches: Batches, refusals: Refusals) -> None:
        async for batch in batches:
            good: list[tuple[int, Notification]] = []
            failure: StentorError | None = None
            for number, line in batch:
                try:
                    now = bus._local.now()
                    good += [(number, self._notification(each, now)) for each in elements(line)]
                except StentorError as error:
                    failure = type(error)(f"{refusals.what} {number}: {error}")
                    if not self.skip_bad:
                        break
                    self._skip(failure)
                    failure = None
            refusals.expect(number for number, _ in good)
            await self._publish(bus, [notification for _, notification in good])
            refusals.forget(bus.unacknowledged)
            self.advance(len(good), sum(len(line) + 1 for _, line in batch))
            if failure is not None:
                raise failure
            if bus.rejected and self.ack:
                break

    def _notification(self, line: bytes, now: datetime) -> Notification:
        notification = from_json(line)
        parts: dict[str, Any] = {}
        if self.type is not None and notification.type is None:
            parts["type"] = self.type
        if self.deliver_at is not None and notification.deliver_at is None:
            parts["deliver_at"] = self.deliver_at
        if self.expires is not None and notification.expires is None:
            parts["expires"] = self.expires
        if self.priority is not None and notification.priority == DEFAULT:
            parts["priority"] = self.priority
        if not parts:
            return notification
        resolve(parts, now)
        return notification.replace(**parts)

    def _skip(self, error: Exception) -> None:
        self.skipped += 1
        if self.skipped <= _NAMED:
            warn(f"skipped {error}")
        elif self.skipped == _NAMED + 1:
            warn("further bad lines are skipped without a word")

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
        self.told = {
            "published" if self.ack else "sent": published,
            "refused": refused,
            "unanswered": self.unanswered,
            "skipped": self.skipped,
        }
        told = [f"{published:,} published" if self.ack else f"{published:,} sent"]
        if refused:
            told.append(f"{refused:,} refused")
        if self.unanswered:
            told.append(f"{self.unanswered:,} without an answer")
        if self.skipped:
            told.append(f"{counted(self.skipped, 'line')} skipped")
        note(", ".join(told))

    @contextmanager
    def _progress(self, size: int | None) -> Iterator[None]:
        """A bar on stderr, if somebody can see it."""
        if not (shows_progress() and find_spec("rich")):
            yield
            return
        from stentor.cli.progress import progress  # a lot to load, and seldom seen

        with progress(size) as self.advance:
            yield


def bad_argument(events: list[str]) -> StentorError | None:
    """What is wrong with the first one that is written here and is no notification."""
    for number, text in enumerate(events, 1):
        if is_json(text):
            try:
                for each in elements(text.encode("utf-8", "surrogateescape")):
                    from_json(each)
            except StentorError as error:
                return type(error)(f"argument {number}: {error}")
    return None


async def _arguments(events: list[str]) -> Batches:
    # What the shell passes may be no text at all.
    yield [(n, text.encode("utf-8", "surrogateescape")) for n, text in enumerate(events, 1)]


async def _stdin_lines() -> Batches:
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
