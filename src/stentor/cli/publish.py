"""`stentor publish`: publish JSON objects, from the command line or from a pipe."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stentor.cli.exits import complain
from stentor.cli.options import (
    AddressArgument,
    Connecting,
    ConnectTimeoutOption,
    NameOption,
    TlsCaOption,
    TlsCertificateOption,
    TlsKeyOption,
    TokenOption,
    connecting,
)

if TYPE_CHECKING:
    from stentor.client.bus import Bus
    from stentor.model import Notification

#: Bytes of the longest line: the largest notification, its payload in hexadecimal.
MAX_LINE: Final = 48 * 2**20
#: Bad lines that are named when they are skipped.
_NAMED: Final = 10


def publish(
    address: AddressArgument,
    events: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JSON]...",
            help="Notifications, each a JSON object. Without any, they are read from stdin, one "
            "per line.",
            show_default=False,
        ),
    ] = None,
    ack: Annotated[
        bool,
        typer.Option(
            "--ack/--no-ack",
            metavar="",
            help="Whether to wait until all of them are in the broker's journal, on disk, and to "
            "fail if they are not.",
        ),
    ] = True,
    volatile: Annotated[
        bool,
        typer.Option(
            "--volatile",
            metavar="",
            help="Skip the journal: delivered at most once, to who is connected now.",
        ),
    ] = False,
    type: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="NAME", help="The event type of those that have no _type themselves."
        ),
    ] = None,
    retain: Annotated[
        str | None,
        typer.Option(
            "--retain",
            metavar="KEY",
            help="Keep the newest under this key, for subscribers who ask for last values.",
        ),
    ] = None,
    retain_by: Annotated[
        str | None,
        typer.Option(
            "--retain-by",
            metavar="ATTRIBUTE",
            help="The same with a key for each value of an attribute.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0.001, help="At most N per second."),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            metavar="",
            help="Go on after a line that is no notification; otherwise it is the end.",
        ),
    ] = False,
    name: NameOption = None,
    token: TokenOption = None,
    tls_ca: TlsCaOption = None,
    tls_certificate: TlsCertificateOption = None,
    tls_key: TlsKeyOption = None,
    connect_timeout: ConnectTimeoutOption = "10s",
) -> None:
    """Publish JSON objects, given as arguments or as lines of stdin.

    It ends when all of them are safe, and says how many there were. Nested objects become
    attributes with dotted names; null leaves an attribute out.

    Values that JSON lacks are written as `stentor subscribe` prints them:
    {"$time": "2026-01-01T12:00:00Z"}, {"$bytes": "00ff"} in hexadecimal,
    {"$set": \\["a", "b"]}, {"$number": "inf"}. The members _type, _subject, _channel,
    _content_type, _payload and _time are what a notification has beside its attributes; _id is
    ignored.

    \b
    Examples:
      stentor publish 127.0.0.1:7411 '{"symbol": "IBM", "price": 120.5}'
      stentor publish 127.0.0.1:7411 < quotes.jsonl
      tail -f events.log | stentor publish 127.0.0.1:7411 --type log --skip-bad
      stentor publish 127.0.0.1:7411 --retain-by symbol '{"symbol": "IBM", "price": 121}'
      stentor subscribe b1:7411 --meta | stentor publish b2:7411
    """
    from stentor.cli.running import run
    from stentor.errors import InvalidConfiguration

    how = connecting(address, token, tls_ca, tls_certificate, tls_key, connect_timeout)
    if not events and sys.stdin.isatty():
        raise InvalidConfiguration(
            "nothing to publish; give JSON objects as arguments, or pipe lines into this command"
        )
    if retain is not None and retain_by is not None:
        raise InvalidConfiguration("--retain and --retain-by contradict each other; choose one")
    if volatile and (retain is not None or retain_by is not None):
        raise InvalidConfiguration(
            "a last value is kept by the journal, which --volatile skips; choose one"
        )
    key: Callable[[Notification], str | None] | None = None
    if retain is not None:
        key = lambda _: retain  # noqa: E731
    elif retain_by is not None:
        key = lambda notification: _key(notification.get(retain_by))  # noqa: E731
    publishing = Publishing(
        ack=ack, volatile=volatile, type=type, key=key, rate=rate, skip_bad=skip_bad
    )

    async def main() -> None:
        await publishing.run(how, name, events or [])

    run(main)


def _key(value: Any) -> str | None:
    return None if value is None else str(value)


@dataclass
class Publishing:
    """One run of the command."""

    ack: bool
    volatile: bool
    type: str | None
    key: Callable[[Notification], str | None] | None
    rate: float | None
    skip_bad: bool
    published: int = 0
    skipped: int = 0
    #: What to tell about progress: notifications and bytes of input so far.
    advance: Callable[[int, int], None] = field(default=lambda count, size: None)

    async def run(self, how: Connecting, name: str | None, events: list[str]) -> None:
        from stentor.client import connect

        bus = connect(*how.addresses, name=name, token=how.token, tls=how.tls, timeout=how.timeout)
        try:
            async with bus:
                if events:
                    await self._all(bus, _arguments(events), "argument")
                else:
                    with self._progress():
                        await self._all(bus, _stdin_lines(), "line")
        finally:
            self._sum_up()

    async def _all(
        self, bus: Bus, batches: AsyncIterator[list[tuple[int, bytes]]], what: str
    ) -> None:
        """Publish everything; what came before a bad line is safe when that is reported."""
        from stentor.errors import StentorError

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
        from stentor.cli.json_forms import from_json

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
            self.published += len(notifications)

    def _sum_up(self) -> None:
        skipped = f", {self.skipped:,} lines skipped" if self.skipped else ""
        complain(f"stentor: {self.published:,} published{skipped}")

    @contextmanager
    def _progress(self) -> Iterator[None]:
        """A bar on stderr, if somebody can see it."""
        if not sys.stderr.isatty():
            yield
            return
        from stentor.cli.progress import progress

        with progress(_size_of_stdin()) as self.advance:
            yield


def _placed(error: Any, what: str, number: int) -> Any:
    """The same error with the place that it is about."""
    return type(error)(f"{what} {number}: {error}")


async def _arguments(events: list[str]) -> AsyncIterator[list[tuple[int, bytes]]]:
    # What the shell passes may be no text at all.
    yield [(n, text.encode("utf-8", "surrogateescape")) for n, text in enumerate(events, 1)]


async def _stdin_lines() -> AsyncIterator[list[tuple[int, bytes]]]:
    """Lines with their numbers, as they have come; empty ones are passed over."""
    from stentor.cli.streams import CHUNK, Worker
    from stentor.errors import InvalidNotification

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
