"""The progress bar of `stentor publish`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Published(ProgressColumn):
    """How many, and how many per second."""

    def render(self, task: Task) -> Text:
        count: int = task.fields["count"]
        seconds = task.elapsed or 0.0
        rate = f"{count / seconds:,.0f}/s" if seconds else ""
        return Text(f"{count:>12,}  {rate:>12}", style="cyan")


@contextmanager
def progress(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar on stderr: of bytes if the size of the input is known.

    It yields a function that takes how many more were published, from how many more bytes.
    """
    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("publishing")]
    columns += [BarColumn(), _Published()] if size else [_Published()]
    columns += [TimeRemainingColumn()] if size else [TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size, count=0)
        total = 0

        def advance(count: int, read: int) -> None:
            nonlocal total
            total += count
            bar.update(task, advance=read, count=total)

        yield advance
