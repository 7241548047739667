"""Recordings, read again: the files of one run as a trace for the checker."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from stentor.errors import DecodeError, InvalidConfiguration
from stentor.semantics import Trace
from stentor.semantics.interleaving import interleaved
from stentor.semantics.lines import Line, decoded


@dataclass(frozen=True)
class Recorded:
    """What the recordings of one run hold, in one legal order. Made by `recorded`."""

    trace: Trace
    #: Files whose last line is torn: their process was killed while it wrote.
    torn: tuple[Path, ...]
    #: Publications that were neither acknowledged nor delivered, and are left out.
    doubtful: int
    #: Deliveries of what was given before and not confirmed, which are left out.
    again: int


def recorded(*paths: str | os.PathLike[str], settled: bool = False) -> Recorded:
    """Read the files that the clients of one run recorded, together.

        run = recorded("desk-7.jsonl", "feed.jsonl", settled=True)
        print(check(run.trace, order=["fifo"]))

    With `settled`, everything had arrived when the recordings were ended, so what is missing is
    lost; otherwise liveness is judged by the points that `Recorder.quiescent` recorded.
    """
    recordings: list[list[Line]] = []
    torn: list[Path] = []
    for path in map(Path, paths):
        lines, is_torn = _read(path)
        recordings.append(lines)
        if is_torn:
            torn.append(path)
    joined = interleaved(recordings, settled=settled)
    return Recorded(joined.trace, tuple(torn), joined.doubtful, joined.again)


def _read(path: Path) -> tuple[list[Line], bool]:
    """The lines of a file, and whether it ends within one."""
    lines: list[Line] = []
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith(b"\n"):
                    return lines, True
                try:
                    lines.append(decoded(text))
                except DecodeError as error:
                    raise DecodeError(f"{path}, line {number}: {error}") from None
    except OSError as error:
        raise InvalidConfiguration(f"{str(path)!r} cannot be read: {error.strerror}") from None
    return lines, False
