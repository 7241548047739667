"""Prints notifications for `stentor subscribe` and `stentor detect`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from stentor.cli.exits import FAILURE, OK, note, report
from stentor.cli.json_forms import to_json
from stentor.cli.options import Connecting
from stentor.cli.streams import Worker, watch_reader, write_all
from stentor.client import Bus, Subscription
from stentor.errors import NoReply
from stentor.filters import Filter
from stentor.model import Notification


class _NobodyReads(Exception):
    """The other end of stdout is closed."""


async def print_all(
    how: Connecting,
    name: str | None,
    filters: list[Filter],
    options: dict[str, Any],
    printer: Printer,
    *,
    verbose: bool,
    forget: bool,
) -> int:
    """Connect, subscribe, print; the exit code."""
    return await print_from(
        how,
        name,
        lambda bus: subscribed(bus, filters, **options),
        printer,
        verbose=verbose,
        forget=forget,
    )


async def print_from(
    how: Connecting,
    name: str | None,
    subscribe: Callable[[Bus], Subscription[Notification]],
    printer: Printer,
    *,
    verbose: bool,
    forget: bool,
) -> int:
    """Connect, subscribe in this way, print; the exit code."""
    bus = how.bus(name)
    if verbose:
        bus.on_state(lambda state: note(f"{state}"))
    # What could not be printed must not count as dealt with, so that a durable subscription brings
    # it again: the subscription has to see the exception.
    with suppress(_NobodyReads):
        async with bus, subscribe(bus) as subscription:
            if verbose:
                note(f"subscribed at {bus.broker}")
            enough = await printer.run(subscription)
            if forget:
                await subscription.close(forget=True)
            return OK if enough else FAILURE
    return OK


def subscribed(bus: Bus, filters: list[Filter], **options: Any) -> Subscription[Notification]:
    """What several filters match comes once, so they make an inbox."""
    if len(filters) > 1:
        return bus.inbox(*filters, **options)
    return bus.subscribe(filters[0], **options)


class Printer:
    """Writes notifications to stdout until there were enough, or nobody reads them."""

    def __init__(
        self,
        count: int,
        patience: float | None,
        *,
        meta: bool,
        words: dict[Filter, str],
        line: Callable[[Notification], bytes] | None = None,
    ) -> None:
        """`words` are the filters as they were written; without a `line` of its own it is JSON."""
        #: 0 is without end.
        self._count = count
        #: Seconds to wait for one.
        self._patience = patience
        self._meta = meta
        self._words = words
        self._own_line = line
        self._gone = False

    async def run(self, subscription: Subscription[Notification]) -> bool:
        """Print; whether there were as many as asked for."""
        task = asyncio.current_task()
        assert task is not None

        def gone() -> None:
            self._gone = True
            task.cancel()

        watch_reader(sys.stdout.fileno(), gone)
        try:
            if self._count or self._patience is not None:
                return await self._one_by_one(subscription, Worker())
            return await self._in_batches(subscription, Worker())
        except BrokenPipeError:
            raise _NobodyReads from None
        except asyncio.CancelledError:
            if not self._gone:
                raise
            task.uncancel()
            raise _NobodyReads from None

    def _line(self, notification: Notification) -> bytes:
        if self._own_line is not None:
            return self._own_line(notification)
        return to_json(notification, meta=self._meta, words=self._words)

    async def _in_batches(self, subscription: Subscription[Notification], worker: Worker) -> bool:
        async for batch in subscription.batches():
            lines = [self._line(notification) for notification in batch]
            await worker.do(write_all, sys.stdout.fileno(), b"\n".join([*lines, b""]))
        return True

    async def _one_by_one(self, subscription: Subscription[Notification], worker: Worker) -> bool:
        printed = 0
        while not self._count or printed < self._count:
            try:
                notification = await subscription.get(self._patience)
            except NoReply:
                if self._count:
                    report(
                        NoReply(
                            f"{printed:,} of {self._count:,} came, then nothing for "
                            f"{self._patience:g} s"
                        )
                    )
                return not self._count
            line = self._line(notification)
            await worker.do(write_all, sys.stdout.fileno(), line + b"\n")
            printed += 1
        return True
