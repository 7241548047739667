"""The progress bar of `stentor replay`."""

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
    TimeRemainingColumn,
)
from rich.text import Text

from stentor.pipeline.archives.replayer import Progressed


class _Events(ProgressColumn):
    """How many, how many per second, and the time that the last one is from."""

    def render(self, task: Task) -> Text:
        done: int = task.fields["events"] - task.fields["resumed"]
        seconds = task.elapsed or 0.0
        rate = f"{done / seconds:,.0f}/s" if seconds else ""
        return Text(f"{task.fields['events']:>12,}  {rate:>12}  {task.fields['at']}", style="cyan")


@contextmanager
def bar(
    expected: Progressed,
) -> Iterator[tuple[Callable[[Progressed], None], Callable[[], None]]]:
    """Shows a bar on stderr: how much of the time in question is replayed, or of the events.

    It yields a function that shows how far the replay is, and one that takes the bar away.
    """
    columns = [
        SpinnerColumn(),
        TextColumn("replaying"),
        BarColumn(),
        _Events(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as found:
        task = found.add_task("", total=1.0, events=0, resumed=0, at="")

        def show(progressed: Progressed) -> None:
            at = "" if progressed.time is None else f"{progressed.time:%Y-%m-%d %H:%M:%S}"
            found.update(
                task,
                completed=fraction(progressed),
                events=progressed.events,
                resumed=progressed.resumed,
                at=at,
            )

        yield show, found.stop


def fraction(progressed: Progressed) -> float:
    """How much of a replay is done, from 0 to 1: by time, or else by events."""
    if progressed.span is not None and progressed.time is not None:
        first, last = progressed.span
        if first < last:
            done = (progressed.time - first) / (last - first)
            return min(1.0, max(0.0, done))
    return min(1.0, progressed.events / progressed.most) if progressed.most else 1.0
