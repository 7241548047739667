"""How fast composite events are detected, and what open runs take.

bench/composite.py                 1,000 patterns, and 100, with few, half and all events of use

Sequences of two events within ten seconds, one partition for each host. An event is *of use* if it
can advance a pattern. Times are processor time, because others use the machine, too.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta
from time import thread_time
from typing import TYPE_CHECKING

from onecore import use_one_core

if TYPE_CHECKING:
    from stentor.composite import Pattern
    from stentor.composite.stability import Policy
    from stentor.model import Notification

BATCH = 5_000
START = datetime(2026, 1, 1, tzinfo=UTC)


def main(arguments: list[str]) -> None:
    use_one_core()  # before Numba and Arrow are imported
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=50_000)
    given = parser.parse_args(arguments)
    from stentor.composite import Guaranteed

    for patterns in (100, 1_000):
        for share in (0.05, 0.5, 1.0):
            for policy in (None, Guaranteed()):
                rate, found = speed(patterns, share, given.events, policy)
                name = "best effort" if policy is None else "guaranteed"
                print(
                    f"{patterns:>5,} patterns, {share:4.0%} of use, {name:11}: "
                    f"{rate:>9,.0f} events/s, {found:,} detected"
                )
    print("{:.0f} bytes for each open run; the detector's status says {:.0f}".format(*memory()))


def speed(patterns: int, share: float, count: int, policy: Policy | None) -> tuple[float, int]:
    """Events in a second of processor time, and how many composite events there were."""
    from stentor.composite import Detector

    wanted = pairs(patterns)
    events = stream(patterns, share, count)
    detector = Detector(wanted, policy=policy)
    detector.feed(events[:BATCH])  # compiles what is compiled
    detector = Detector(wanted, policy=policy)
    found = 0
    gc.collect()
    gc.freeze()  # the events are no garbage; looking for some among them is not detecting
    before = thread_time()
    for start in range(0, len(events), BATCH):
        found += len(detector.feed(events[start : start + BATCH]).detections)
    return len(events) / (thread_time() - before), found


def memory(runs: int = 20_000) -> tuple[float, float]:
    """Bytes of an open run: as Python counts them, and as the detector does."""
    from stentor.composite import Detector

    events = stream(100, 1.0, runs, first_only=True)
    detector = Detector(pairs(100))
    detector.feed(events[:100])
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    detector.feed(events[100:])
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / (runs - 100), detector.status.memory / detector.status.runs


def pairs(count: int) -> list[Pattern]:
    """Patterns for as many services."""
    from stentor.composite import Pattern

    return [
        Pattern(
            "(A ; B) within 10s partition by host",
            events={
                "A": f"type = 'cpu' and service = 's{i}' and load > 0.9",
                "B": f"type = 'disk' and service = 's{i}' and free < 0.05",
            },
        )
        for i in range(count)
    ]


def stream(
    services: int, share: float, count: int, *, first_only: bool = False
) -> list[Notification]:
    """Events of fifty hosts, a millisecond apart, by seven producers."""
    from stentor.model import Notification, NotificationId

    r = random.Random(1)
    found = []
    for number in range(count):
        of_use = r.random() < share
        is_first = first_only or r.random() < 0.5
        content: dict[str, object] = {
            "type": "cpu" if is_first else "disk",
            "service": f"s{r.randrange(services)}",
            "host": f"h{number if first_only else r.randrange(50)}",
        }
        if is_first:
            content["load"] = 0.95 if of_use else 0.5
        else:
            content["free"] = 0.01 if of_use else 0.5
        id = NotificationId(f"p{number % 7}", 1, number)
        at = START + timedelta(milliseconds=number / (10 if first_only else 1))
        found.append(Notification(content, time=at, id=id))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
