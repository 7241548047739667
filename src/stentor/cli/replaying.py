"""Runs a replay for `stentor replay`: what it says before, on the way and in the end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from stentor.cli.exits import INTERRUPTED, OK, TERMINATED, note, shows_progress, warn
from stentor.cli.json_forms import print_json
from stentor.notation.counts import counted
from stentor.pipeline.archives.replayer import Progressed, outlook, replay


class _Terminated(BaseException):
    """SIGTERM."""


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    path: str
    brokers: str
    speed: float | None
    filter: str
    since: str | None
    until: str | None
    keep_time: bool
    resume: bool
    note: Path | None
    token: str | None
    tls: dict[str, Any] | None
    timeout: float


def run(request: Request, *, ask: bool, json: bool = False) -> int:
    """Replay; the exit code."""
    view = _View()
    expected = outlook(
        request.path, filter=request.filter, since=request.since, until=request.until
    )
    if ask and not _confirmed(request, expected):
        note("nothing was published")
        return OK
    with _terminable(), view.shown(expected):
        code = _replay(request, view)
    if json:
        print_json({"published": view.events, "incomplete": view.incomplete})
    return code


def _replay(request: Request, view: _View) -> int:
    try:
        replay(
            None,
            request.path,
            request.brokers,
            filter=request.filter,
            since=request.since,
            until=request.until,
            speed=request.speed,
            keep_time=request.keep_time,
            resume=request.resume,
            note=request.note,
            progress=view.advance,
            token=request.token,
            tls=request.tls,
            timeout=request.timeout,
        )
    except (KeyboardInterrupt, _Terminated) as error:
        view.end()
        note(f"interrupted after {counted(view.events, 'event')}; go on with --resume")
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else TERMINATED
    except BaseException:
        view.end()
        if view.events:
            note(f"{counted(view.events, 'event')} published; go on with --resume")
        raise
    view.end()
    note(f"{counted(view.events, 'event')} published")
    if view.incomplete:
        warn(
            f"{counted(view.incomplete, 'event')} of them "
            f"{'lacks' if view.incomplete == 1 else 'lack'} an attribute that did not fit the "
            "archive's schema; the column _corrupt says which"
        )
    return OK


def _confirmed(request: Request, expected: Progressed) -> bool:
    times = ""
    if expected.span is not None:
        first, last = expected.span
        times = f" from {_written(first)} to {_written(last)}"
    question = f"Publish up to {counted(expected.most, 'event')}{times} to {request.brokers}"
    if request.speed is not None and expected.span is not None:
        seconds = (expected.span[1] - expected.span[0]).total_seconds() / request.speed
        question += f", which takes about {_rough(seconds)}"
    print(f"{question}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _written(when: datetime) -> str:
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")


def _rough(seconds: float) -> str:
    """A duration for reading.

    >>> _rough(59.4), _rough(5400), _rough(200000)
    ('59s', '1h 30m', '2d 7h')
    """
    parts = []
    rest = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "no time"


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the replay as Ctrl-C does: in order."""

    def terminate(*_: object) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _View:
    """What is seen of a replay: a bar on stderr, if somebody can see it."""

    def __init__(self) -> None:
        self.events = 0
        self.incomplete = 0
        self._show: Callable[[Progressed], object] = lambda progressed: None
        self._end: Callable[[], object] = lambda: None

    def advance(self, progressed: Progressed) -> None:
        self.events, self.incomplete = progressed.events, progressed.incomplete
        self._show(progressed)

    def end(self) -> None:
        """Take the bar away, before something else is said."""
        self._end()

    @contextmanager
    def shown(self, expected: Progressed) -> Iterator[None]:
        if not shows_progress():
            yield
            return
        from stentor.cli.replay_progress import bar  # a lot to load, and seldom seen

        with bar(expected) as (self._show, self._end):
            yield
