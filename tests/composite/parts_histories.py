"""Random patterns that are taken apart: whether the parts find together what the whole finds.

Each part has a detector of its own, which publishes what it finds to the others, as in a network
where nothing is under way for long. Run as a program, it tries many:

    python tests/composite/parts_histories.py 20000 0
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from random import Random

from stentor import Filter, Notification, NotificationId
from stentor.composite import Detector, Pattern
from stentor.composite import expressions as e
from stentor.composite.distribution import composed, joined, possible_parts
from stentor.errors import InvalidPattern

START = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = {name: f"n = '{name.lower()}'" for name in "ABCDEF"} | {"P": "n in ('a', 'b')"}


def random_row(rng: Random) -> e.Expression:
    names = rng.choices("ABCDEFP", k=rng.choice((1, 2, 2, 3, 4)))
    if rng.random() < 0.7:
        names = list(dict.fromkeys(names))
    found: e.Expression = e.Atom((names[0],), (names[0],))
    for name in names[1:]:
        kind = e.Sequence if rng.random() < 0.8 else e.Concatenation
        found = kind(found, e.Atom((name,), (name,)))
    return found


def random_expression(rng: Random, depth: int) -> e.Expression:
    def side() -> e.Expression:
        return random_expression(rng, depth - 1)

    kinds = ["row", "row", "either", "either", "then", "then"]
    kinds += ["both", "within", "often", "timer", "deadline"]
    match rng.choice(kinds) if depth else "row":
        case "either":
            return e.Alternation(side(), side())
        case "then":
            return e.Sequence(side(), side())
        case "both":
            return e.Parallel(side(), side())
        case "within":
            return e.Within(side(), 3_000_000)
        case "often":
            return e.Iteration(side(), *rng.choice([(1, None), (2, 2), (0, 1), (1, 2)]))
        case "timer":
            both = e.Atom(("A", "T"), ("A", "T"))
            return e.Timing(side(), both, "T", e.After(2_500_000))
        case "deadline":
            return e.Deadline(side(), side(), 3_500_000)
    return random_row(rng)


class Machines:
    """A detector for each part of a pattern, and one for what is left."""

    def __init__(self, whole: Pattern, parts: list[Pattern]) -> None:
        self.whole = whole
        self.found: list[NotificationId] = []
        by_type = {part: Filter(f"_type = '{part.type}'") for part in parts}
        self._machines = []
        for pattern in [*parts, whole]:
            others = {part: type for part, type in by_type.items() if part != pattern}
            outer, names = composed(pattern, others)
            self._machines.append((pattern, Detector([outer]), names))

    def feed(self, event: Notification) -> None:
        for pattern, detector, names in self._machines:
            for found in detector.feed([event]).detections:
                self._publish(joined(pattern, found, names).notification(), pattern)

    def advance(self, now: float) -> None:
        for pattern, detector, names in self._machines:
            for found in detector.advance(now).detections:
                self._publish(joined(pattern, found, names).notification(), pattern)

    def _publish(self, event: Notification, pattern: Pattern) -> None:
        assert event.id is not None
        if pattern == self.whole:
            self.found.append(event.id)
        else:
            id = NotificationId("a detector", event.id.epoch, event.id.sequence)
            self.feed(event.replace(id=id))


def check(seed: int) -> tuple[int, int] | None:
    """How many parts there were and how much was found; None if it cannot be taken apart."""
    rng = Random(seed)
    partition = ("host",) if rng.random() < 0.3 else ()
    events: dict[str, str | Pattern] = dict(EVENTS)
    if rng.random() < 0.2:
        events["F"] = Pattern(random_row(rng), EVENTS, partition=partition)
    try:
        whole = Pattern(random_expression(rng, rng.choice((1, 2, 3))), events, partition=partition)
        alone = Detector([whole])
    except InvalidPattern:
        return None
    parts = [part for part in possible_parts(whole) if rng.random() < 0.7]
    if not parts:
        return None
    apart, expected = Machines(whole, parts), []
    for number in range(rng.randrange(40)):
        happened = START + timedelta(seconds=number)
        attributes = {"n": rng.choice("abcdef"), "host": rng.choice("hi")}
        event = Notification(attributes, time=happened, id=NotificationId("s", 1, number))
        later = (happened + timedelta(seconds=0.6)).timestamp()
        for fed in (alone.feed([event]), alone.advance(later)):
            expected += [found.id for found in fed.detections]
        apart.feed(event)
        apart.advance(later)
    names = sorted(map(str, parts))
    assert sorted(apart.found) == sorted(expected), f"seed {seed}: {whole}, apart {names}"
    return len(parts), len(expected)


def main() -> int:
    number, first = int(sys.argv[1]), int(sys.argv[2])
    checked = [found for seed in range(first, first + number) if (found := check(seed))]
    print(f"{len(checked)} patterns, {sum(p for p, _ in checked)} parts, "
          f"{sum(n for _, n in checked)} detections")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
