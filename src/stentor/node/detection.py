"""A detector at its broker: what it has been given, what it has found, and what is kept of it.

It is fed with what is delivered to it, some at a time. What it finds is encoded some at a time,
too, and then published together. Of a durable one there is a *memo*, stored with its durable
subscription: what to detect, for whom, and the state by the positions that are stored with it.

Under `guaranteed`, the sources are streams, and only pulses (`stentor.node.parts.pulses`) tell how
far they are. A pulse counts when everything up to its offset was fed. An event may enter a stream
later than it happened, by its own time, because clocks differ and the way there takes time: so of a
pulse, `lateness` is taken off. What is later than that is counted, and not consumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from math import inf
from typing import Any, Final

import msgspec

from stentor.composite import (
    BestEffort,
    CompositeEvent,
    Detector,
    Guaranteed,
    Limits,
    Pattern,
    Policy,
    Probabilistic,
    interval_of,
)
from stentor.composite.distribution import composed, joined
from stentor.errors import (
    DecodeError,
    DetectorFull,
    FilterTooComplex,
    InvalidConfiguration,
    InvalidPattern,
    ProtocolError,
    StentorError,
)
from stentor.filters import Filter
from stentor.filters.effort import TooCostly, within
from stentor.filters.filter import RECEIVED_STEPS
from stentor.filters.language import format_literal
from stentor.model import Notification, NotificationId, decode, encode
from stentor.model.seen import SeenIds
from stentor.node.feed import Feed
from stentor.node.reading import Texts
from stentor.node.session import Session
from stentor.protocol import messages as m

#: What a hosted detector may remember. An event is offered to every run of its partition that waits
#: for such a one, and the state of a durable one is written in one step: so this is less than what
#: a detector may have in a process of its own.
LIMITS: Final = Limits(
    partitions=2_000, runs=32, branches=16, events=200, waiting=1_000, when_full="oldest"
)
#: Events that one holds on to, all in all, and bytes of the state of a durable one. One that has
#: more is ended, and says so. That of a durable one is written in one step, 5 to 9 µs for each
#: event, so those hold on to fewer, and are stored as often as so many have come. Where patterns
#: are made of patterns, all that is due at the same moment goes in one step.
HELD: Final = 20_000
HELD_IN_LEVELS: Final = 5_000
HELD_DURABLY: Final = 3_000
STATE: Final = 4 * 2**20
STORED_AFTER: Final = 250
LOOKED_AFTER: Final = 2_000
#: Bytes of a detection, beyond which it goes without the events that it is made of.
LARGE: Final = 256 * 1024
#: Notifications that are fed, detections that are encoded, and timers that go off, in one step.
FED: Final = 64
ENCODED: Final = 64
PORTION: Final = 64
#: Detections that may wait to be published before nothing more is fed.
FOUND: Final = 1_000
#: Seconds that may be allowed for events to be late.
MOST_LATE: Final = 3_600.0
#: Seconds ahead of the broker's clock from which on a time cannot be right.
AHEAD: Final = 60.0

#: Steps that it may take to compile a pattern, with those that it is defined by, and to read the
#: filters of all of them.
COMPILED: Final = 40_000
READ: Final = 2 * RECEIVED_STEPS
#: Patterns that are remembered; the automaton of one can take a megabyte.
REMEMBERED: Final = 64


class Memo(msgspec.Struct, array_like=True):
    """What is stored of a durable one, apart from its positions."""

    #: Rises with each that is stored.
    number: int
    detection: m.Detection
    #: The durable subscription that its detections are for, and the grant of whoever made it.
    subscriber: str
    owner: str | None
    component: str
    attributes: dict[str, Any]
    state: bytes


_memos: Final = msgspec.msgpack.Decoder(Memo)
_patterns: Final = msgspec.json.Decoder(dict[str, Any])


def pack_memo(memo: Memo) -> bytes:
    """A memo as bytes; a later one is greater."""
    return memo.number.to_bytes(8, "big") + msgspec.msgpack.encode(memo)


def unpack_memo(data: bytes) -> Memo:
    try:
        return _memos.decode(data[8:])
    except msgspec.MsgspecError as error:
        raise DecodeError(f"this is not a memo of a detector: {error}") from None


def _read(text: str) -> Pattern:
    """A pattern that somebody else sent, compiled, within what one request may cost a broker."""
    try:
        with within(READ):
            pattern = Pattern.load(_patterns.decode(text.encode()), Filter.received)
    except TooCostly:
        raise _too_complex() from None
    except (msgspec.MsgspecError, UnicodeError, TypeError, RecursionError) as error:
        raise InvalidPattern(f"this is not a pattern: {error}") from None
    if sum(filter.weight for filter in leaves(pattern)) > RECEIVED_STEPS:
        raise _too_complex()
    return _compiled(pattern)


def _compiled(pattern: Pattern) -> Pattern:
    try:
        with within(COMPILED):
            for each in pattern.walk():
                _ = each.automaton
    except TooCostly:
        raise InvalidPattern(
            "the pattern takes too many states to be detected in a broker; use smaller counts, or "
            "fewer parts that are optional or side by side"
        ) from None
    return pattern


def _too_complex() -> FilterTooComplex:
    return FilterTooComplex(
        "the filters of a pattern may be together no more complex than one may be; detect less "
        "with one pattern"
    )


#: The patterns that clients have sent. To read one may take longer than one step may, so a host
#: does that beforehand, elsewhere.
patterns: Final = Texts(_read, REMEMBERED)


def pattern_of(detection: m.Detection) -> Pattern:
    """The pattern that a client has sent; `InvalidPattern` if it makes no sense."""
    return patterns(detection.pattern)


def key_of(assignment: m.Assignment) -> str:
    """By what a detector is known: equal ones are one."""
    try:
        said = msgspec.json.encode(assignment, order="sorted")
    except TypeError as error:  # an attribute that is nothing which attributes can be
        raise ProtocolError(f"this cannot be assigned: {error}") from None
    return blake2b(said, digest_size=16).hexdigest()


def producer_of(detection: m.Detection, owner: str | None, more: str) -> str:
    """The producer of detections; none that a client can have ends so."""
    return f"{pattern_of(detection).type}/{more}@{owner or ''}@detector@"


def producer_for(assignment: m.Assignment) -> str:
    """The same of one that is not durable: wherever it is detected, and by which parts."""
    key = key_of(msgspec.structs.replace(assignment, parts=[]))
    return producer_of(assignment.detection, assignment.owner, key[:12])


def assignment_of_part(assignment: m.Assignment, text: str) -> m.Assignment:
    """What detects a part of a pattern, for the same and by the same rights."""
    detection = m.Detection(text, assignment.detection.policy)
    return msgspec.structs.replace(assignment, detection=detection, parts=[])


def text_of(pattern: Pattern) -> str:
    """A pattern as messages have it."""
    return msgspec.json.encode(pattern.dump()).decode()


def leaves(pattern: Pattern) -> list[Filter]:
    """The filters of all events that a pattern, or one that it is defined by, looks at."""
    found: dict[Filter, None] = {}
    for each in pattern.walk():
        found |= dict.fromkeys(f for f in each.events.values() if isinstance(f, Filter))
    if len(found) > m.MAX_INBOX:
        raise InvalidPattern(f"a pattern looks at {m.MAX_INBOX} filters at most")
    return list(found)


def policy_of(detection: m.Detection) -> Policy:
    """When events are consumed; `InvalidConfiguration` if there is no such policy."""
    match detection.policy:
        case "best_effort":
            return BestEffort()
        case "guaranteed":
            if not 0 <= detection.lateness <= MOST_LATE:
                raise InvalidConfiguration(
                    f"lateness={detection.lateness} must lie in 0..{MOST_LATE:g} seconds"
                )
            return Guaranteed()
        case "probabilistic":
            return Probabilistic(detection.threshold)
    raise InvalidConfiguration(
        f"there is no policy {detection.policy!r}; choose one of best_effort, guaranteed, "
        "probabilistic"
    )


def detections_of(pattern: Pattern, producer: str) -> Filter:
    """What matches the composite events of a pattern that this one publishes."""
    type, by = format_literal(pattern.type), format_literal(producer)
    return Filter(f"_type = {type} and _producer = {by}")


def _broker_of(stream: m.StreamId) -> str:
    """The broker that has begun a stream."""
    return stream.rpartition("#")[0] or stream


class Hosted:
    """One detector, which may serve several subscribers."""

    def __init__(
        self, key: str, assignment: m.Assignment, session: Session, producer: str, memo: Memo | None
    ) -> None:
        """With a memo it is durable."""
        self.key = key
        self.detection = detection = assignment.detection
        self.session = session
        self.pattern = pattern_of(detection)
        own = [assignment_of_part(assignment, text) for text in assignment.parts]
        parts = {pattern_of(p.detection): producer_for(p) for p in own}
        self.parts = tuple(map(str, parts))
        found = {part: detections_of(part, by) for part, by in parts.items()}
        #: The pattern over what is found of its parts, and the names that stand for that.
        self.watched, self._parts = composed(self.pattern, found)
        self.producer = producer
        self.memo = memo
        policy = policy_of(detection)
        self.is_guaranteed = isinstance(policy, Guaranteed)
        self._is_probabilistic = isinstance(policy, Probabilistic)
        mode: Any = detection.mode
        self.detector = Detector(policy=policy, mode=mode, limits=LIMITS, portion=PORTION)
        self._most = HELD_IN_LEVELS if self.watched.level else HELD
        #: Whether the detector has its pattern.
        self.is_loaded = False
        #: What was delivered and not fed.
        self._inbox: deque[m.Deliver] = deque()
        #: What was found and not encoded; what is to be published.
        self._found: deque[CompositeEvent] = deque()
        self.items: list[bytes] = []
        #: How far each stream was fed, the ids of that, and whether it was stored since.
        self.positions: m.Positions = {}
        self.ids: list[NotificationId] = []
        self.is_changed = False
        self._seen = SeenIds()
        #: Pulses that do not count yet: the next one of each stream, and the newest.
        self._pulses: dict[m.StreamId, list[tuple[int, float]]] = {}
        #: When the clock lets something happen.
        self.wake: float | None = None
        #: Subscriptions to what it finds, and clients that wait until it is in force.
        self.subscribers: set[str] = set()
        self.pending: list[tuple[Session, m.Subscribe]] = []
        #: Brokers for whose subscribers it works, and until when.
        self.tenants: dict[m.StreamId, float] = {}
        self.in_force = False
        #: What is left to do before it is, if it has not been asked for everything.
        self.beginning: Iterator[None] | None = None
        #: Whether something is on its way to the disk, and not before when there may be more.
        self.is_writing = False
        self.not_before, self.stored_at = 0.0, -inf
        #: Events that could not take part, and stretches that journals no longer had.
        self.unusable = self.gaps = self.found = self.fed = 0
        #: Events since its state was stored, and since it was looked how much it holds on to.
        self.since_stored = self._since_looked = 0

    @property
    def filter(self) -> Filter:
        """What asks for its detections."""
        return detections_of(self.pattern, self.producer)

    def load(self) -> Iterator[None]:
        """Make it able to detect, in steps."""
        yield from self.detector.adding(_compiled(self.watched))
        if self.memo is not None and self.memo.state:
            self.detector.restore(self.memo.state)
            self.wake = self.detector.due
        self.is_loaded = True

    # -- what comes

    def deliver(self, message: m.Deliver) -> None:
        self._inbox.append(message)

    @property
    def has_work(self) -> bool:
        if not self.is_loaded:
            return False
        if self._found:
            return True
        if len(self.items) >= FOUND:
            return False
        return self.detector.is_behind or (bool(self._inbox) and not self.is_full)

    @property
    def is_full(self) -> bool:
        """Whether it has to be stored before it is fed any more."""
        return self.memo is not None and self.since_stored >= STORED_AFTER

    @property
    def has_found(self) -> bool:
        """Whether something was found that is not encoded."""
        return bool(self._found)

    @property
    def is_idle(self) -> bool:
        """Whether all that was delivered was fed, and all that was found is to be published."""
        return not self._inbox and not self._found and not self.detector.is_behind

    def work(self, now: float) -> int:
        """Encode some of what was found, or feed some of what has come; how many were fed."""
        if not self.has_work:
            return 0
        if self._found:
            for _ in range(min(ENCODED, len(self._found))):
                self.items.append(self._encoded(self._found.popleft()))
            return 0
        if self.detector.is_behind:
            self._take(self.detector.catch_up(now))
            return 0
        message = self._inbox[0]
        offsets, items = message.offsets[:FED], message.items[:FED]
        if len(message.items) <= FED:
            self._inbox.popleft()
        else:
            self._inbox[0] = m.Deliver(
                message.number, message.stream, message.offsets[FED:], message.items[FED:]
            )
        self._feed(message.stream, items, now)
        if offsets:
            self.positions[message.stream] = offsets[-1]
        return len(items)

    def _feed(self, stream: m.StreamId, items: list[bytes], now: float) -> None:
        batch: list[Notification] = []
        for data in items:
            notification = decode(data)
            if notification.id is None or not self._is_usable(notification, now):
                self.unusable += 1
            elif self.memo is not None:
                self.ids.append(notification.id)
                batch.append(notification)
            elif self._seen.add(notification.id):
                batch.append(notification)
        self.fed += len(batch)
        self.since_stored += len(batch)
        self._since_looked += len(batch)
        if self._since_looked >= LOOKED_AFTER and self.memo is None:
            self._since_looked = 0
            self._check(self._most)
        self.is_changed = True
        source = stream or "volatile" if self._is_probabilistic else None
        self._take(self.detector.feed(batch, now, source=source))

    def _check(self, most: int) -> None:
        status = self.detector.status
        if status.events + status.waiting > most:
            raise DetectorFull(
                f"a detector would hold on to {status.events + status.waiting:,} events, more than "
                f"{most:,}; limit the pattern by `within`, or ask for fewer events"
            )

    def _is_usable(self, notification: Notification, now: float) -> bool:
        """Whether it says when it happened, and that is not in the time to come."""
        try:
            return interval_of(notification).high <= (now + AHEAD) * 1e6
        except StentorError:
            return False

    def _take(self, fed: Any) -> None:
        self._found.extend(fed.detections)
        self.found += len(fed.detections)
        self.is_changed |= bool(fed.detections)
        self.wake = fed.wake

    def _encoded(self, found: CompositeEvent) -> bytes:
        if self._parts:
            found = joined(self.pattern, found, self._parts)
        notification = found.notification()
        assert notification.id is not None
        id = NotificationId(self.producer, notification.id.epoch, notification.id.sequence)
        try:
            data = encode(notification.replace(id=id))
        except StentorError:
            data = b""
        if not data or len(data) > LARGE:
            data = encode(notification.replace(id=id, payload=b""))
        return data

    # -- time

    def begin(self, streams: list[m.StreamId]) -> None:
        """Its subscription is in force: these are the sources, and a durable one stores that.

        A broker that dies before anything was fed would else know no sources when it is there
        again, and not wait for those that it cannot reach yet.
        """
        self.in_force = self.is_changed = True
        self._add_sources(streams)

    def _add_sources(self, streams: list[m.StreamId]) -> None:
        if self.is_guaranteed:
            for stream in streams:
                self.detector.add_source(stream)

    def _drop_sources(self, streams: list[m.StreamId]) -> None:
        """Wait no longer for streams that are over: nobody answers for them, and their brokers have
        begun others. Those of brokers without a journal are over when these stop.
        """
        brokers = set(map(_broker_of, streams))
        for stream in self.detector.sources.difference(streams):
            if _broker_of(stream) in brokers and not self.detector.is_behind:
                self._pulses.pop(stream, None)
                self._take(self.detector.remove_source(stream))

    def is_waiting(self, clock: float) -> bool:
        """Whether it is to be told of the time."""
        if not self.in_force or not self.is_loaded:
            return False
        return self.is_guaranteed or (self.wake is not None and clock >= self.wake)

    def pulse(self, stream: m.StreamId, head: int, time: float) -> None:
        """All that has entered a stream before that time lies up to the head."""
        known = self._pulses.setdefault(stream, [])
        if len(known) == 2:
            known[1] = (head, time)
        else:
            known.append((head, time))

    def listen(self, streams: list[m.StreamId], feed: Feed, clock: float) -> None:
        """Let pulses count as far as what they speak of was fed; and the time pass."""
        if self.is_guaranteed:
            self._add_sources(streams)
            if self.is_idle:
                self._drop_sources(streams)
                self._count(feed)
        elif self.wake is not None and clock >= self.wake and self.is_idle:
            self._take(self.detector.advance(clock))

    def _count(self, feed: Feed) -> None:
        passed: Mapping[m.StreamId, int] | None = None
        for stream, known in self._pulses.items():
            while known and not self.detector.is_behind:
                head, time = known[0]
                feed.mark(stream, head)
                if passed is None or passed.get(stream, -1) < head:
                    passed = feed.passed
                if passed.get(stream, -1) < head or feed.is_claim(stream):
                    break
                known.pop(0)
                self._take(self.detector.heartbeat(stream, time - self.detection.lateness))
        self._pulses = {stream: known for stream, known in self._pulses.items() if known}

    # -- what is kept

    def to_memo(self) -> bytes:
        """What is to be stored with the positions; `DetectorFull` if that is too much."""
        assert self.memo is not None
        self._check(HELD_DURABLY)
        state = self.detector.snapshot()
        if len(state) > STATE:
            raise DetectorFull(
                f"the state of a detector would take {len(state):,} bytes, more than {STATE:,}; "
                "limit the pattern by `within`, or ask for fewer events"
            )
        self.since_stored = 0
        self.memo = msgspec.structs.replace(self.memo, number=self.memo.number + 1, state=state)
        return pack_memo(self.memo)

    def status(self) -> dict[str, Any]:
        """For operators."""
        status = self.detector.status
        return {
            "pattern": str(self.pattern),
            "type": self.pattern.type,
            "policy": self.detection.policy,
            "grant": self.session.owner,
            "durable": None if self.memo is None else self.memo.subscriber,
            "subscribers": len(self.subscribers),
            "parts": list(self.parts),
            "tenants": sorted(self.tenants),
            "in_force": self.in_force,
            "fed": self.fed,
            "found": self.found,
            "partitions": status.partitions,
            "runs": status.runs,
            "memory": status.memory,
            "waiting": status.waiting,
            "waits_for": self.detector.slowest if status.waiting and self.is_guaranteed else None,
            "late": status.late,
            "dropped": status.dropped + status.forced,
            "unusable": self.unusable,
            "gaps": self.gaps,
        }
