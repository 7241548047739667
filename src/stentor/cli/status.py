"""`stentor status`: everything about a running broker."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import typer

from stentor.cli.exits import INTERRUPTED, OK
from stentor.cli.options import (
    AddressArgument,
    Connecting,
    ConnectTimeoutOption,
    TlsCaOption,
    TlsCertificateOption,
    TlsKeyOption,
    TokenOption,
    connecting,
)


def status(
    address: AddressArgument,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            metavar="",
            help="Draw it again and again, with rates of the last interval, until Ctrl-C.",
        ),
    ] = False,
    interval: Annotated[
        str,
        typer.Option(
            "--interval", metavar="DURATION", help="How often --watch asks; a number is seconds."
        ),
    ] = "1s",
    all: Annotated[
        bool,
        typer.Option(
            "--all", "-a", metavar="", help="Every client and subscription, not only the busiest."
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            metavar="",
            help="One JSON object, for scripts; with --watch, one per line and interval.",
        ),
    ] = False,
    token: TokenOption = None,
    tls_ca: TlsCaOption = None,
    tls_certificate: TlsCertificateOption = None,
    tls_key: TlsKeyOption = None,
    connect_timeout: ConnectTimeoutOption = "10s",
) -> None:
    """Show everything about a running broker.

    Its neighbors, clients, subscriptions, routing table, queues, drops, journal and rates. If the
    broker has grants, yours must allow you to operate it.

    \b
    Examples:
      stentor status 127.0.0.1:7411
      stentor status 127.0.0.1:7411 --watch
      stentor status 127.0.0.1:7411 --json | jq .counters.published
    """
    from stentor.broker.units import parse_duration
    from stentor.cli.running import run

    how = connecting(address, token, tls_ca, tls_certificate, tls_key, connect_timeout)
    every = max(0.1, parse_duration(interval))
    limit = None if all else _rows()

    async def main() -> int:
        if watch:
            return await _watch(how, every, limit, json=json)
        return await _once(how, limit, json=json)

    raise typer.Exit(run(main))


def _rows() -> int:
    from stentor.cli.status_view import ROWS

    return ROWS


async def _once(how: Connecting, limit: int | None, *, json: bool) -> int:
    from stentor.cli.operator import Operator
    from stentor.cli.status_view import print_json, print_tables, status_view

    async with Operator(how) as operator:
        found = await operator.ask("status", how.timeout)
    if json:
        print_json(found)
    else:
        print_tables(status_view(found, limit=limit))
    return OK


async def _watch(how: Connecting, every: float, limit: int | None, *, json: bool) -> int:
    """Ask, draw, wait. A broker that is gone is waited for."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from stentor.cli.status_view import clock, status_view
    from stentor.errors import StentorError

    samples = _samples(how, every)
    if json:
        return await _watch_json(samples)
    console = Console(highlight=False)
    first = True
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        before: tuple[float, dict[str, Any]] | None = None
        try:
            async for sample in samples:
                if isinstance(sample, StentorError):
                    if first:
                        raise sample
                    note = Text(f"{clock()}  {sample.code}: {sample}", style="bold red")
                    shown = [note] if before is None else [note, Text(""), status_view(before[1])]
                    live.update(Group(*shown), refresh=True)
                    before = None
                    continue
                first = False
                now = time.monotonic()
                earlier, seconds = (None, None)
                if before is not None and before[1]["stream"] == sample["stream"]:
                    earlier, seconds = before[1], now - before[0]
                rows = max(3, console.height // 6) if limit is not None else None
                view = status_view(sample, earlier, seconds, rows)
                live.update(view, refresh=True)
                before = (now, sample)
        finally:
            await samples.aclose()
    return INTERRUPTED


async def _watch_json(samples: Any) -> int:
    import sys

    import msgspec

    from stentor.errors import StentorError

    async for sample in samples:
        if isinstance(sample, StentorError):
            raise sample
        sys.stdout.write(msgspec.json.encode(sample, enc_hook=str).decode() + "\n")
        sys.stdout.flush()
    return INTERRUPTED


async def _samples(how: Connecting, every: float) -> Any:
    """The status or what is wrong, again and again."""
    from stentor.cli.operator import Operator
    from stentor.errors import StentorError

    while True:
        try:
            async with Operator(how) as operator:
                while True:
                    yield await operator.ask("status", how.timeout)
                    await asyncio.sleep(every)
        except StentorError as error:
            yield error
        await asyncio.sleep(every)
