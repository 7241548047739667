"""How one way over a bridge fares: its figures, what it waits for, and whether it should end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stentor.pipeline.runs.figures import Figures
from stentor.pipeline.steps.options import secret


def credentials(options: Mapping[str, Any]) -> dict[str, Any]:
    """The token and the certificates with which brokers are reached."""
    files = {key: options.get(f"tls_{key}") for key in ("ca", "certificate", "key")}
    tls = {key: file for key, file in files.items() if file is not None}
    return {"token": secret(options["token"]) if "token" in options else None, "tls": tls or None}


@dataclass
class Crossing:
    """Shared by a way over the bridge, which runs in a thread, and those who watch it."""

    figures: Figures
    #: Whether it was told to stop.
    stopping: Callable[[], bool]
    #: Called whenever the figures have changed.
    changed: Callable[[Figures], None] = lambda figures: None
    #: Called with what people should know at once.
    tell: Callable[[str], None] = lambda text: None
    #: Whether to end when everything is done that is there now.
    once: bool = False
    #: What is waited for, by who does not answer.
    _lost: dict[str, str] = field(default_factory=dict)

    def state(self, state: str) -> None:
        """It is in another state now."""
        if self.figures.state != state:
            self.figures.state = state
            self.changed(self.figures)

    def did(self, rows: int, seconds: float, lag: int | None) -> None:
        """A batch is done."""
        figures = self.figures
        figures.batches += 1
        figures.batch = figures.batches - 1
        figures.rows += rows
        figures.rows_per_second = rows / max(seconds, 1e-6)
        figures.duration = round(seconds * 1000)
        figures.lag = lag
        self.changed(figures)

    def lost(self, who: str) -> Callable[[str | None], None]:
        """For one of those who are needed: a function to say that it does not answer, and why."""

        def said(problem: str | None) -> None:
            news = None
            if problem is not None and who not in self._lost:
                self._lost[who] = problem
                news = f"{problem}; trying on"
            elif problem is None and self._lost.pop(who, None) is not None:
                news = f"{who} answers again"
            self.figures.problem = next(iter(self._lost.values()), None)
            self.state("waiting" if self._lost else "running")
            if news is not None:  # whoever hears it, in another thread, finds the state so
                self.tell(f"{self.figures.name}: {news}")

        return said

    def pause(self, seconds: float) -> None:
        """Wait, unless it is told to stop."""
        until = time.monotonic() + seconds
        while not self.stopping() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
