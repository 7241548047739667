"""A broker's whole way from a publication to a delivery, without sockets: bytes in, bytes out.

    python bench/core_path.py [--against FOLDER] [--profile]

One publisher sends frames of small events that are volatile, one subscriber is given all of them,
and others hold filters that nothing matches. What is taken is processor time for one event, the
least of many turns. With `--against`, the sources of another state (a folder with `stentor` in it)
take turns with these, process by process, so that both have the same luck with the machine.
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
from typing import Any, Final

from live.events import EVERYTHING, alerts, events
from stentor.client.encoding import EventEncoder
from stentor.node.core import Core
from stentor.protocol import messages as m
from stentor.protocol.frames import FrameReader, frame
from stentor.simulation.journal import MemoryLog

FRAMES: Final = 20
EVENTS_A_FRAME: Final = 1_000
TURNS: Final = 30
ROUNDS: Final = 5
FILTERS: Final = (0, 10_000)
CREDIT: Final = 5_000
_PUBLISHER, _SUBSCRIBER, _OTHERS = 1, 2, 3


class Bench:
    """A core with its clients."""

    def __init__(self, filters: int) -> None:
        # In the middle of the broker's day: no id is from the future, and nothing waits for time.
        self._core = Core("b1", MemoryLog("b1#"), now=1.0, clock=datetime.now(UTC).timestamp())
        self._reader = FrameReader()
        self._answered = 0
        for id, name in ((_PUBLISHER, "p"), (_SUBSCRIBER, "s"), (_OTHERS, "others")):
            self._core.join(id, name)
        self._say(_SUBSCRIBER, m.Subscribe(1, EVERYTHING, CREDIT, overflow="block"))
        for number, text in enumerate(alerts(filters)):
            self._say(_OTHERS, m.Subscribe(number, text, CREDIT))
        items = EventEncoder("p", 1).many(events(FRAMES * EVENTS_A_FRAME), 0, datetime.now(UTC))
        self._frames = [
            frame(m.Publish(i // EVENTS_A_FRAME + 1, items[i : i + EVENTS_A_FRAME], volatile=True))
            for i in range(0, len(items), EVENTS_A_FRAME)
        ]

    def _say(self, id: int, message: Any) -> int:
        """Have a client say something; how many the subscriber was given since."""
        core, given = self._core, 0
        core.heard(id, message)
        while True:
            for action in core.take():
                frame(action.message)  # type: ignore[union-attr, arg-type]
                if isinstance(action.message, m.Deliver):  # type: ignore[union-attr]
                    given += len(action.message.items)  # type: ignore[union-attr]
            if not core.wants_turn:
                return given
            core.work()

    def turn(self) -> None:
        """Publish everything once."""
        given = 0
        for data in self._frames:
            for message in self._reader.feed(data):
                new = self._say(_PUBLISHER, message)
                given += new
                given += self._say(_SUBSCRIBER, m.Credit(1, new))
        assert given == FRAMES * EVENTS_A_FRAME, f"{given} were given"


def measured(filters: int) -> float:
    """Microseconds for one event."""
    bench = Bench(filters)
    bench.turn()
    gc.collect()
    best = float("inf")
    for _ in range(TURNS):
        before = process_time()
        bench.turn()
        best = min(best, process_time() - before)
    return 1e6 * best / (FRAMES * EVENTS_A_FRAME)


def profiled(filters: int) -> None:
    bench = Bench(filters)
    bench.turn()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(TURNS):
        bench.turn()
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def elsewhere(folder: str, filters: int) -> float:
    """The same by a process of its own, with the sources in this folder."""
    environment = {**os.environ, "PYTHONPATH": folder}
    command = [sys.executable, __file__, "--once", str(filters)]
    said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(said.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", help="a folder with another state of `stentor`")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--once", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once is not None:
        print(measured(given.once))
        return
    here = str(Path(__file__).resolve().parent.parent / "src")
    for filters in FILTERS:
        if given.profile:
            profiled(filters)
        elif given.against is None:
            print(f"{filters:6,} filters of others   {elsewhere(here, filters):.2f} µs")
        else:
            pairs = [
                (elsewhere(given.against, filters), elsewhere(here, filters)) for _ in range(ROUNDS)
            ]
            before, now = min(b for b, _ in pairs), min(n for _, n in pairs)
            ratio = median(n / b for b, n in pairs)
            print(
                f"{filters:6,} filters of others   {now:.2f} µs, there {before:.2f} µs; "
                f"{ratio:.2f} of it"
            )


if __name__ == "__main__":
    main()
