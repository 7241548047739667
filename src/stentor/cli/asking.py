"""Asks a broker for its status, once or again and again, for `stentor status`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from stentor.cli.operator import Operator
from stentor.cli.options import Connecting
from stentor.cli.status_view import clock, print_json, print_tables, status_view
from stentor.errors import StentorError


async def once(how: Connecting, limit: int | None, *, json: bool) -> None:
    """Print the status."""
    async with Operator(how) as operator:
        found = await operator.ask("status", how.timeout)
    if json:
        print_json(found)
    else:
        print_tables(status_view(found, limit=limit))


async def watched(how: Connecting, every: float, limit: int | None, *, json: bool) -> None:
    """Ask, draw, wait, until interrupted. A broker that goes away is waited for.

    One that is not there in the first place is an error.
    """
    async with aclosing(_samples(how, every)) as samples:
        if json:
            await _print_lines(samples)
        else:
            await _draw(samples, limit)


async def _print_lines(samples: AsyncGenerator[dict[str, Any] | StentorError]) -> None:
    async for sample in samples:
        if isinstance(sample, StentorError):
            raise sample
        sys.stdout.write(msgspec.json.encode(sample, enc_hook=str).decode() + "\n")
        sys.stdout.flush()


async def _draw(samples: AsyncGenerator[dict[str, Any] | StentorError], limit: int | None) -> None:
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        last: dict[str, Any] | None = None
        at = 0.0
        async for sample in samples:
            if isinstance(sample, StentorError):
                if last is None:
                    raise sample
                gone = Text(f"{clock()}  {sample.code}: {sample}", style="bold red")
                live.update(_with_note(gone, last, console, limit), refresh=True)
                at = 0.0
                continue
            now = time.monotonic()
            # Counters begin anew with the broker, and then there is nothing to compare with.
            again = last is not None and at and last["started"] == sample["started"]
            before, seconds = (last, now - at) if again else (None, None)
            live.update(status_view(sample, before, seconds, _rows(console, limit)), refresh=True)
            last, at = sample, now


def _with_note(
    note: Text, status: dict[str, Any], console: Console, limit: int | None
) -> RenderableType:
    return Group(note, Text(""), status_view(status, limit=_rows(console, limit)))


def _rows(console: Console, limit: int | None) -> int | None:
    """So many that the tables fit on the screen, more or less."""
    return None if limit is None else max(3, min(limit, console.height // 6))


async def _samples(how: Connecting, every: float) -> AsyncGenerator[dict[str, Any] | StentorError]:
    """The status, or what is wrong, again and again."""
    while True:
        try:
            async with Operator(how) as operator:
                while True:
                    yield await operator.ask("status", how.timeout)
                    await asyncio.sleep(every)
        except StentorError as error:
            yield error
        await asyncio.sleep(every)
