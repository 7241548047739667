"""Random patterns and histories, and whether every way to detect agrees with the reference.

Run as a program, it tries many and says with which seed one failed:

    python tests/composite/composite_histories.py --histories 20000 --seed 0
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random
from typing import Any
from unittest import mock

from stentor.composite import BestEffort, Detector, Guaranteed, Limits, Pattern, plain_runs
from stentor.composite import conditions as c
from stentor.composite import expressions as e
from stentor.composite.events import CompositeEvent, Occurrence, occurrence
from stentor.composite.intervals import END, START, moment
from stentor.composite.reference import Mode, detect_history
from stentor.composite.steps import Steps
from stentor.model import Notification, NotificationId

NAMES = {
    "A": "n = 'a'",
    "B": "n = 'b'",
    "C": "n in ('a', 'c')",
    "P": "n in ('a', 'b')",
    "D": "n = 'd'",
}
SECOND = 1_000_000
KINDS = (
    "sequence sequence concatenation iteration alternation parallel timing deadline "
    "within within where where distinct"
)


def random_atom(r: Random, timers: tuple[str, ...]) -> e.Expression:
    names = [*NAMES, *timers, *timers]
    labels = tuple(sorted(set(r.choices(names, k=r.choice((1, 1, 1, 2))))))
    domain = labels
    if r.random() < 0.35:
        domain = tuple(sorted({*labels, *r.choices(names, k=r.choice((1, 2)))}))
    if r.random() < 0.1 and set(domain) - set(labels):
        return e.Atom(labels, domain, negated=True)
    return e.Atom(labels, domain)


def random_expression(r: Random, depth: int, timers: tuple[str, ...] = ()) -> e.Expression:
    if depth == 0 or r.random() < 0.15:
        return random_atom(r, timers)

    def part(more: tuple[str, ...] = ()) -> e.Expression:
        return random_expression(r, depth - 1, timers + more)

    kind = r.choice(KINDS.split())
    match kind:
        case "sequence":
            return e.Sequence(part(), part())
        case "concatenation":
            return e.Concatenation(part(), part())
        case "alternation":
            return e.Alternation(part(), part())
        case "parallel":
            return e.Parallel(part(), part())
        case "iteration":
            least, most = r.choice([(0, None), (1, None), (0, 1), (2, 2), (1, 2), (2, None)])
            return e.Iteration(part(), least, most)
        case "timing":
            timer = r.choice(("T", "U"))
            spec = e.At(r.randrange(12) * SECOND) if r.random() < 0.2 else _after(r)
            return e.Timing(part(), part((timer,)), timer, spec)
        case "deadline":
            return e.Deadline(part(), part(), _after(r).micros)
        case "within":
            return e.Within(part(), _after(r).micros)
        case "distinct":
            return e.Distinct(part(), "x")
    body = part()
    names = sorted(
        {n for a in e.walk(body) if isinstance(a, e.Atom) for n in a.binds if n in NAMES}
    )
    return e.Where(body, random_condition(r, names)) if names else body


def _after(r: Random) -> e.After:
    return e.After(r.randrange(1, 6) * SECOND)


def random_condition(r: Random, names: list[str]) -> c.Condition:
    def term() -> c.Term:
        name = r.choice(names)
        return r.choice(
            (
                c.Field(name, "x"),
                c.Field(name, "x"),
                c.Value(r.randrange(4)),
                c.Aggregate("count", name),
                c.Aggregate(r.choice(("sum", "max", "first", "prev", "distinct")), name, "x"),
                c.Calculation("+", c.Field(name, "x"), c.Value(1)),
            )
        )

    made: c.Condition = c.Comparison(r.choice(("=", "!=", "<", "<=", ">", ">=")), term(), term())
    if r.random() < 0.2:
        other = c.Comparison(r.choice(("=", "<", ">=")), term(), term())
        made = r.choice((c.Both((made, other)), c.Either((made, other)), c.Negation(made)))
    return made


#: Those whose runs have a short form, and some that have it in some of their states.
PLAIN = (
    "A ; B",
    "A ; B within 3s",
    "(A ; D ; B) within 5s",
    "A D B",
    "(B{3} ; A) within 6s",
    "(A+ ; D) within 4s",
    "C{2,} ; [not D in {B, D}]",
    "[A, D in {A, B, D}] ; [B in {A, B}] within 4s",
    "P ; C within 3s",
    "(A within 2s) ; B",
    "(A ; B within 2s) ; D",
    "A? ; B ; D",
    "(A ; B)* ; D",
    "A{2} within 3s",
    "A",
    "(A ; B) within 5s where B.x > A.x",
    "A D B where D.x >= A.x and B.x != D.x",
    "(A+ ; D) within 4s where A.x >= prev(A.x) and D.x = first(A.x)",
    "C{2,} ; [D in {B, D}] within 6s where D.x > C.x",
    "[A in {A, D}] ; [B in {B, D}] where not B.x = A.x",
    "(P ; C) where P.x > 0 and sum(C.x) > 1",
)


def plain_pattern(r: Random) -> Pattern:
    return Pattern(r.choice(PLAIN), NAMES, partition=r.choice(((), ("host",), ("_producer",))))


def random_pattern(r: Random) -> Pattern:
    partition = r.choice(((), (), (), (), ("host",), ("host",), ("_producer",)))
    if r.random() < 0.1:
        labels = tuple(r.choices(list(NAMES), k=r.choice((1, 2, 3))))
        return Pattern(e.Window(labels, r.random() < 0.5), NAMES, partition=partition)
    events: dict[str, Any] = dict(NAMES)
    if r.random() < 0.15:
        inner = random_expression(r, 1)
        events["D"] = Pattern(inner, NAMES, partition=partition)
    return Pattern(random_expression(r, r.choice((1, 2, 2, 3))), events, partition=partition)


def random_history(r: Random) -> list[Occurrence]:
    """Events of a few sources, each in the order of its own intervals."""
    wide = r.random() < 0.5
    found: list[Occurrence] = []
    for source in range(r.choice((1, 2, 3))):
        times = []
        for _ in range(r.randrange(6)):
            high = r.randrange(12)
            low = high - (r.choice((0, 1, 3)) if wide else 0)
            times.append((high, low))
        for sequence, (high, low) in enumerate(sorted(times)):
            attributes = {
                "n": r.choice("aabbcd"),
                "x": r.randrange(3),
                "host": r.choice(("h", "i")),
                START: moment(low * SECOND),
                END: moment(high * SECOND),
            }
            identity = NotificationId(f"s{source}", 1, sequence)
            found.append(occurrence(Notification(attributes, id=identity)))
    return found


def arrivals(r: Random, history: list[Occurrence]) -> list[Occurrence]:
    """One of the orders in which they may arrive: that of each source is kept."""
    queues: dict[str, list[Occurrence]] = {}
    for each in history:
        queues.setdefault(each.source, []).append(each)
    found = []
    while queues:
        source = r.choice(sorted(queues))
        found.append(queues[source].pop(0))
        if not queues[source]:
            del queues[source]
    return found


def caught_up(r: Random, detector: Detector) -> list[CompositeEvent]:
    """What comes of some, or all, of the short calls that are left to do."""
    found: list[CompositeEvent] = []
    while detector.is_behind and r.random() < 0.8:
        found += detector.catch_up(0.0).detections
    return found


def guaranteed(
    r: Random, pattern: Pattern, history: list[Occurrence], mode: Mode, portion: int | None
) -> Any:
    """What the detector finds, in batches, with heartbeats, and moved to a copy now and then."""
    sources = tuple(sorted({each.source for each in history}))
    policy = Guaranteed(sources)

    def fresh() -> Detector:
        return Detector([pattern], policy=policy, mode=mode, portion=portion)

    detector = fresh()
    found: list[CompositeEvent] = []
    waiting = [each.event for each in arrivals(r, history)]
    while waiting:
        size = r.choice((1, 1, 2, 5))
        batch, waiting = waiting[:size], waiting[size:]
        found += detector.feed(batch).detections
        if sources and r.random() < 0.3:
            source = r.choice(sources)
            own = [o.high for o in history if o.source == source and o.event in waiting]
            until = min(own, default=r.randrange(20) * SECOND)
            found += detector.heartbeat(source, until / SECOND).detections
        found += caught_up(r, detector)
        if r.random() < 0.2:
            saved = detector.snapshot()
            detector = fresh()
            detector.restore(saved)
            assert detector.snapshot() == saved
    return found + detector.finish().detections


def in_order(
    r: Random, pattern: Pattern, history: list[Occurrence], mode: Mode, portion: int | None
) -> Any:
    """Best effort, where nothing is late."""
    detector = Detector([pattern], policy=BestEffort(), mode=mode, portion=portion)
    found: list[CompositeEvent] = []
    events = sorted(history, key=lambda each: each.order)
    while events:
        # What ends at the same time comes together; composite events take their place there.
        size = next((i for i, o in enumerate(events) if o.high != events[0].high), len(events))
        found += detector.feed([each.event for each in events[:size]]).detections
        events = events[size:]
        found += caught_up(r, detector)
    return found + detector.finish().detections


def check(seed: int | Random) -> int:
    """Compare on one pattern and history; how many detections there are."""
    r = seed if isinstance(seed, Random) else Random(seed)
    pattern = plain_pattern(r) if r.random() < 0.25 else random_pattern(r)
    if not isinstance(pattern.expression, e.Window):
        assert Pattern(str(pattern), pattern.events) == pattern, str(pattern)
    history = random_history(r)
    mode: Mode = "one_shot" if pattern.level == 0 and r.random() < 0.2 else "standing"
    expected = detect_history(pattern, history, mode)
    # Best effort learns of what an inner timer completes after it has consumed what came with it.
    ways = (guaranteed, in_order) if pattern.level == 0 else (guaranteed,)
    for way in ways:
        portion = r.choice((None, None, 1, 2))
        found = way(r, pattern, history, mode, portion)
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), (
            f"seed {seed}: {way.__name__} {mode} {portion}\n{pattern!r}\n"
            + "\n".join(f"{o.source} [{o.low}; {o.high}] {dict(o.event)}" for o in history)
            + f"\nexpected {expected}\nfound    {found}"
        )
        if way is guaranteed and portion is None:
            assert [d.interval.high for d in found] == sorted(d.interval.high for d in found)
    for each in expected:
        assert each.notification().id == each.id
    return len(expected)


def check_forms(seed: int | Random) -> int:
    """Runs in short form and in general form find the same, whatever is late or given up, and take
    each other's snapshots.
    """
    r = seed if isinstance(seed, Random) else Random(seed)
    patterns = {plain_pattern(r) for _ in range(r.choice((1, 1, 3)))}
    full = r.choice(("oldest", "newest"))
    limits = Limits(r.choice((1, 2, 9)), r.choice((1, 3, 99)), 64, r.choice((2, 9)), 9, full)
    policy = r.choice((BestEffort(), BestEffort(), Guaranteed(("s0",))))
    most = r.choice((2, 100))

    def made(is_short: bool) -> Detector:
        steps = Steps.of if is_short else lambda automaton: None
        with mock.patch.object(Steps, "of", steps), mock.patch.object(plain_runs, "MOST", most):
            return Detector(sorted(patterns, key=str), policy=policy, limits=limits)

    short, general = made(True), made(False)
    events = [each.event for _ in range(r.choice((1, 4))) for each in random_history(r)]
    if r.random() < 0.7:
        events.sort(key=lambda event: event[END])
    if r.random() < 0.5:  # those with plain times, which may need no sorting
        events = [
            Notification({k: each[k] for k in ("n", "x", "host")}, id=each.id, time=each[END])
            for each in events
        ]
        if r.random() < 0.5:
            events = [event.replace(time=moment(i * SECOND)) for i, event in enumerate(events)]
    now = r.choice((None, 3.0))
    count = 0
    while events:
        size = r.choice((1, 2, 5, 40))
        batch, events = events[:size], events[size:]
        fed = short.feed(batch, now)
        assert fed.detections == general.feed(batch, now).detections, f"seed {seed}: {patterns}"
        count += len(fed.detections)
        assert _figures(short) == _figures(general), f"seed {seed}: {patterns} {limits}"
        if r.random() < 0.2:
            saved, others = short.snapshot(), general.snapshot()
            short, general = made(True), made(False)
            if r.random() < 0.5:
                saved, others = others, saved
            short.restore(saved)
            general.restore(others)
            assert short.snapshot() == saved
            assert general.snapshot() == others
    assert short.finish().detections == general.finish().detections, f"seed {seed}: {patterns}"
    assert _figures(short) == _figures(general), f"seed {seed}: {patterns} {limits}"
    return count


def _figures(detector: Detector) -> tuple[Any, ...]:
    status = detector.status
    return status.partitions, status.runs, status.events, status.late, status.dropped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    options = parser.parse_args()
    detections = with_some = failed = 0
    begin = time.process_time()
    for seed in range(options.seed, options.seed + options.histories):
        try:
            found = check(seed)
            check_forms(seed)
        except Exception as error:
            failed += 1
            print(f"{type(error).__name__}: {str(error)[:1500]}", f"(seed {seed})")
            if failed == 5:
                break
            continue
        detections += found
        with_some += bool(found)
    print(
        f"seeds {options.seed} to {seed}: {failed} failed; {detections} detections in {with_some} "
        f"histories; {time.process_time() - begin:.0f} s of processor time"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
