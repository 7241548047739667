"""Detectors: composite events, found where the events are.

A detector lives in the broker and uses nothing but what clients use (R-06.24): it is a session of
its own, without a connection, that subscribes to the events of its pattern and publishes what it
finds. It does so by the rights of whoever has asked for it: their grant, and their place in the
scope graph. What it finds is a notification like any other, under a producer that no client can
have, and those who asked for it are subscribed to that.

Life. A client subscribes with a pattern instead of a filter (`Subscribe.detect`). The first who
does so begins a detector; equal patterns of the same grant share it, and it ends with the last
subscription to it. Nobody is told that the subscription is in force before the detector's own is.
Brokers may need it for their subscribers as well (`stentor.node.parts.placements`); they are its
tenants, and it lasts as long as one of them.

A *durable* one belongs to the durable subscription of its subscriber, and lives as long as that. It
is a durable subscription itself, whose state has a memo: what the detector knows by the positions
stored with it. What it finds, the positions and the memo are one transaction of the journal. So
after a crash it goes on from there: what was found and published is not found again, and what was
not comes again. Like every durable subscription it is taken over with a broker that is removed.

Every step is short: a filter of a pattern is loaded, some events are fed, some timers go off, some
detections are encoded, or the state of one detector is written; and the parts take turns. What
comes meanwhile waits in the feed, and if that is full, in the journals.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import chain, count
from typing import Any, Final

from msgspec.structs import replace

from stentor.composite import Pattern
from stentor.errors import (
    InvalidConfiguration,
    NameTaken,
    NotPermitted,
    Overloaded,
    StentorError,
)
from stentor.filters import Filter
from stentor.model.codec import Envelope, decode_headers
from stentor.node.agenda import RESIDENTS, Agenda, Persist
from stentor.node.allowance import Allowance, Shares
from stentor.node.clock import Clock
from stentor.node.detection import (
    Hosted,
    Memo,
    detections_of,
    key_of,
    leaves,
    pack_memo,
    pattern_of,
    policy_of,
    producer_for,
    producer_of,
    unpack_memo,
)
from stentor.node.interest import Interest
from stentor.node.journals import Journals
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.durables import Durables
from stentor.node.parts.homes import Homes
from stentor.node.parts.offers import Offers
from stentor.node.parts.publishing import Publishing
from stentor.node.parts.pulses import Pulses
from stentor.node.parts.routing import Routing
from stentor.node.parts.subscribing import Subscribing, check_permitted
from stentor.node.reading import received
from stentor.node.scopes import Scopes
from stentor.node.session import AdvertiseRule, PublishRule, Session, SubscribeRule, nothing
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.protocol import messages as m
from stentor.routing.protocol import FilterId

#: What detectors publish.
DETECTIONS: Final = Filter("isa composite")
#: The number of a detector's only subscription, and how much may be on its way to it.
NUMBER: Final = 1
CREDIT: Final = 1_000
#: Seconds between two looks at the time, between two states of a durable one that has found
#: nothing, and until what could not be stored, or could not begin, is tried again.
LOOK: Final = 0.1
KEEP: Final = 1.0
RETRY: Final = 1.0
AGAIN: Final = 5.0
#: Detections that are published in one turn, if the state of none is written.
WRITTEN: Final = 500
#: What is behind the name of the durable subscription that a detector works for.
SUFFIX: Final = " (detector)"


@dataclass(frozen=True)
class OwnerRules:
    """What a grant allows, for a detector whose client may not be connected."""

    may_publish: PublishRule | None = None
    may_subscribe: SubscribeRule | None = None
    may_advertise: AdvertiseRule | None = None
    allowance: Allowance = field(default_factory=Allowance)


def _only_without_grants(owner: str | None) -> OwnerRules | None:
    return OwnerRules() if owner is None else None


class Detectors:
    """Begins, feeds and ends detectors."""

    def __init__(
        self,
        subscribing: Subscribing,
        *,
        subscriptions: Subscriptions,
        sessions: Sessions,
        durables: Durables,
        homes: Homes,
        offers: Offers,
        publishing: Publishing,
        routing: Routing | Carriage,
        journals: Journals,
        pulses: Pulses,
        clock: Clock,
        agenda: Agenda,
        scopes: Scopes,
        shares: Shares,
    ) -> None:
        """`shares` is how many there may be."""
        self._subscribing = subscribing
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._durables = durables
        self._homes = homes
        self._offers = offers
        self._publishing = publishing
        self._routing = routing
        self._pulses = pulses
        self._clock = clock
        self._agenda = agenda
        self._scopes = scopes
        self._stream = journals.stream
        self.shares = shares
        #: What a grant allows now; the host says it. None if there is no such grant.
        self.rules: Callable[[str | None], OwnerRules | None] = _only_without_grants
        #: Called with one that cannot go on, and why: its code and its words.
        self.at_fail: Callable[[Hosted, str, str], None] = lambda hosted, code, why: None
        self.counters = {"detected": 0, "detectors_ended": 0}
        self.held: dict[str, Hosted] = {}
        self._producer = f"detectors at {journals.stream}"
        self._session: Session | None = None
        self._numbers = count(1)
        self._advertised = not routing.is_steered
        self._meets = routing.meets
        #: Those that have something to do, those that time has passed for, and those that have
        #: something to store.
        self._working: Turns[str] = Turns()
        self._listening: Turns[str] = Turns()
        self._dirty: Turns[str] = Turns()
        #: Whether more is to be written than went into one turn.
        self._has_more = False
        #: Durable ones that could not begin, and what is said of them.
        self.idle: dict[str, str] = {}
        self._look = self._again = clock.now
        pulses.hear = self._pulse
        subscriptions.at_end(self._subscriber_gone)
        homes.at_end = self._forgotten

    # -- what clients ask

    def subscribe(self, session: Session, message: m.Subscribe) -> Iterator[None] | None:
        """As `Subscribing.subscribe`; with a pattern, when what detects it is in force."""
        detection = message.detect
        self._check_name(session, message)
        if detection is None:
            return self._subscribing.subscribe(session, message)
        self.check(session, message, detection)
        if message.durable is not None:
            named = self._homes.name(session, message.durable)
            if not self._homes.admits(session, replace(message, durable=named)):
                return None
        hosted = self._wanted(session, message, detection)
        if hosted is not None and not hosted.in_force:
            hosted.pending.append((session, message))
            return None
        return self._attach(hosted, session, message)

    def _check_name(self, session: Session, message: m.Subscribe) -> None:
        """Raise if the name of a durable one is taken: by a detector, or by what is none."""
        name, detection = message.durable, message.detect
        if name is None:
            return
        if name.endswith(SUFFIX):
            raise InvalidConfiguration(
                f"durable={name!r} is what a detector keeps for itself; choose a name that does "
                f"not end with {SUFFIX!r}"
            )
        is_detector = self._homes.is_known(self._homes.name(session, name + SUFFIX))
        if detection is None and is_detector:
            raise NameTaken(
                f"durable={name!r} is a detector; go on with detect() and its pattern, or choose "
                f"another name. `stentor durables` deletes it"
            )
        kept = self._durables.held.get(self._homes.name(session, name))
        if detection is None or is_detector or kept is None:
            return
        if kept.interest != Interest([self._found_elsewhere(session, name, detection)]):
            raise NameTaken(
                f"durable={name!r} subscribes to {str(kept.interest)!r} and detects nothing; "
                f"choose another name. `stentor durables` deletes it"
            )

    def check(self, session: Session, message: m.Subscribe, detection: m.Detection) -> Pattern:
        """What a client wants to be detected; raise if that makes no sense or is not allowed."""
        pattern = pattern_of(detection)
        policy_of(detection)
        if message.volatile or message.group is not None or not isinstance(message.filter, str):
            raise InvalidConfiguration(
                "what is detected comes to one subscriber, from a journal; leave out volatile and "
                "group, and give no list of filters"
            )
        if detection.mode not in ("standing", "one_shot"):
            raise InvalidConfiguration(f"mode={detection.mode!r}: write standing or one_shot")
        if detection.policy == "guaranteed" and self._meets:
            raise InvalidConfiguration(
                "on a rendezvous overlay a broker does not hear how far all others are, so nothing "
                'can be guaranteed; say policy="best_effort"'
            )
        if session.may_publish is nothing:
            raise NotPermitted(
                f"{session.name!r} may not publish anything, and what is detected is published; "
                f'have the grant widened by "isa composite"'
            )
        check_permitted(session, leaves(pattern))
        return pattern

    def unsubscribe(self, session: Session, message: m.Unsubscribe) -> None:
        """As `Subscribing.unsubscribe`, also of one that is not in force yet."""
        for hosted in list(self.held.values()):
            hosted.pending = [
                each
                for each in hosted.pending
                if each[0] is not session or each[1].number != message.number
            ]
            self.end_if_unused(hosted)
        self._subscribing.unsubscribe(session, message)

    def _wanted(
        self, session: Session, message: m.Subscribe, detection: m.Detection
    ) -> Hosted | None:
        """What detects it, made if need be; None if it lives at another broker."""
        assignment = self.assignment(session, detection)
        if message.durable is None:
            return self._shared(assignment, _rules(session))
        own = message.durable + SUFFIX
        key = self._homes.name(session, own)
        hosted = self.held.get(key)
        if hosted is not None:
            if hosted.detection != detection:
                raise InvalidConfiguration(
                    f"durable={message.durable!r} detects {str(hosted.pattern)!r}, with the policy "
                    f"{hosted.detection.policy}; use the same, or another name"
                )
            return hosted
        if self._homes.lives_elsewhere(key):
            return None
        self.check_room(session.owner, session.allowance)
        component, attributes = assignment.component, assignment.attributes
        memo = Memo(0, detection, message.durable, session.owner, component, attributes, b"")
        kept = self._durables.held.get(key)
        if kept is not None and kept.memo:
            memo = unpack_memo(kept.memo)
        hosted = self._resume(key, memo, _rules(session))
        self._ask(hosted, own, message)
        return hosted

    def assignment(self, session: Session, detection: m.Detection) -> m.Assignment:
        """What is to be detected, by the rights of this client."""
        component = self._scopes.components.get(session.id)
        if component is None or self._scopes.view(session.id) is None:
            return m.Assignment(detection, session.owner)
        return m.Assignment(detection, session.owner, component.name, dict(component.attributes))

    def _shared(self, assignment: m.Assignment, rules: OwnerRules) -> Hosted:
        key = key_of(assignment)
        hosted = self.held.get(key)
        if hosted is None:
            self.check_room(assignment.owner, rules.allowance)
            hosted = self._begin(key, assignment, producer_for(assignment), rules)
            self._ask(hosted, None)
        return hosted

    def host(self, assignment: m.Assignment, tenant: m.StreamId, until: float) -> Hosted:
        """Detect something for the subscribers of a broker, by what its grant allows here."""
        rules = self.rules(assignment.owner)
        if rules is None or rules.may_publish is nothing:
            raise NotPermitted(
                f"the grant {assignment.owner!r} may not detect anything here; give this broker "
                'the same grants as the others, and allow "isa composite"'
            )
        detection = assignment.detection
        if (detection.policy, detection.mode) != ("best_effort", "standing"):
            raise InvalidConfiguration("only standing, best_effort detection is done for others")
        hosted = self._shared(assignment, rules)
        hosted.tenants[tenant] = until
        return hosted

    def check_room(
        self, owner: str | None, allowance: Allowance, more: Iterable[str | None] = ()
    ) -> None:
        """Raise if there may not be another one; `more` are the grants of what counts as well."""
        counts = Counter(hosted.session.owner for hosted in self.held.values())
        counts.update(more)
        allowance.check("detectors", counts[owner])
        if not self.shares.has_room(owner, counts):
            raise Overloaded(
                f"there are {counts.total()} detectors, and this grant may have no more; end "
                "some that "
                "nobody needs, or raise limits.detectors"
            )

    def _attach(
        self, hosted: Hosted | None, session: Session, message: m.Subscribe
    ) -> Iterator[None] | None:
        """Subscribe a client to what is found."""
        if hosted is not None:
            return self.attach(hosted.filter, session, message, hosted.subscribers)
        assert message.detect is not None
        wanted = self._found_elsewhere(session, str(message.durable), message.detect)
        return self.attach(wanted, session, message, set())

    def _found_elsewhere(self, session: Session, name: str, detection: m.Detection) -> Filter:
        """What a durable one finds, wherever it lives: that is known by its name."""
        key = self._homes.name(session, name + SUFFIX)
        producer = producer_of(detection, session.owner, _digest(key))
        return detections_of(pattern_of(detection), producer)

    def attach(
        self, wanted: Filter, session: Session, message: m.Subscribe, subscribers: set[str]
    ) -> Iterator[None] | None:
        """Let a client have what is found; it is then one of the subscribers."""
        plain = replace(message, filter=str(wanted), detect=None)
        steps = self._subscribing.subscribe(session, plain)
        held = session.subscriptions.get(message.number)
        if held is not None:
            subscribers.add(held[0].feed.id)
        return steps

    # -- beginning

    def _resume(self, key: str, memo: Memo, rules: OwnerRules) -> Hosted:
        assignment = m.Assignment(memo.detection, memo.owner, memo.component, memo.attributes)
        producer = producer_of(memo.detection, memo.owner, _digest(key))
        return self._begin(key, assignment, producer, rules, memo)

    def _begin(
        self,
        key: str,
        assignment: m.Assignment,
        producer: str,
        rules: OwnerRules,
        memo: Memo | None = None,
    ) -> Hosted:
        id = RESIDENTS - next(self._numbers)
        line = self._publishing.line(producer, producer, None)
        may = rules.may_publish, rules.may_subscribe, rules.may_advertise
        owner, allowance = assignment.owner, rules.allowance
        session = Session(id, producer, producer, line, *may, owner, False, allowance)
        hosted = Hosted(key, assignment, session, producer, memo)
        self._sessions.begin(session)
        self._scopes.join(session, assignment.component or producer, assignment.attributes)
        self._agenda.residents[id] = partial(self._told, hosted)
        self.held[key] = hosted
        self.idle.pop(key, None)
        self._pulses.wanted |= hosted.is_guaranteed
        if not self._advertised:  # where advertisements steer, nobody would hear of what is found
            self._advertised = True
            self._routing.advertise(FilterId(self._producer, 0), DETECTIONS)
        self._offers.follow(session)
        return hosted

    def _ask(self, hosted: Hosted, name: str | None, asked: m.Subscribe | None = None) -> None:
        """Subscribe to the events of the pattern."""
        wanted = {str(filter): filter for filter in leaves(hosted.watched)}
        for text, filter in wanted.items():  # they were read already
            received.remember(text, filter)
        message = m.Subscribe(NUMBER, list(wanted), CREDIT, name)
        if asked is not None:
            message = replace(message, takeover=asked.takeover, here=asked.here)
        try:
            asking = self._subscribing.subscribe(hosted.session, message)
        except StentorError:
            self._drop(hosted)
            raise
        held = hosted.session.subscriptions.get(NUMBER)
        if held is not None and held[0].durable is not None and hosted.memo is not None:
            held[0].durable.memo = held[0].durable.memo or pack_memo(hosted.memo)
        hosted.beginning = chain(hosted.load(), asking or ())
        self._working.add(hosted.key)

    def restore(self) -> None:
        """Begin those again that were stored, as far as their grants allow it."""
        self._again = self._clock.now + AGAIN
        for key, durable in list(self._durables.held.items()):
            if not durable.memo or key in self.held:
                continue
            try:
                memo = unpack_memo(durable.memo)
                rules = self.rules(memo.owner)
                if rules is None:
                    raise NotPermitted(f"there is no grant {memo.owner!r} here")
                hosted = self._resume(key, memo, rules)
                self._ask(hosted, memo.subscriber + SUFFIX)
            except StentorError as error:
                self.idle[key] = str(error)

    def regrant(self) -> None:
        """Grants have changed: go on by what they say now, or not at all."""
        for hosted in list(self.held.values()):
            rules = self.rules(hosted.session.owner)
            session = hosted.session
            try:
                if rules is None:
                    raise NotPermitted(f"there is no grant {session.owner!r} any more")
                session.may_publish, session.may_subscribe = rules.may_publish, rules.may_subscribe
                session.may_advertise, session.allowance = rules.may_advertise, rules.allowance
                self._subscribing.regrant(session)
            except StentorError as error:
                self._fail(hosted, error)
        self.restore()

    # -- what detectors hear

    def _told(self, hosted: Hosted, message: Any) -> None:
        """What a client would be sent."""
        match message:
            case m.Deliver():
                hosted.deliver(message)
                self._working.add(hosted.key)
            case m.Subscribed():
                hosted.begin(self._pulses.streams)
                self._dirty.add(hosted.key)
                self._working.add(hosted.key)
            case m.Progress(positions=positions):
                for stream, position in positions.items():
                    hosted.deliver(m.Deliver(NUMBER, stream, [position], []))
                self._working.add(hosted.key)
            case m.Gap():
                hosted.gaps += 1
            case m.Ended(code=code, message=text) if code is not None:
                self._lost(hosted, code, text)
            case m.Failure(code=code, message=text):
                self._lost(hosted, code, text)

    def _lost(self, hosted: Hosted, code: str, text: str) -> None:
        """Its own subscription is over. A durable one goes on where that lives now, or later."""
        if hosted.memo is not None:
            self.idle[hosted.key] = text
            pending, hosted.pending = hosted.pending, []
            for session, message in pending:
                if session.id in self._sessions.held:
                    self._agenda.to_client(
                        session.id, m.Ended(message.number, code, text, [], True)
                    )
            self._drop(hosted)
        else:
            self._fail(hosted, StentorError(text), code)

    def _pulse(self, stream: m.StreamId, head: int, time: float) -> None:
        for hosted in self.held.values():
            if hosted.is_guaranteed:
                hosted.pulse(stream, head, time)

    # -- their work

    @property
    def has_work(self) -> bool:
        return bool(self._working) or bool(self._listening) or self._has_more

    def work(self) -> None:
        """A step of one of them."""
        self._has_more = False
        if self._listening:
            self._listen(self._listening.next())
        elif self._working:
            self._work(self._working.next())

    def _work(self, key: str) -> None:
        hosted = self.held.get(key)
        if hosted is None:
            return
        try:
            if hosted.beginning is not None:
                if next(hosted.beginning, hosted) is hosted:
                    hosted.beginning = None
                self._working.add(key)
                return
            if hosted.in_force and hosted.pending:
                self._admit(hosted)
            fed = hosted.work(self._clock.time)
        except StentorError as error:
            self._fail(hosted, error)
            return
        if fed:
            self._subscribing.credit(hosted.session, m.Credit(NUMBER, fed))
        if hosted.items or hosted.is_changed:
            self._dirty.add(hosted.key)
        if hosted.has_work:
            self._working.add(hosted.key)

    def _admit(self, hosted: Hosted) -> None:
        """It is in force: subscribe those who have waited for that."""
        pending, hosted.pending = hosted.pending, []
        self.admit(pending, hosted.filter, hosted.subscribers)
        self.end_if_unused(hosted)

    def admit(
        self, pending: Iterable[tuple[Session, m.Subscribe]], wanted: Filter, subscribers: set[str]
    ) -> None:
        """Let those have what is found who have waited until it is in force, if they still wait."""
        for session, message in pending:
            if session.id not in self._sessions.held:
                continue
            try:
                for _ in self.attach(wanted, session, message, subscribers) or ():
                    pass
            except StentorError as error:
                failure = m.Failure(error.code, str(error), message.number)
                self._agenda.to_client(session.id, failure)

    def tick(self) -> None:
        """Let time pass for all of them."""
        if self._clock.now < self._look:
            return
        self._look = self._clock.now + LOOK
        if self.idle and self._clock.now >= self._again:
            self.idle = {key: why for key, why in self.idle.items() if key in self._durables.held}
            self.restore()
        for key, hosted in self.held.items():
            if hosted.is_waiting(self._clock.time):
                self._listening.add(key)

    def _listen(self, key: str) -> None:
        """Time has passed for one of them."""
        hosted = self.held.get(key)
        held = None if hosted is None else hosted.session.subscriptions.get(NUMBER)
        if hosted is None or held is None:
            return
        try:
            hosted.listen(self._pulses.streams, held[0].feed, self._clock.time)
        except StentorError as error:
            self._fail(hosted, error)
            return
        if hosted.has_work:
            self._working.add(key)

    # -- what they find

    def publish(self) -> None:
        """Publish what was found, and store durable ones: the state of one, or some detections."""
        waiting = deque(self._dirty.take())
        written = 0
        while waiting:
            key = waiting.popleft()
            hosted = self.held.get(key)
            if hosted is None or hosted.is_writing:
                continue
            if self._clock.now < hosted.not_before or not self._is_due(hosted):
                if hosted.memo is not None or hosted.items:
                    self._dirty.add(key)
                continue
            if written >= WRITTEN:
                self._dirty.update(dict.fromkeys((key, *waiting)))
                self._has_more = True
                break
            written += WRITTEN if hosted.memo is not None else len(hosted.items)
            try:
                self._write(hosted)
            except StentorError as error:
                self._fail(hosted, error)

    def _is_due(self, hosted: Hosted) -> bool:
        """Whether it is to be written. The state of a durable one goes with all it has found."""
        if hosted.memo is None:
            return bool(hosted.items)
        if hosted.has_found or not (hosted.in_force and hosted.is_loaded):
            return False  # before that, its state would be an empty one
        if hosted.items or hosted.is_full:
            return True
        return hosted.is_changed and self._clock.now >= hosted.stored_at + KEEP

    def _write(self, hosted: Hosted) -> None:
        items, hosted.items = hosted.items, []
        hosted.is_changed = False
        envelopes: list[Envelope] = decode_headers(items)
        may_publish = hosted.session.may_publish
        for envelope in envelopes:
            if may_publish is not None and not may_publish(envelope):
                raise NotPermitted(
                    f"the grant {hosted.session.owner!r} may not publish what was detected; have "
                    'it widened by "isa composite"'
                )
        self.counters["detected"] += len(items)
        hosted.is_writing = True
        if hosted.memo is None:
            stamped, envelopes, _, later = self._scopes.stamp(hosted.session, items, envelopes, [])
            then = partial(self._written, hosted, items, None)
            self._publishing.publish_own(self._own(), stamped, envelopes, later=later, then=then)
            return
        held = hosted.session.subscriptions.get(NUMBER)
        durable = None if held is None else held[0].durable
        if durable is None or self._durables.is_on_hold(durable.name):
            self._put_back(hosted, items)
            return
        memo = hosted.to_memo()
        positions, ids = dict(hosted.positions), hosted.ids
        hosted.ids = []
        data = durable.to_data(ids=ids, positions=positions, memo=memo)
        self._durables.hold(durable.name)
        then = partial(self._written, hosted, items, (durable.name, positions, memo))
        if items:
            stamped, envelopes, _, later = self._scopes.stamp(hosted.session, items, envelopes, [])
            states = {durable.name: data}
            self._publishing.publish_own(
                self._own(), stamped, envelopes, states=states, later=later, then=then
            )
        else:
            self._agenda.add(Persist(durable.name, data, then))

    def _put_back(self, hosted: Hosted, items: list[bytes]) -> None:
        hosted.items = items + hosted.items
        hosted.is_writing = False
        hosted.is_changed = True
        hosted.not_before = self._clock.now + LOOK
        self._dirty.add(hosted.key)

    def _written(
        self,
        hosted: Hosted,
        items: list[bytes],
        kept: tuple[str, m.Positions, bytes] | None,
        error: StentorError | None,
    ) -> None:
        """It is on disk and routed, or could not be stored; `kept` is what, under which name."""
        held = hosted.session.subscriptions.get(NUMBER)
        durable = None if held is None else held[0].durable
        if error is not None:
            self._session = None
            self._put_back(hosted, items)
            hosted.not_before = self._clock.now + RETRY
        else:
            hosted.is_writing = False
            hosted.not_before = self._clock.now
            hosted.stored_at = self._clock.now
            if hosted.items or hosted.is_changed:
                self._dirty.add(hosted.key)
            if hosted.has_work:
                self._working.add(hosted.key)
            if held is not None and durable is not None and kept is not None:
                _, positions, durable.memo = kept
                held[0].confirm(held[1], positions)
        if kept is not None:  # also if its subscription has ended meanwhile
            self._durables.release(kept[0])

    def _own(self) -> Session:
        if self._session is None or self._session.line.failed:
            line = self._publishing.line(self._producer, self._producer, None)
            self._session = Session(-4, self._producer, self._producer, line)
        return self._session

    # -- ending

    def _subscriber_gone(self, subscription: Subscription) -> None:
        for hosted in list(self.held.values()):
            if subscription.feed.id in hosted.subscribers:
                hosted.subscribers.discard(subscription.feed.id)
                self.end_if_unused(hosted)

    def end_if_unused(self, hosted: Hosted) -> None:
        """A durable one lives as long as the subscription that it works for."""
        is_used = hosted.subscribers or hosted.pending or hosted.tenants
        if hosted.memo is None and not is_used:
            self._drop(hosted)

    def _forgotten(self, name: str) -> None:
        """A durable subscription was deleted, wherever it lived: so is what detects for it."""
        hosted = self.held.get(name + SUFFIX)
        if hosted is not None:
            self._drop(hosted)
        durable = self._durables.held.get(name + SUFFIX)
        if durable is not None and durable.memo:  # perhaps of one that cannot go on
            self._homes.delete(durable)

    def _fail(self, hosted: Hosted, error: StentorError, code: str | None = None) -> None:
        """It cannot go on; all that are subscribed to it hear why."""
        self.counters["detectors_ended"] += 1
        code = code or error.code
        if hosted.memo is not None:
            self.idle[hosted.key] = str(error)
            self._again = self._clock.now + AGAIN
        self._drop(hosted)
        self.dismiss(hosted.pending, hosted.subscribers, code, str(error))
        self.at_fail(hosted, code, str(error))

    def dismiss(
        self,
        pending: Iterable[tuple[Session, m.Subscribe]],
        subscribers: Iterable[str],
        code: str,
        why: str,
    ) -> None:
        """Tell those who wait for it, and those who are subscribed to it, why it has ended."""
        waiting = [(session, message.number) for session, message in pending]
        for id in list(subscribers):
            subscription = self._subscriptions.held.get(id)
            for consumer in [] if subscription is None else list(subscription.consumers):
                waiting.append((self._sessions.held[consumer.session], consumer.number))
        for session, number in waiting:
            if session.id in self._sessions.held:
                self._agenda.to_client(session.id, m.Ended(number, code, why))
                if number in session.subscriptions:
                    self._subscriptions.leave(session, number)

    def _drop(self, hosted: Hosted) -> None:
        if self.held.get(hosted.key) is not hosted:
            return
        del self.held[hosted.key]
        self._agenda.residents.pop(hosted.session.id, None)
        self._sessions.leave(hosted.session.id)
        self._pulses.wanted = any(each.is_guaranteed for each in self.held.values())


def _rules(session: Session) -> OwnerRules:
    return OwnerRules(
        session.may_publish, session.may_subscribe, session.may_advertise, session.allowance
    )


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()
