"""Asks a broker for its status, once or again and again, for `stentor status`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from stentor.cli.json_forms import print_json, print_line
from stentor.cli.operator import Operator
from stentor.cli.options import Connecting
from stentor.errors import StentorError


async def once(how: Connecting, limit: int | None, *, json: bool) -> None:
    """Print the status."""
    async with Operator(how) as operator:
        found = await operator.ask("status", how.timeout)
    if json:
        print_json(found)
    else:
        from stentor.cli.status_view import print_tables, status_view

        print_tables(status_view(found, limit=limit))


async def watched(how: Connecting, every: float, limit: int | None, *, json: bool) -> None:
    """Ask, draw, wait, until interrupted. A broker that goes away is waited for.

    One that is not there in the first place is an error.
    """
    async with aclosing(_samples(how, every)) as samples:
        if json:
            await _print_lines(samples)
        else:
            from stentor.cli.status_view import draw

            await draw(samples, limit)


async def _print_lines(samples: AsyncGenerator[dict[str, Any] | StentorError]) -> None:
    async for sample in samples:
        if isinstance(sample, StentorError):
            raise sample
        print_line(sample)


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
