"""What a person sees of a run: a table that is kept up to date, or lines where that cannot be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from stentor.notation.counts import counted
from stentor.pipeline.runs.figures import Figures

#: Seconds between two lines about the same query.
_LINE_EVERY: Final = 10.0
_COLORS: Final = {
    "starting": "yellow",
    "running": "green",
    "waiting": "yellow",
    "done": "green",
    "stopped": "dim",
    "failed": "bold red",
}


def table(queries: Iterable[Figures]) -> Table:
    """The figures of all queries."""
    found = Table(box=None, header_style="dim", pad_edge=False)
    found.add_column("query")
    found.add_column("state")
    columns = ("batch", "rows", "rows/s", "batch time", "lag", "state rows", "corrupt", "late")
    for name in columns:
        found.add_column(name, justify="right")
    found.add_column("held back by")
    for figures in queries:
        found.add_row(
            Text(figures.name),
            Text(figures.state, style=_COLORS.get(figures.state, "")),
            "" if figures.batch is None else f"{figures.batch:,}",
            f"{figures.rows:,}",
            f"{figures.rows_per_second:,.0f}",
            f"{figures.duration / 1000:.2f} s" if figures.duration else "",
            "" if figures.lag is None else f"{figures.lag:,}",
            f"{figures.state_rows:,}" if figures.state_rows else "",
            Text(f"{figures.corrupt:,}" if figures.corrupt else "", style="yellow"),
            Text(f"{figures.late:,}" if figures.late else "", style="yellow"),
            Text(_holding(figures)),
        )
    return found


def _holding(figures: Figures) -> str:
    """Which journal is read the least far in the time of events, and how far."""
    name = figures.held_back_by
    if name is None or len(figures.journals) < 2:
        return ""
    journal = figures.journals[name]
    state = "which does not answer" if journal.lag is None else f"{journal.lag:,} left"
    broker = name.partition("#")[0]
    return f"{broker} at {journal.time}, {state}" if journal.time else f"{broker}, {state}"


def line(figures: Figures) -> str:
    """The same of one query, in a line.

    >>> line(Figures("bars", "running", batch=3, rows=1200, lag=0))
    'bars: running, batch 3, 1,200 rows, lag 0'
    """
    parts = [figures.state]
    if figures.batch is not None:
        parts.append(f"batch {figures.batch:,}")
    parts.append(counted(figures.rows, "row"))
    if figures.rows_per_second:
        parts.append(f"{figures.rows_per_second:,.0f} rows/s")
    for name, value in (("lag", figures.lag), ("state rows", figures.state_rows or None)):
        if value is not None:
            parts.append(f"{name} {value:,}")
    for name, value in (("corrupt", figures.corrupt), ("late", figures.late)):
        if value:
            parts.append(f"{value:,} {name}")
    if holding := _holding(figures):
        parts.append(f"held back by {holding}")
    return f"{figures.name}: {', '.join(parts)}"


class Lines:
    """Tells of queries in lines: each change of state, and progress now and then."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._told: dict[str, tuple[str, float]] = {}

    def __call__(self, figures: Figures) -> None:
        now = self._clock()
        state, when = self._told.get(figures.name, ("", float("-inf")))
        if figures.state != state or now - when >= _LINE_EVERY:
            self._told[figures.name] = figures.state, now
            self._console.print(line(figures), highlight=False, soft_wrap=True)


@contextmanager
def waiting(console: Console, text: str) -> Iterator[None]:
    """Says what is being waited for, while it is."""
    if console.is_terminal:
        with Live(Spinner("dots", Text(text)), console=console, transient=True):
            yield
    else:
        yield


@contextmanager
def shown(
    console: Console, queries: Callable[[], Iterable[Figures]]
) -> Iterator[Callable[[Figures], None]]:
    """Shows the figures while it lasts; what it yields is called when some have changed."""
    if not console.is_terminal:
        yield Lines(console)
        return

    def render() -> RenderableType:
        return table(queries())

    with Live(get_renderable=render, console=console, refresh_per_second=4, transient=True):
        yield lambda figures: None
