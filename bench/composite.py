"""How fast composite events are detected, and what open runs take.

bench/composite.py                     1,000 patterns, and 100, with few, half and all events of
                                       use; one with a condition across its events
bench/composite.py --against-bobocep   beside the engine bobocep, which has to be installed

Sequences of two events within ten seconds, one partition for each host. An event is *relevant* if
it can advance a pattern. Times are processor time, because others use the machine, too.

Beside bobocep, the patterns are `(A+ ; B) within 10s` without partitions, which it does not have:
there a run that is open takes all further A, so that both mean the same. It is given its events by
its decider alone, which is quicker than the whole of it. Both have to find the same, or this fails.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta
from importlib import import_module
from time import thread_time
from typing import TYPE_CHECKING, Any, TypeAlias

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
    parser.add_argument("--against-bobocep", action="store_true")
    given = parser.parse_args(arguments)
    if given.against_bobocep:
        against_bobocep()
        return
    from stentor.composite import Guaranteed

    for patterns in (100, 1_000):
        for share in (0.05, 0.5, 1.0):
            for policy in (None, Guaranteed()):
                events = stream(patterns, share, given.events)
                rate, found = speed(pairs(patterns), events, policy)
                name = "best effort" if policy is None else "guaranteed"
                print(
                    f"{patterns:>5,} patterns, {share:4.0%} relevant, {name:11}: "
                    f"{rate:>9,.0f} events/s, {found:,} detected"
                )
    for apart in (10, 1):
        rate, found = speed([spike()], quotes(given.events // 2, apart), None)
        print(
            f"B.price > A.price * 1.1, {apart:>2} ms apart: "
            f"{rate:>9,.0f} events/s, {found:,} detected"
        )
    print("{:.0f} bytes for each open run; the detector's status says {:.0f}".format(*memory()))


def speed(
    wanted: list[Pattern], events: list[Notification], policy: Policy | None
) -> tuple[float, int]:
    """Events in a second of processor time, and how many composite events there were."""
    from stentor.composite import Detector

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


def spike() -> Pattern:
    """A pattern with a condition across its events."""
    from stentor.composite import Pattern

    return Pattern(
        "(A ; B) within 10s where B.price > A.price * 1.1 partition by host",
        events={"A": "type = 'a'", "B": "type = 'b'"},
    )


def quotes(count: int, apart: int) -> list[Notification]:
    """Events of fifty hosts for that, so many milliseconds apart: the closer, the more runs are
    open that an event has to be tested for.
    """
    from stentor.model import Notification

    rng = random.Random(2)
    return [
        Notification(
            {
                "type": rng.choice("ab"),
                "price": rng.uniform(90, 110),
                "host": f"h{rng.randrange(50)}",
            },
            time=START + timedelta(milliseconds=apart * i),
        )
        for i in range(count)
    ]


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


def against_bobocep() -> None:
    """How much faster the same patterns are detected in the same events."""
    try:
        import_module("bobocep")
    except ImportError:
        sys.exit("bobocep is not installed; `pip install bobocep`, in an environment of its own")
    for patterns, count in ((100, 10_000), (1_000, 2_000)):
        for share in (0.05, 1.0):
            events = stream(patterns, share, count)
            own, found = detected_here(patterns, events)
            other, found_there = detected_by_bobocep(patterns, events)
            if found != found_there:
                sys.exit(f"{len(found)} were detected here, and {len(found_there)} by bobocep")
            print(
                f"{patterns:>5,} patterns, {share:4.0%} relevant: {count / own:>9,.0f} events/s, "
                f"bobocep {count / other:>7,.0f} events/s, {other / own:,.0f} times as long, "
                f"{len(found):,} detected by both"
            )


#: The numbers of the events that were found to make a pattern, in their order.
Detections: TypeAlias = list[list[int]]


def detected_here(patterns: int, events: list[Notification]) -> tuple[float, Detections]:
    from stentor.composite import Detector

    wanted = pairs(patterns, "(A+ ; B) within 10s")
    Detector(wanted).feed(events)  # compiles what is compiled
    detector = Detector(wanted)
    gc.collect()
    before = thread_time()
    found = detector.feed(events).detections
    seconds = thread_time() - before
    numbers = [[each.event.id.sequence for each in one.events if each.event.id] for one in found]
    return seconds, sorted(numbers)


def detected_by_bobocep(patterns: int, events: list[Notification]) -> tuple[float, Detections]:
    setup: Any = import_module("bobocep.setup.simple")
    simple: Any = import_module("bobocep.cep.event.simple")
    handlers: Any = import_module("bobocep.cep.action.handler")
    phenom: Any = import_module("bobocep.cep.phenom.phenom")
    builder: Any = import_module("bobocep.cep.phenom.pattern.builder")

    def phenomenon(service: str) -> Any:
        def is_first(event: Any, history: Any) -> bool:
            data = event.data
            return bool(data["type"] == "cpu" and data["service"] == service and data["load"] > 0.9)

        def is_last(event: Any, history: Any) -> bool:
            data = event.data
            return bool(
                data["type"] == "disk" and data["service"] == service and data["free"] < 0.05
            )

        def is_in_time(event: Any, history: Any) -> bool:
            return bool(event.timestamp - history.first().timestamp <= 10_000)

        made = builder.BoboPatternBuilder("p", singleton=True)
        made = made.followed_by(is_first, group="A").followed_by(is_first, group="A", loop=True)
        made = made.followed_by(is_last, group="B").precondition(is_in_time)
        return phenom.BoboPhenomenon(service, [made.generate()])

    engine = setup.BoboSetupSimple(
        [phenomenon(f"s{i}") for i in range(patterns)],
        handlers.BoboActionHandlerBlocking(),
    ).generate()
    found: Detections = []

    class Listener:
        def on_decider_update(self, completed: Any, **others: Any) -> None:
            for run in completed:
                found.append([int(e.event_id) for e in run.history.all_events()])

    decider = engine.decider
    decider._subscribers[:] = [Listener()]  # the producer, which would make further events
    given = [
        simple.BoboEventSimple(str(e.id.sequence), round(e.time.timestamp() * 1_000), dict(e))
        for e in events
        if e.id is not None and e.time is not None
    ]
    gc.collect()
    before = thread_time()
    for event in given:
        decider.on_receiver_update(event)
        decider.update()
    return thread_time() - before, sorted(found)


def pairs(count: int, text: str = "(A ; B) within 10s partition by host") -> list[Pattern]:
    """Patterns for as many services."""
    from stentor.composite import Pattern

    return [
        Pattern(
            text,
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
