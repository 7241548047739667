"""Shows a supervisor at work, for `stentor up`: everybody's logs, and a table below them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stentor.broker.overlay import OverlaySettings
from stentor.broker.supervisor import Observer, Supervisor
from stentor.cli.exits import FAILURE, OK
from stentor.cli.json_forms import print_line
from stentor.cli.operator import Operator
from stentor.cli.options import Connecting
from stentor.cli.status_view import plain
from stentor.errors import StentorError
from stentor.notation.counts import counted
from stentor.notation.units import format_duration

_COLORS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")


def outline(overlay: OverlaySettings) -> dict[str, Any]:
    """What the file says, for machines."""
    brokers = []
    for name, own in overlay.brokers.items():
        settings = overlay.settings(name)
        linked = [link.other for link in overlay.links if link.dialer == name]
        linked += [link.dialer for link in overlay.links if link.other == name]
        brokers.append(
            {
                "broker": name,
                "listen": list(settings.listen),
                "neighbors": [*linked, *own.neighbors],
                "data": settings.data,
            }
        )
    return {
        "file": overlay.file,
        "brokers": brokers,
        "links": [[link.dialer, link.other] for link in overlay.links],
        "warnings": list(overlay.warnings),
    }


def describe(overlay: OverlaySettings) -> str:
    """What the file says, in a few lines."""
    count, links = len(overlay.brokers), len(overlay.links)
    lines = [f"{overlay.file}: {counted(count, 'broker')}, {counted(links, 'link')}"]
    for broker in outline(overlay)["brokers"]:
        lines.append(
            f"  {broker['broker']}  {', '.join(broker['listen'])}"
            f"  neighbors: {', '.join(broker['neighbors']) or 'none'}"
            f"  data: {broker['data'] or 'in memory'}"
        )
    return "\n".join(lines)


def supervise(overlay: OverlaySettings, *, watch: bool, json: bool = False) -> int:
    """Run the overlay until it is told to stop; the exit code."""
    with asyncio.Runner() as runner:
        return runner.run(_run(overlay, watch=watch, json=json))


async def _run(overlay: OverlaySettings, *, watch: bool, json: bool) -> int:
    console = Console(highlight=False, soft_wrap=True)
    observer: Observer = _Lines() if json else _Observer(console, list(overlay.brokers))
    supervisor = Supervisor(overlay, observer)
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        observer.event(None, f"{number.name}: ending all brokers")
        supervisor.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    observer.event(None, f"starting {counted(len(overlay.brokers), 'broker')} of {overlay.file}")
    if watch:
        well = await _watched(supervisor, console)
    else:
        well = await supervisor.run()
    return OK if well else FAILURE


class _Lines:
    """Prints everything as JSON, a line for each line of a log and each event."""

    def line(self, broker: str, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            print_line({"broker": broker, "log": text})

    def event(self, broker: str | None, text: str, *, bad: bool = False) -> None:
        with contextlib.suppress(BrokenPipeError):
            print_line({"broker": broker, "event": text, "bad": bad})


class _Observer:
    """Prints everything, each broker in its color."""

    def __init__(self, console: Console, names: list[str]) -> None:
        self._console = console
        self._width = max(len(name) for name in names)
        self._colors = {name: _COLORS[i % len(_COLORS)] for i, name in enumerate(names)}

    def line(self, broker: str, text: str) -> None:
        self._print(broker, text, "")

    def event(self, broker: str | None, text: str, *, bad: bool = False) -> None:
        self._print(broker or "up", text, "bold red" if bad else "bold")

    def _print(self, name: str, text: str, style: str) -> None:
        line = Text(f"{plain(name):<{self._width}} | ", style=self._colors.get(name, "bold"))
        line.append(plain(text), style=style or "not bold default")
        with contextlib.suppress(BrokenPipeError):
            self._console.print(line)


async def _watched(supervisor: Supervisor, console: Console) -> bool:
    """Run it with a table below the logs."""
    figures: dict[str, dict[str, Any]] = {}
    with Live(
        console=console,
        refresh_per_second=4,
        get_renderable=lambda: _table(supervisor, figures),
        transient=True,
    ):
        polls = [
            asyncio.create_task(_poll(supervisor, name, figures)) for name in supervisor.children
        ]
        try:
            return await supervisor.run()
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)


async def _poll(supervisor: Supervisor, name: str, figures: dict[str, dict[str, Any]]) -> None:
    """Ask one broker for its numbers, every second."""
    settings = supervisor.overlay.settings(name)
    tls = None
    if settings.tls is not None:
        files = settings.tls
        tls = {"ca": files.ca, "certificate": files.certificate, "key": files.key}
    how = Connecting((supervisor.children[name].address,), settings.token, tls, 5.0)
    while True:
        figures.pop(name, None)
        with contextlib.suppress(StentorError):
            async with Operator(how) as operator:
                before: tuple[float, dict[str, Any]] | None = None
                while True:
                    status = await operator.ask("status", 5.0)
                    now = time.monotonic()
                    figures[name] = _figures(status, before, now)
                    before = (now, status["counters"])
                    await asyncio.sleep(1.0)
        await asyncio.sleep(1.0)


def _figures(
    status: dict[str, Any], before: tuple[float, dict[str, Any]] | None, now: float
) -> dict[str, Any]:
    counters = status["counters"]

    def rate(name: str) -> str:
        if before is None:
            return ""
        return f"{(counters[name] - before[1][name]) / max(1e-9, now - before[0]):,.0f}"

    return {
        "links": sum(link["state"] == "up" for link in status["links"]),
        "clients": len(status["clients"]),
        "subscriptions": len(status["subscriptions"]),
        "published": rate("published"),
        "delivered": rate("delivered"),
    }


def _table(supervisor: Supervisor, figures: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("broker", "address", "state", "for"):
        table.add_column(column)
    numbers = ("links", "clients", "subscriptions", "published", "delivered")
    for column in ("pid", "restarts", *numbers[:3], "published/s", "delivered/s"):
        table.add_column(column, justify="right")
    colors = {"up": "green", "starting": "yellow", "stopping": "yellow", "stopped": "dim"}
    for child in supervisor.children.values():
        own = figures.get(child.name, {}) if child.state == "up" else {}
        seconds = int(time.time() - child.since)
        table.add_row(
            Text(plain(child.name)),
            Text(plain(child.address)),
            Text(child.state, style=colors.get(child.state, "bold red")),
            format_duration(float(seconds)) if seconds > 0 else "",
            str(child.pid or ""),
            str(child.restarts),
            *(Text(plain(own.get(name))) for name in numbers),
        )
    return table
