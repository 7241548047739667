"""`Detector`: many patterns over one stream of notifications, without input, output or clock.

A batch goes through three steps. The production index says which filters each notification matches,
for the filters of all patterns at once; each distinct filter is held once. What matches takes its
place in the input sequence, and is held back there as long as the policy wants (`stability`). What
is released goes to the runs of its patterns (`runs`), in the partition that it belongs to. So a
notification that matches nothing costs its share of the index and nothing else, and patterns that
an event cannot move cost nothing, however many are held.

Patterns that are defined by patterns are detected in levels: what the lower ones find in a batch is
sorted into the input of the higher ones.

The host passes notifications and the time in, and takes detections and the time of the next call
out. Everything that a detector knows is in `snapshot()`, so it can move to another process, or be
rebuilt after a crash; from the same snapshot and the same calls comes the same result.

A host that serves others meanwhile may want short calls. Then patterns are loaded in steps
(`adding`), and with a `portion` a call consumes only so many events that were held back, and lets
so many timers go off; while it `is_behind`, the host calls `catch_up`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count
from operator import itemgetter
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from stentor.composite.automaton import Automaton
from stentor.composite.event_heap import EventHeap, event_and_work
from stentor.composite.events import (
    CompositeEvent,
    Occurrence,
    in_order,
    occurrence,
    producer_of,
)
from stentor.composite.intervals import END_OF_TIME, START, Interval, bounds_of
from stentor.composite.pattern import Pattern
from stentor.composite.pattern_runs import PatternRuns, Work, add_use, merged
from stentor.composite.plain_runs import Partition, PlainRuns
from stentor.composite.plain_runs import size as plain_size
from stentor.composite.reference import Mode
from stentor.composite.runs import DEFAULTS, Found, Limits, Machine, Runs, events_of
from stentor.composite.snapshots import (
    Reader,
    State,
    Writer,
    damages_told,
    pack,
    pack_values,
    unpack,
)
from stentor.composite.stability import BestEffort, Policy, Probabilistic, Sources, Watermarked
from stentor.composite.steps import GENERAL
from stentor.errors import (
    DetectorFull,
    DuplicateKey,
    InvalidConfiguration,
    InvalidPattern,
    UnknownKey,
)
from stentor.filters import Filter
from stentor.matching import Index
from stentor.model import Notification

SECOND: Final = 1_000_000


class Fed(NamedTuple):
    """What came of a call: detections in their order, and when to call `advance` at the latest."""

    detections: list[CompositeEvent]
    #: Seconds since 1970; None if nothing waits for the time.
    wake: float | None


@dataclass(frozen=True)
class Status:
    """How a detector is doing."""

    patterns: int
    partitions: int
    runs: int
    #: Events that runs hold on to, each once.
    events: int
    #: Bytes that runs take, without the notifications themselves, by count.
    memory: int
    waiting: int
    #: Events that came too late, runs given up at a limit, events consumed before their time.
    late: int
    dropped: int
    forced: int


class Detector:
    """Detects patterns in a stream.

    >>> from datetime import datetime, timezone
    >>> at = lambda s: datetime(2026, 1, 1, 0, 0, s, tzinfo=timezone.utc)
    >>> spike = Pattern("(A ; B) where B.price > A.price * 1.1 partition by symbol",
    ...                 events={"A": "type = 'quote'", "B": "type = 'quote'"})
    >>> detector = Detector([spike])
    >>> fed = detector.feed([
    ...     Notification({"type": "quote", "symbol": "IBM", "price": p}, time=at(i))
    ...     for i, p in enumerate((100, 101, 120))])
    >>> [[each.event["price"] for each in found.events] for found in fed.detections]
    [[100, 120]]
    """

    def __init__(
        self,
        patterns: Iterable[Pattern] = (),
        *,
        policy: Policy | None = None,
        mode: Mode = "standing",
        limits: Limits = DEFAULTS,
        uncertainty: int = 0,
        portion: int | None = None,
    ) -> None:
        """`uncertainty` is by how many microseconds clocks may be wrong.

        `portion` is how much of what has waited one call deals with, roughly; None for all of it.
        Then only what one call finds is in order.
        """
        if mode not in ("standing", "one_shot"):
            raise InvalidConfiguration(f"mode={mode!r}: write standing or one_shot")
        self._policy: Policy = BestEffort() if policy is None else policy
        self._mode: Mode = mode
        self._limits = limits
        self._uncertainty = uncertainty
        self._portion = portion
        #: What is left by the last call: timers due before a time, events that need not wait.
        self._expired = -END_OF_TIME
        self._is_releasing = False
        self._holds_back = not isinstance(self._policy, BestEffort)
        self._hears_events = self._holds_back and not isinstance(self._policy, Watermarked)
        self._sources = Sources(self._policy)
        self._index: Index[int] = Index()
        self._filters: dict[Filter, int] = {}
        #: For each filter, the patterns and their bits that it stands for.
        self._labels: dict[int, Work] = {}
        self._loaded: dict[Pattern, PatternRuns] = {}
        #: By the identity of their automata, which they keep alive.
        self._machines: WeakValueDictionary[int, Machine] = WeakValueDictionary()
        self._numbers = count()
        self._filter_numbers = count()
        self._levels = 1
        self._waiting = EventHeap()
        #: Timers as a heap: when, the number of the pattern, a counter, the partition.
        self._timers: list[tuple[int, int, int, Any]] = []
        #: With more of them, those of runs that have ended are taken out.
        self._timers_most = 1_024
        self._by_number: dict[int, PatternRuns] = {}
        self._ticks = count()
        self._arrivals = 0
        #: Everything before this time has been consumed.
        self._released = -END_OF_TIME
        self._late = self._dropped = self._forced = 0
        for pattern in patterns:
            self.add(pattern)

    # -- patterns

    def add(self, pattern: Pattern) -> None:
        """Detect this pattern, too, from now on."""
        for _ in self.adding(pattern):
            pass

    def adding(self, pattern: Pattern) -> Iterator[None]:
        """The same in steps; it is detected after the last."""
        if not isinstance(pattern, Pattern):
            raise InvalidPattern(f"a detector takes a Pattern, not a {type(pattern).__name__}")
        if pattern in self._loaded and self._loaded[pattern].is_wanted:
            raise DuplicateKey(f"the detector has the pattern {pattern} already")
        loaded = yield from self._load(pattern)
        loaded.is_wanted = True

    def _load(self, pattern: Pattern) -> Generator[None, None, PatternRuns]:
        found = self._loaded.get(pattern)
        if found is not None:
            return found
        is_one_shot = self._mode == "one_shot"
        machine = self._machine(pattern.automaton)
        inner: dict[str, PatternRuns] = {}
        for name, meaning in pattern.events.items():
            if isinstance(meaning, Pattern):
                inner[name] = yield from self._load(meaning)
        loaded = PatternRuns(next(self._numbers), pattern, machine)
        if loaded.level and is_one_shot:
            raise InvalidConfiguration("patterns of patterns are detected standing")
        for place, name in enumerate(pattern.events):
            if name in inner:
                add_use(inner[name].dependents, loaded, 1 << place)
                inner[name].uses += 1
                continue
            filter_ = pattern.filter_of(name)
            number = self._filters.get(filter_)
            if number is None:
                number = self._filters[filter_] = next(self._filter_numbers)
                self._index.add(number, filter_)
                self._labels[number] = []
                yield
            add_use(self._labels[number], loaded, 1 << place)
        self._loaded[pattern] = loaded
        self._by_number[loaded.number] = loaded
        self._levels = max(self._levels, loaded.level + 1)
        return loaded

    def _machine(self, automaton: Automaton) -> Machine:
        """Patterns that differ only in their filters have one automaton, and one machine."""
        found = self._machines.get(id(automaton))
        if found is None:
            is_one_shot = self._mode == "one_shot"
            found = Machine(automaton, one_shot=is_one_shot, limits=self._limits)
            self._machines[id(automaton)] = found
        return found

    def remove(self, pattern: Pattern) -> None:
        """Forget a pattern and its runs."""
        loaded = self._loaded.get(pattern)
        if loaded is None or not loaded.is_wanted:
            raise UnknownKey(f"the detector does not have the pattern {pattern}")
        loaded.is_wanted = False
        self._unload(loaded)

    def _unload(self, loaded: PatternRuns) -> None:
        if loaded.is_wanted or loaded.uses:
            return
        del self._loaded[loaded.pattern]
        del self._by_number[loaded.number]
        for name, meaning in loaded.pattern.events.items():
            if isinstance(meaning, Pattern):
                inner = self._loaded[meaning]
                inner.dependents = [d for d in inner.dependents if d[0] is not loaded]
                inner.uses -= 1
                self._unload(inner)
                continue
            filter_ = loaded.pattern.filter_of(name)
            number = self._filters[filter_]
            left = [use for use in self._labels[number] if use[0] is not loaded]
            self._labels[number] = left
            if not left:
                self._index.remove(number)
                del self._filters[filter_], self._labels[number]

    @property
    def patterns(self) -> list[Pattern]:
        return [each.pattern for each in self._loaded.values() if each.is_wanted]

    @property
    def filters(self) -> dict[int, Filter]:
        """What events are held against, each once, by number."""
        return {number: filter_ for filter_, number in self._filters.items()}

    # -- what happens

    def feed(
        self,
        batch: Sequence[Notification],
        now: float | None = None,
        *,
        source: str | None = "",
        matched: tuple[list[int], list[int]] | None = None,
    ) -> Fed:
        """Take notifications that have arrived; `source` is whose order they are in.

        Without a source, each producer is one. A source's own notifications come in their order.
        With None they come in no order that says anything: only `heartbeat` does.
        A host that has held them against `filters` already passes `matched`: places in the batch,
        in their order, and for each the number of a filter that matches there.
        """
        if matched is None:
            found = self._index.match_batch(batch)
            rows, filters = found[0].tolist(), found[1].tolist()
        else:
            rows, filters = matched
        if self._hears_events and source is not None:
            self._hear(batch, now, source)
        rows, works = self._works(rows, filters)
        first = self._arrivals
        self._arrivals += len(batch)
        placed = self._placed(batch, source or "", first)
        if self._holds_back:
            in_time = self._waiting.add(map(placed, rows), works, self._released)
            self._late += len(rows) - in_time
            return self._release(now)
        if self._levels == 1 and _is_in_order(batch, rows):
            events = [batch[row] for row in rows]
            return self._result(self._process_in_order(events, rows, works, placed, _micros(now)))
        arrived = list(zip(map(placed, rows), works, strict=True))
        arrived.sort(key=_order)
        high = arrived[-1][0][0] if arrived else -END_OF_TIME
        return self._result(self._process(arrived, max(high, _micros(now))))

    def _hear(self, batch: Sequence[Notification], now: float | None, source: str) -> None:
        if isinstance(self._policy, Probabilistic) and now is not None:
            arrival = _micros(now)
            for notification in batch:
                high = bounds_of(notification, self._uncertainty)[1]
                whose = source or producer_of(notification)
                self._sources.hear(whose, high)
                self._sources.delayed(whose, high, arrival)
            return
        newest: dict[str, int] = {}
        for notification in batch:
            high = bounds_of(notification, self._uncertainty)[1]
            whose = source or producer_of(notification)
            if high > newest.get(whose, -END_OF_TIME):
                newest[whose] = high
        for whose, high in newest.items():
            self._sources.hear(whose, high)

    def _works(self, rows: list[int], filters: list[int]) -> tuple[list[int], list[Work]]:
        """The rows that match anything, and for each the patterns and their bits."""
        labels = self._labels
        if len(set(rows)) == len(rows):
            return rows, [labels[filter_] for filter_ in filters]
        found: dict[int, Work] = {}
        for row, filter_ in zip(rows, filters, strict=True):
            work = labels[filter_]
            known = found.get(row)
            found[row] = work if known is None else merged(known, work)
        return list(found), list(found.values())

    def _placed(
        self, batch: Sequence[Notification], source: str, first: int
    ) -> Callable[[int], Occurrence]:
        """What gives the events of a batch their places in time, by their rows."""
        uncertainty = self._uncertainty

        def placed(row: int) -> Occurrence:
            return occurrence(batch[row], first + row, source, uncertainty)

        return placed

    def heartbeat(self, source: str, time: float, now: float | None = None) -> Fed:
        """A source has said that it sends nothing before that time any more."""
        self._sources.hear(source, _micros(time))
        return self._result([]) if self.is_behind else self._release(now)

    @property
    def is_behind(self) -> bool:
        """Whether the last call has left something that need not wait any more."""
        return self._is_releasing or self._expired > -END_OF_TIME

    def catch_up(self, now: float) -> Fed:
        """Go on with that."""
        if self._is_releasing:
            return self._release(now)
        return self._result(self._process([], self._expired))

    @property
    def slowest(self) -> str | None:
        """The source that was heard of least lately: what waits waits for it."""
        return self._sources.slowest

    @property
    def sources(self) -> frozenset[str]:
        """All that are waited for."""
        return self._sources.known

    def add_source(self, source: str) -> None:
        """Wait for this source as well, even before it is heard of."""
        self._sources.add(source)

    def remove_source(self, source: str, now: float | None = None) -> Fed:
        """Do not wait for this source any more: it has ended, or is given up."""
        self._sources.remove(source)
        return self._release(now)

    def advance(self, now: float) -> Fed:
        """Time has passed."""
        if self._holds_back:
            return self._release(now)
        return self._result(self._process([], _micros(now)))

    def finish(self) -> Fed:
        """Nothing more will come: consume what waits, and let all timers go off."""
        waiting, self._waiting = self._waiting.all(), EventHeap()
        self._released = END_OF_TIME
        self._is_releasing = False
        found = self._process(map(event_and_work, waiting), 2 * END_OF_TIME)
        while self.is_behind:
            found += self._process([], self._expired)
        return self._result(found)

    # -- consuming

    def _release(self, now: float | None) -> Fed:
        detections: list[CompositeEvent] = []
        clock = _micros(now)
        room = len(self._waiting) if self._portion is None else self._portion
        self._is_releasing = False
        while self._holds_back:
            oldest = self._waiting.first
            before = max(self._sources.likely_before(clock, oldest), self._released)
            too_many = len(self._waiting) - self._limits.waiting
            if too_many > 0 and oldest >= before:
                if self._limits.when_full == "raise":
                    raise DetectorFull(
                        f"more than {self._limits.waiting} events wait for a source to be heard of"
                    )
                before = oldest + 1
                self._forced += 1
            # What is found in the last event of a moment comes before the first.
            taken = self._waiting.take(before, room, together=self._levels > 1)
            room = max(room - len(taken), 0)
            self._is_releasing = self._waiting.first < before
            if before > self._released:
                self._released = before
            elif not taken:
                break
            # Timers behind the next event have to wait for it.
            events = map(event_and_work, taken)
            detections += self._process(events, min(before, self._waiting.first))
            if self._is_releasing:
                break
        return self._result(detections)

    def _process_in_order(
        self,
        batch: list[Notification],
        rows: list[int],
        works: list[Work],
        placed: Callable[[int], Occurrence],
        now: int,
    ) -> list[CompositeEvent]:
        """The same for what needs no sorting: only what is of use gets its place in time."""
        detections: list[CompositeEvent] = []
        consume, most = self._consume, self._limits.partitions
        for notification, row, work in zip(batch, rows, works, strict=True):
            event: Occurrence | None = None
            for loaded, bits in work:
                token = loaded.token_of(notification)
                if token is None:
                    continue
                held = loaded.runs.get(token)
                if held is None and not bits & loaded.opening:
                    continue
                if event is None:
                    event = placed(row)
                plain = loaded.plain
                if (
                    held is None
                    and plain is not None
                    and plain.is_announced
                    and bits == plain.opening
                    and len(loaded.runs) < most
                    and plain.open(token, event)
                ):
                    continue  # what `consume` would do as well
                consume(loaded, token, held, event, bits, detections)
        high = bounds_of(batch[-1], self._uncertainty)[1] if batch else -END_OF_TIME
        self._expire(max(high, now), 0, detections)
        return in_order(detections)

    def _process(
        self, events: Iterable[tuple[Occurrence, Work]], before: int
    ) -> list[CompositeEvent]:
        """Consume events in this order, then let the timers go off that are due before a time."""
        detections: list[CompositeEvent] = []
        if self._levels == 1:
            for event, work in events:
                for loaded, bits in work:
                    self._offer(loaded, event, bits, detections)
            self._expire(before, 0, detections)
        else:
            given = list(events)
            if not given:
                before = self._portioned(before)
            for level in range(self._levels):
                found: list[CompositeEvent] = []
                for event, work in given:
                    for loaded, bits in work:
                        if loaded.level == level:
                            self._offer(loaded, event, bits, found)
                self._expire(before, level, found)
                detections += found
                given += [each for d in found if (each := self._for_dependents(d))]
                given.sort(key=_order)
            detections = [d for d in detections if self._loaded[d.pattern].is_wanted]
        return in_order(detections)

    def _portioned(self, before: int) -> int:
        """Up to when timers go off in this call: many of the same moment go together."""
        portion = self._portion
        if portion is None:
            return before
        before, self._expired = max(before, self._expired), -END_OF_TIME
        if len(self._timers) <= portion or self._timers[0][0] >= before:
            return before
        last = nsmallest(portion, self._timers)[-1][0] + 1
        if last < before:
            self._expired, before = before, last
        return before

    def _for_dependents(self, found: CompositeEvent) -> tuple[Occurrence, Work] | None:
        loaded = self._loaded[found.pattern]
        if not loaded.dependents:
            return None
        low, high = found.interval
        number = (found.id.epoch, found.id.sequence)
        event = Occurrence(high, low, loaded.pattern.type, number, found.notification())
        return event, loaded.dependents

    def _offer(
        self, loaded: PatternRuns, event: Occurrence, bits: int, detections: list[CompositeEvent]
    ) -> None:
        token = loaded.token_of(event[4])
        if token is not None:
            held = loaded.runs.get(token)
            if held is not None or bits & loaded.opening:
                self._consume(loaded, token, held, event, bits, detections)

    def _consume(
        self,
        loaded: PatternRuns,
        token: Any,
        held: Partition | Runs | None,
        event: Occurrence,
        bits: int,
        detections: list[CompositeEvent],
    ) -> None:
        """Offer an event to its partition, which may be a new one."""
        plain = loaded.plain
        if held is None:
            if len(loaded.runs) >= self._limits.partitions and not self._make_room(loaded):
                return
            if plain is not None and bits == plain.opening and plain.open(token, event):
                if not plain.is_announced:
                    self._announce(loaded, plain)
                return
        key = loaded.key_of(event[4])
        if plain is not None and not isinstance(held, Runs):
            done = plain.consume(held, token, key, event, bits)
            if done is not GENERAL:
                if done is not None:
                    interval = Interval(done[1], done[2])
                    events = events_of(done[4])
                    detections.append(CompositeEvent(loaded.pattern, interval, events, key))
                elif not plain.is_announced:
                    self._announce(loaded, plain)
                return
            held = loaded.runs[token] = plain.general(token, key)
        elif held is None:
            held = loaded.runs[token] = Runs(loaded.machine, key)
        assert isinstance(held, Runs)
        if held.is_over:
            return
        if loaded.machine.has_timers:
            found = held.expire(event[0]) if held.timers else []
            if not held.is_over:
                found += held.consume(event, bits)
            if held.timers:
                self._set_timer(loaded, token, held)
        else:
            found = held.consume(event, bits)
        if found:
            self._tell(loaded, key, found, detections)
        if not held.runs and not held.is_over:
            self._dropped += held.dropped
            del loaded.runs[token]

    def _tell(
        self,
        loaded: PatternRuns,
        key: tuple[Any, ...],
        found: list[Found],
        detections: list[CompositeEvent],
    ) -> None:
        for low, high, events in found:
            detections.append(CompositeEvent(loaded.pattern, Interval(low, high), events, key))

    def _make_room(self, loaded: PatternRuns) -> bool:
        if self._limits.when_full == "raise":
            raise DetectorFull(
                f"more than {self._limits.partitions} partitions of {loaded.pattern} have runs"
            )
        self._dropped += 1
        if self._limits.when_full == "newest":
            return False
        del loaded.runs[next(iter(loaded.runs))]
        return True

    # -- timers

    def _announce(self, loaded: PatternRuns, plain: PlainRuns) -> None:
        """Have the plain runs ended that are over, in time."""
        deadline = plain.next_deadline
        plain.is_announced = deadline is not None
        if deadline is not None:
            heappush(self._timers, (deadline, loaded.number, next(self._ticks), _PLAIN))

    def _set_timer(self, loaded: PatternRuns, token: Any, runs: Runs) -> None:
        deadline = runs.next_deadline
        if deadline is not None and deadline != runs.announced:
            runs.announced = deadline
            heappush(self._timers, (deadline, loaded.number, next(self._ticks), token))
            if len(self._timers) > self._timers_most:
                self._clean_timers()

    def _clean_timers(self) -> None:
        self._timers = []
        for loaded in self._loaded.values():
            for token, held in loaded.runs.items():
                if isinstance(held, Runs):
                    deadline = held.announced = held.next_deadline
                    if deadline is not None:
                        self._timers.append((deadline, loaded.number, next(self._ticks), token))
            if loaded.plain is not None:
                self._announce(loaded, loaded.plain)
        heapify(self._timers)
        self._timers_most = 4 * len(self._timers) + 1_024

    def _expire(self, before: int, level: int, detections: list[CompositeEvent]) -> None:
        timers = self._timers
        others = []
        left = -1
        if self._portion is not None and self._levels == 1:
            left = self._portion
            before, self._expired = max(before, self._expired), -END_OF_TIME
        while timers and timers[0][0] < before:
            if not left:
                self._expired = before
                break
            left -= 1
            entry = heappop(timers)
            loaded = self._by_number.get(entry[1])
            if loaded is None:
                continue
            if loaded.level != level:
                others.append(entry)
                continue
            if entry[3] is _PLAIN:
                assert loaded.plain is not None
                loaded.plain.is_announced = False
                loaded.plain.expire(before)
                self._announce(loaded, loaded.plain)
                continue
            runs = loaded.runs.get(entry[3])
            if not isinstance(runs, Runs):
                continue
            runs.announced = None
            self._tell(loaded, runs.key, runs.expire(before), detections)
            if not runs.runs and not runs.is_over:
                self._dropped += runs.dropped
                del loaded.runs[entry[3]]
            else:
                self._set_timer(loaded, entry[3], runs)
        for entry in others:
            heappush(timers, entry)

    def _result(self, detections: list[CompositeEvent]) -> Fed:
        wakes: list[int | None] = []
        if self._timers and not self._holds_back:
            wakes.append(self._timers[0][0] + 1)
        if self._waiting:
            wakes.append(self._sources.wake_for(self._waiting.first))
        wake = min((each for each in wakes if each is not None), default=None)
        return Fed(detections, None if wake is None else wake / SECOND)

    @property
    def due(self) -> float | None:
        """When the next event or timer is due that waits, in seconds since 1970: a heartbeat after
        that has something to do. None if nothing waits.
        """
        times = [self._waiting.first] if self._waiting else []
        if self._timers:
            times.append(self._timers[0][0])
        return min(times) / SECOND if times else None

    # -- moving

    def snapshot(self) -> bytes:
        """Everything that is remembered, for `restore` of a detector with the same patterns."""
        writer = Writer()
        patterns = []
        for loaded in sorted(self._loaded.values(), key=lambda each: each.pattern.digest):
            partitions = []
            held = [(pack_values(k), d) for k, d in map(loaded.dump, loaded.runs.values())]
            for packed, dumped in sorted(held, key=itemgetter(0)):
                opened, dropped, is_over, open_runs = dumped
                written = [(serial, [writer.branch(b) for b in bs]) for serial, bs in open_runs]
                partitions.append((packed, opened, dropped, is_over, written))
            patterns.append((loaded.pattern.digest, partitions))
        waiting = [
            (writer.event(event), [(each.pattern.digest, bits) for each, bits in work])
            for event, work in map(event_and_work, self._waiting.all())
        ]
        counts = self._arrivals, self._released, self._late, self._dropped, self._forced
        sources = self._sources.dump()
        return pack(State(patterns, waiting, counts, sources, writer.events, writer.links))

    def restore(self, snapshot: bytes) -> None:
        """Become what another detector was. What is known of patterns not held here is left out.

        `DecodeError` if it is damaged; then nothing has changed.
        """
        state = unpack(snapshot)
        by_digest = {each.pattern.digest: each for each in self._loaded.values()}
        with damages_told():
            reader = Reader(state.events, state.links)
            held = [reader.events[number] for number, _ in state.waiting]
            restored = [
                (loaded, dict(_partition(loaded, reader, each) for each in partitions))
                for digest, partitions in state.patterns
                if (loaded := by_digest.get(digest)) is not None
            ]
        for loaded, runs in restored:
            loaded.runs.clear()
            loaded.runs.update(runs)
            if loaded.plain is not None:
                loaded.plain.loaded()
        self._waiting = EventHeap()
        works = (
            [(by_digest[digest], bits) for digest, bits in work if digest in by_digest]
            for _, work in state.waiting
        )
        self._waiting.add(held, works, -END_OF_TIME)
        self._arrivals, self._released, self._late, self._dropped, self._forced = state.counts
        self._sources.load(state.sources)
        self._is_releasing = self._waiting.first < self._released
        self._clean_timers()

    # -- telling

    @property
    def status(self) -> Status:
        """Figures for whoever operates it."""
        partitions = runs = events = memory = 0
        dropped = self._dropped
        for loaded in self._loaded.values():
            for held in loaded.runs.values():
                partitions += 1
                if isinstance(held, Runs):
                    runs += len(held.runs)
                    dropped += held.dropped
                    own_events, own_memory = held.size()
                else:
                    own_runs, own_events, own_memory = plain_size(held)
                    runs += own_runs
                events += own_events
                memory += own_memory
        return Status(
            patterns=len(self.patterns),
            partitions=partitions,
            runs=runs,
            events=events,
            memory=memory,
            waiting=len(self._waiting),
            late=self._late,
            dropped=dropped,
            forced=self._forced,
        )


#: What a timer of all plain runs of a pattern has instead of a partition.
_PLAIN: Final = object()


#: Before the time of every notification.
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


def _partition(loaded: PatternRuns, reader: Reader, written: Any) -> tuple[Any, Any]:
    """The token of a partition that was written, and its runs."""
    key, dumped = reader.partition(written, loaded.machine)
    token = loaded.token(key)
    short = None if loaded.plain is None else loaded.plain.short(key, dumped)
    if short is not None:
        return token, short
    runs = Runs(loaded.machine, key)
    runs.load(dumped)
    return token, runs


def _micros(now: float | None) -> int:
    return -END_OF_TIME if now is None else round(now * SECOND)


def _order(pair: tuple[Occurrence, Any]) -> tuple[Any, ...]:
    return pair[0][:4]


def _is_in_order(batch: Sequence[Notification], rows: list[int]) -> bool:
    """Whether each ends later than the one before, as their plain times say it."""
    newest = _NEVER
    for row in rows:
        facts = batch[row].facts
        time = facts.get("_time")
        if time is None or time <= newest or START in facts:
            return False
        newest = time
    return True
