"""A broker's whole way from a publication to a delivery, without sockets: bytes in, bytes out.

    python bench/core_path.py [--against FOLDER] [--profile] [--only WORDS]

One publisher sends frames of small events, one subscriber is given all of them, and others hold
filters that nothing matches. What is journaled is on disk at once, so the disk itself is left out.
What is taken is processor time for one event, the least of many short stretches, which other work
on the machine disturbs little. With `--against`, the
sources of another state (a folder with `stentor` in it) take turns with these, process by process,
so that both have the same luck with the machine. `--only` picks the cases that contain these words.
"""

# ruff: noqa: E402

from __future__ import annotations

from onecore import use_one_core

use_one_core()

import argparse
import cProfile
import gc
import os
import pstats
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final, NamedTuple

from live.events import EVERYTHING, alerts, events
from stentor.client.encoding import EventEncoder
from stentor.node.agenda import Append
from stentor.node.core import Core
from stentor.protocol import messages as m
from stentor.protocol.frames import FrameReader, frame
from stentor.simulation.journal import MemoryLog

TURNS: Final = 10
#: Into so many a turn is cut.
STRETCHES: Final = 20
ROUNDS: Final = 5
CREDIT: Final = 5_000
_PUBLISHER, _SUBSCRIBER, _OTHERS = 1, 2, 3


class Case(NamedTuple):
    """What is published, and among how many filters of others."""

    filters: int
    in_a_frame: int
    volatile: bool

    def __str__(self) -> str:
        way = "volatile" if self.volatile else "journaled"
        return f"{way}, {self.in_a_frame:,} in a frame, {self.filters:,} filters of others"

    @property
    def events(self) -> int:
        """How many are published in one turn."""
        return min(20_000, 1_000 * self.in_a_frame)


CASES: Final = (
    Case(0, 1_000, volatile=True),
    Case(10_000, 1_000, volatile=True),
    Case(0, 1_000, volatile=False),
    Case(0, 10, volatile=True),
    Case(0, 10, volatile=False),
    Case(0, 1, volatile=True),
    Case(0, 1, volatile=False),
)


class Bench:
    """A core with its clients."""

    def __init__(self, case: Case) -> None:
        # In the middle of the broker's day: no id is from the future, and nothing waits for time.
        self._core = Core("b1", MemoryLog("b1#"), now=1.0, clock=datetime.now(UTC).timestamp())
        self._reader = FrameReader()
        self._case = case
        self._events = events(case.events)
        self._epoch = self._written = self._owed = 0
        for id, name in ((_PUBLISHER, "p"), (_SUBSCRIBER, "s"), (_OTHERS, "others")):
            self._core.join(id, name)
        self._say(_SUBSCRIBER, m.Subscribe(1, EVERYTHING, CREDIT, overflow="block"))
        for number, text in enumerate(alerts(case.filters)):
            self._say(_OTHERS, m.Subscribe(number, text, CREDIT))

    def frames(self) -> list[bytes]:
        """What the publisher sends in one turn: the same events, under new ids."""
        self._epoch += 1
        size = self._case.in_a_frame
        items = EventEncoder("p", self._epoch).many(self._events, 0, datetime.now(UTC))
        return [
            frame(m.Publish(i // size + 1, items[i : i + size], volatile=self._case.volatile))
            for i in range(0, len(items), size)
        ]

    def _say(self, id: int, message: Any) -> int:
        """Have a client say something; how many the subscriber was given since."""
        core, given = self._core, 0
        core.heard(id, message)
        while True:
            landed = []
            for action in core.take():
                if isinstance(action, Append):
                    landed.append((action.context, self._written + 1, action.items))
                    self._written += len(action.items)
                    continue
                frame(action.message)  # type: ignore[union-attr, arg-type]
                if isinstance(action.message, m.Deliver):  # type: ignore[union-attr]
                    given += len(action.message.items)  # type: ignore[union-attr]
            if landed:
                core.committed(landed)
            elif core.wants_turn:
                core.work()
            else:
                return given

    def turn(self, frames: list[bytes]) -> float:
        """Publish everything once: the processor time for one event in the quickest stretch."""
        size = max(1, self._case.events // STRETCHES // self._case.in_a_frame)
        stretches = [frames[i : i + size] for i in range(0, len(frames), size)]
        return min(map(self._stretch, stretches)) / (size * self._case.in_a_frame)

    def _stretch(self, frames: list[bytes]) -> float:
        given = 0
        before = process_time()
        for data in frames:
            for message in self._reader.feed(data):
                new = self._say(_PUBLISHER, message)
                given += new
                self._owed += new
                if self._owed >= CREDIT // 5:
                    owed, self._owed = self._owed, 0
                    given += self._say(_SUBSCRIBER, m.Credit(1, owed))
        took = process_time() - before
        assert given == len(frames) * self._case.in_a_frame, f"{given} were given"
        return took


def measured(case: Case) -> float:
    """Microseconds for one event."""
    bench = Bench(case)
    bench.turn(bench.frames())
    gc.collect()
    return 1e6 * min(bench.turn(bench.frames()) for _ in range(TURNS))


def profiled(case: Case) -> None:
    bench = Bench(case)
    bench.turn(bench.frames())
    profile = cProfile.Profile()
    for _ in range(TURNS):
        frames = bench.frames()
        profile.enable()
        bench.turn(frames)
        profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def elsewhere(folder: str, case: Case) -> float:
    """The same by a process of its own, with the sources in this folder."""
    environment = {**os.environ, "PYTHONPATH": folder}
    command = [sys.executable, __file__, "--once", str(CASES.index(case))]
    said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(said.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", help="a folder with another state of `stentor`")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--only", default="", help="the cases in whose names this occurs")
    parser.add_argument("--once", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once is not None:
        print(measured(CASES[given.once]))
        return
    here = str(Path(__file__).resolve().parent.parent / "src")
    for case in CASES:
        if given.only not in str(case):
            continue
        print(f"{case!s:60}", end="", flush=True)
        if given.profile:
            profiled(case)
        elif given.against is None:
            print(f"{elsewhere(here, case):6.2f} µs")
        else:
            pairs = [(elsewhere(given.against, case), elsewhere(here, case)) for _ in range(ROUNDS)]
            before, now = min(b for b, _ in pairs), min(n for _, n in pairs)
            ratio = median(n / b for b, n in pairs)
            print(f"{now:6.2f} µs, there {before:6.2f} µs; {ratio:.2f} of it")


if __name__ == "__main__":
    main()
