"""Placements: patterns that are detected elsewhere than at the broker of their subscriber.

Who subscribes with a pattern may say by which policy it is to be placed (Table 7.1; how is planned
in `stentor.composite.distribution`). Without a word it is detected whole at the subscriber's own
broker, by `Detectors`; nothing here is looked at then. Otherwise this broker *asks* others to host:

1. *Census.* All brokers that can be reached are asked how many detectors they have, how much enters
   there, and whether one of those is there already that could be used; for `delegation`, which of
   the events are offered there. Each on the way back adds itself to the answer, so the answers tell
   how the network looks from here. Who does not answer within a second is not chosen.
2. *Plan.* The pattern is taken apart, and its parts are put somewhere, by the policy.
3. *Hosting.* Each broker is told what to detect and for how long (`Host`), with the grant and the
   place in scopes of who has subscribed. It checks that by its own grants, as for a client of its
   own, counts it among its own detectors, and answers. What a detector finds is published under
   a producer that follows from the pattern and the grant, not from the place. So whoever needs it,
   a subscriber or the detector of the rest, subscribes to it by content wherever it comes from; and
   if it comes from two places it has the same ids, and counts once.
4. Clients hear that it is in force when all parts are.

Equal detectors of one grant at one broker are one, whoever has asked for them: that is how parts
are shared. Of a detector that depends on parts, the parts belong to who has asked for it; so it is
nobody else's to use.

Life. A host keeps a detector as long as somebody renews it, and `LEASE` longer. A host that says
nothing for `SILENT`, that cannot be reached for `GONE`, or that refuses, is given up: what it had
is put elsewhere after another census. The events that it had consumed and not completed are lost,
so this is for detection by best effort alone. If it was only out of reach, it goes on until its
lease is over, and what both find is found once. If no broker is left, this one included, or the
pattern takes too much wherever it is, those who are subscribed hear why.

Borders. A neighbor whose grant does not allow everything neither asks nor is asked, and nothing of
this is passed on from there or to there: what it may publish and see is said by its content, and
who hosts for others would publish and see by their rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, count, islice, takewhile
from typing import Any, Final

from msgspec.structs import replace

from stentor.composite import Pattern
from stentor.composite.distribution import (
    Placement,
    Situation,
    distribution,
    parts,
    place,
    possible_parts,
    replace_lost,
)
from stentor.errors import (
    DetectorFull,
    InvalidConfiguration,
    InvalidPattern,
    NotPermitted,
    Overloaded,
    StentorError,
)
from stentor.node.agenda import Agenda
from stentor.node.border import Borders
from stentor.node.clock import Clock
from stentor.node.detection import (
    Hosted,
    assignment_of_part,
    detections_of,
    key_of,
    leaves,
    producer_for,
    text_of,
)
from stentor.node.journals import Journals
from stentor.node.parts.detectors import Detectors
from stentor.node.reading import received
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: The policy by which a pattern is detected whole, at its subscriber's broker.
HERE: Final = "minimum_latency"
#: Seconds for which answers to a census are waited for, how many brokers are asked, and how many
#: of them count as sources, where most enters.
PATIENCE: Final = 1.0
ASKED: Final = 128
SOURCES: Final = 8
#: Pairs of a filter and an advertisement that are compared for one answer.
OFFERS: Final = 200
#: Seconds between two words to a host, and for which it hosts after the last one.
EVERY: Final = 5.0
LEASE: Final = 20.0
#: Seconds after which a host is given up: if it says nothing, if it cannot be reached.
SILENT: Final = 16.0
GONE: Final = 2.0
#: Subscribers that may wait for one pattern.
WAITING: Final = 1_000
#: Seconds between two notes of how much enters, and how many are kept.
NOTE: Final = 5.0
NOTES: Final = 6
#: Why it would fail anywhere.
_HOPELESS: Final = (DetectorFull.code, InvalidPattern.code)


@dataclass(eq=False)
class Site:
    """A detector that this broker has asked for, and who hosts it."""

    placement: Placement
    assignment: m.Assignment
    key: str
    #: When it was last heard of, and could last be reached.
    heard: float
    reached: float
    in_force: bool = False

    @property
    def host(self) -> m.StreamId:
        return self.placement.broker


@dataclass(eq=False)
class Census:
    """Answers that are waited for."""

    number: int
    until: float
    #: Those who did not answer; by their keys, the patterns that may be there already.
    asked: set[m.StreamId]
    keys: dict[str, Pattern]
    answers: dict[m.StreamId, m.Counted] = field(default_factory=dict)


@dataclass(eq=False)
class Placed:
    """A pattern that is placed by a policy, for subscribers of this broker."""

    key: str
    policy: str
    assignment: m.Assignment
    pattern: Pattern
    sites: list[Site] = field(default_factory=list)
    #: Detectors that have to be put elsewhere, and brokers that do not want them.
    lost: list[Placement] = field(default_factory=list)
    refused: set[m.StreamId] = field(default_factory=set)
    #: What the last of them has said: a code and its words.
    why: tuple[str, str] = ("", "")
    census: Census | None = None
    in_force: bool = False
    #: Subscriptions to what it finds, and clients that wait until it is in force.
    subscribers: set[str] = field(default_factory=set)
    pending: list[tuple[Session, m.Subscribe]] = field(default_factory=list)


class Placements:
    """Asks other brokers to detect, and detects for them."""

    def __init__(
        self,
        detectors: Detectors,
        *,
        subscriptions: Subscriptions,
        sessions: Sessions,
        directory: Ways,
        borders: Borders,
        journals: Journals,
        clock: Clock,
        agenda: Agenda,
    ) -> None:
        self._detectors = detectors
        self._sessions = sessions
        self._directory = directory
        self._borders = borders
        self._journals = journals
        self._clock = clock
        self._agenda = agenda
        self.held: dict[str, Placed] = {}
        #: What was asked for, by key and host; several patterns may need the same.
        self._sites: dict[tuple[str, m.StreamId], Site] = {}
        self._numbers = count(1)
        #: Patterns for which there is a census, by its number.
        self._counting: dict[int, Placed] = {}
        #: Detectors that others wait for.
        self._beginning: set[str] = set()
        self._notes: list[tuple[float, int]] = []
        self._next_note = self._next_word = self._next_look = clock.now
        self.counters = {"detectors_moved": 0}
        detectors.at_fail = self._failed_here
        subscriptions.at_end(self._subscriber_gone)

    # -- what clients ask

    def subscribe(self, session: Session, message: m.Subscribe) -> Iterator[None] | None:
        """As `Detectors.subscribe`, also of what is to be placed elsewhere."""
        detection = message.detect
        if detection is None or detection.placement == HERE:
            return self._detectors.subscribe(session, message)
        policy = distribution(detection.placement)
        if message.durable is not None or (detection.policy, detection.mode) != (
            "best_effort",
            "standing",
        ):
            raise InvalidConfiguration(
                f"placement={detection.placement!r} is for standing detection by best effort: if a "
                f"host is lost, what it has seen is. Leave out durable, policy and mode, or use "
                f"placement={HERE!r}"
            )
        pattern = self._detectors.check(session, message, detection)
        if sum(1 for _ in parts(pattern)) > m.MAX_PARTS:
            raise InvalidPattern(f"a pattern with a placement is made of {m.MAX_PARTS} at most")
        assignment = self._detectors.assignment(session, m.Detection(text_of(pattern)))
        key = f"{detection.placement} {key_of(assignment)}"
        placed = self.held.get(key)
        if placed is not None and placed.in_force:
            wanted = self._filter(placed)
            return self._detectors.attach(wanted, session, message, placed.subscribers)
        if placed is None:
            owners = [each.assignment.owner for each in self.held.values()]
            self._detectors.check_room(session.owner, session.allowance, owners)
            placed = self.held[key] = Placed(key, detection.placement, assignment, pattern)
            reusable = [pattern, *possible_parts(pattern)] if policy.reuse != "none" else []
            self._count(placed, reusable)
        if len(placed.pending) >= WAITING:
            raise Overloaded(f"{WAITING} wait for this pattern to be in force; try again later")
        placed.pending.append((session, message))
        return None

    def unsubscribe(self, session: Session, message: m.Unsubscribe) -> None:
        """As `Detectors.unsubscribe`, also of one that is not in force yet."""
        for placed in list(self.held.values()):
            placed.pending = [
                each
                for each in placed.pending
                if each[0] is not session or each[1].number != message.number
            ]
            self._end_if_unused(placed)
        self._detectors.unsubscribe(session, message)

    def _filter(self, placed: Placed) -> Any:
        return detections_of(placed.pattern, producer_for(placed.assignment))

    # -- where to put it

    def _count(self, placed: Placed, reusable: Iterable[Pattern]) -> None:
        """Find out what there is."""
        filters: list[str] = []
        if distribution(placed.policy).locality == "provider":
            filters = [str(each) for each in leaves(placed.pattern)]
        keys: dict[str, Pattern] = {}
        for each in reusable:
            found = assignment_of_part(placed.assignment, text_of(each))
            keys[key_of(found)] = each
            if len(keys) == m.MAX_KEYS:
                break
        own, number = self._journals.stream, next(self._numbers)
        census = Census(number, self._clock.now + PATIENCE, set(), keys)
        placed.census = census
        self._counting[number] = placed
        for origin in self._directory.others[:ASKED]:
            if origin.stream not in placed.refused and self._towards(
                origin.stream, m.Census(origin.stream, own, number, list(keys), filters)
            ):
                census.asked.add(origin.stream)
        census.answers[own] = self._counted(m.Census(own, own, number, list(keys), filters))

    def counted_heard(self, neighbor: str, message: m.Counted) -> None:
        """A broker has answered, here or to somebody else."""
        if not self._is_passable(neighbor):
            return
        if message.stream != self._journals.stream:
            name = self._directory.own.broker
            if len(message.way) < m.MAX_WAY and name not in message.way:
                self._towards(message.stream, replace(message, way=[*message.way, name]))
            return
        placed = self._counting.get(message.number)
        if placed is not None and placed.census is not None:
            census = placed.census
            if message.host in census.asked:
                census.asked.discard(message.host)
                census.answers[message.host] = message

    def _decide(self, placed: Placed, census: Census) -> None:
        """All have answered, or long enough was waited for it."""
        placed.census = None
        known = self._situation(placed, census)
        own = self._journals.stream
        if placed.sites or placed.lost:
            lost, placed.lost = placed.lost, []
            kept = [site.placement for site in placed.sites]
            found = replace_lost(lost, kept, own, placed.policy, known)
            self.counters["detectors_moved"] += len(found)
            left = {each.whole.type for each in (*kept, *found)}
            if any(each.whole.type not in left for each in lost):
                self._fail(placed, *placed.why)
                return
        else:
            found = place(placed.pattern, own, placed.policy, known)
        for each in found:
            if self.held.get(placed.key) is placed:  # it may have failed here
                self._put(placed, each)
        self._look(placed)

    def _situation(self, placed: Placed, census: Census) -> Situation:
        answers = census.answers
        ways = {host: tuple(reversed(each.way)) for host, each in answers.items()}

        @cache
        def hops(one: str, other: str) -> int:
            if one not in ways or other not in ways:
                return len(ways.get(one, ())) + len(ways.get(other, ()))
            pairs = zip(ways[one], ways[other], strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            return len(ways[one]) + len(ways[other]) - 2 * shared

        there: dict[str, tuple[str, ...]] = {}
        for key, pattern in census.keys.items():
            there[pattern.type] = tuple(h for h, each in answers.items() if key in each.keys)
        offers = {
            filter: frozenset(h for h, each in answers.items() if place in each.offered)
            for place, filter in enumerate(leaves(placed.pattern))
        }
        rates = sorted((each.rate, host) for host, each in answers.items() if each.rate > 0)
        entering = {host: rate for rate, host in rates[-SOURCES:]}
        return Situation(
            {h: float(each.detectors) for h, each in answers.items() if h not in placed.refused},
            hops,
            {str(filter): entering for filter in leaves(placed.pattern)},
            there,
            offers,
        )

    def _put(self, placed: Placed, placement: Placement) -> None:
        """Have it detected there."""
        assignment = placed.assignment
        if placement.whole != placed.pattern:
            assignment = assignment_of_part(assignment, text_of(placement.whole))
        assignment = replace(assignment, parts=[text_of(part) for part in placement.parts])
        key = key_of(assignment)
        site = self._sites.get((key, placement.broker))
        if site is None:
            now = self._clock.now
            site = Site(placement, assignment, key, now, now)
            self._sites[key, placement.broker] = site
        placed.sites.append(site)
        if not site.in_force:
            self._ask(site)

    def _ask(self, site: Site, lease: float = LEASE) -> None:
        """Tell the host."""
        own = self._journals.stream
        message = m.Host(site.host, own, site.assignment, lease)
        if site.host == own:
            self._host(message)
        else:
            self._towards(site.host, message)

    # -- what hosts say

    def hosting_heard(self, neighbor: str, message: m.Hosting) -> None:
        """A broker says what became of something, here or to somebody else."""
        if not self._is_passable(neighbor):
            return
        if message.stream != self._journals.stream:
            self._towards(message.stream, message)
        else:
            self._heard(message)

    def _heard(self, message: m.Hosting) -> None:
        site = self._sites.get((message.key, message.host))
        if site is None:
            return
        if message.code is not None:
            self._lose(site, message.code, message.message)
            return
        site.heard = self._clock.now
        if message.in_force and not site.in_force:
            site.in_force = True
            for placed in list(self.held.values()):
                self._look(placed)

    def _look(self, placed: Placed) -> None:
        """If all of it is in force, those have it who have waited for that."""
        is_whole = bool(placed.sites) and not placed.lost and placed.census is None
        if not is_whole or not all(site.in_force for site in placed.sites):
            return
        placed.in_force = True
        placed.refused.clear()
        pending, placed.pending = placed.pending, []
        self._detectors.admit(pending, self._filter(placed), placed.subscribers)
        self._end_if_unused(placed)

    def _lose(self, site: Site, code: str | None = None, why: str = "") -> None:
        """It is not there, or no longer."""
        del self._sites[site.key, site.host]
        is_ours = site.host == self._journals.stream
        is_hopeless = code in _HOPELESS or (is_ours and code == NotPermitted.code)
        for placed in list(self.held.values()):
            if site not in placed.sites:
                continue
            placed.sites.remove(site)
            if code is not None:
                placed.why = code, why
            if is_hopeless:
                self._fail(placed, *placed.why)
                continue
            placed.lost.append(site.placement)
            placed.refused.add(site.host)
            if placed.census is None:
                self._count(placed, ())

    # -- hosting

    def census_heard(self, neighbor: str, message: m.Census) -> None:
        """A broker asks what there is, here or elsewhere."""
        if not self._is_passable(neighbor):
            return
        own = self._journals.stream
        if message.stream != own:
            self._towards(message.stream, message)
        else:
            self._towards(message.origin, self._counted(message))

    def _counted(self, message: m.Census) -> m.Counted:
        held, own, origin = self._detectors.held, self._journals.stream, message.origin
        there = [key for key in message.keys if key in held and held[key].in_force]
        way = [] if origin == own else [self._directory.own.broker]
        offered = self._offered(message.filters)
        return m.Counted(origin, message.number, own, len(held), self._rate(), there, way, offered)

    def _offered(self, filters: list[str]) -> list[int]:
        """The places of those that overlap what a client here advertises.

        Where that takes too long to find out, it is said of all: then nothing is delegated, which
        is never wrong.
        """
        sessions = self._sessions.held.values()
        offers = chain.from_iterable(each.advertisements.values() for each in sessions)
        some = list(islice(offers, OFFERS + 1))
        if len(some) * len(filters) > OFFERS:
            return list(range(len(filters)))
        return [n for n, each in enumerate(filters) if any(map(received(each).overlaps, some))]

    def _rate(self) -> float:
        """Notifications in a second that enter here."""
        if not self._notes:
            return 0.0
        then, head = self._notes[0]
        return (self._journals.head - head) / max(1.0, self._clock.now - then)

    def host_heard(self, neighbor: str, message: m.Host) -> None:
        """A broker asks for something to be detected, here or elsewhere."""
        if not self._is_passable(neighbor):
            return
        if message.stream != self._journals.stream:
            self._towards(message.stream, message)
        elif self._directory.origin(message.origin) is not None:
            self._host(message)

    def _host(self, message: m.Host) -> None:
        key, origin, own = key_of(message.assignment), message.origin, self._journals.stream
        if not message.lease > 0:
            hosted = self._detectors.held.get(key)
            if hosted is not None and hosted.tenants.pop(origin, None) is not None:
                self._detectors.end_if_unused(hosted)
            return
        until = self._clock.now + min(message.lease, LEASE)
        try:
            hosted = self._detectors.host(message.assignment, origin, until)
        except StentorError as error:
            refusal = m.Hosting(origin, own, key, False, error.code, str(error))
            self._answer(origin, refusal)
            return
        if not hosted.in_force:
            self._beginning.add(key)
        self._answer(origin, m.Hosting(origin, own, key, hosted.in_force))

    def _failed_here(self, hosted: Hosted, code: str, why: str) -> None:
        """A detector here cannot go on; those hear of it for whom it worked."""
        for origin in hosted.tenants:
            failure = m.Hosting(origin, self._journals.stream, hosted.key, False, code, why)
            self._answer(origin, failure)

    def _answer(self, origin: m.StreamId, message: m.Hosting) -> None:
        if origin == self._journals.stream:
            self._heard(message)
        else:
            self._towards(origin, message)

    def tell(self) -> None:
        """Tell others of detectors here that are now in force, and decide where others go."""
        if not self._beginning and not self._counting:
            return
        for key in list(self._beginning):
            hosted = self._detectors.held.get(key)
            if hosted is None or hosted.in_force:
                self._beginning.discard(key)
            for origin in [] if hosted is None or not hosted.in_force else list(hosted.tenants):
                self._answer(origin, m.Hosting(origin, self._journals.stream, key, True))
        for number, placed in list(self._counting.items()):
            census = placed.census
            if census is None or self.held.get(placed.key) is not placed:
                del self._counting[number]
            elif not census.asked or self._clock.now >= census.until:
                del self._counting[number]
                self._decide(placed, census)

    # -- time

    def tick(self) -> None:
        """Renew what others host, and end what nobody renews."""
        now = self._clock.now
        if now >= self._next_note:
            self._next_note = now + NOTE
            self._notes = [*self._notes[1 - NOTES :], (now, self._journals.head)]
        if now < self._next_look:
            return
        self._next_look = now + PATIENCE
        for hosted in list(self._detectors.held.values()):
            if any(until <= now for until in hosted.tenants.values()):
                hosted.tenants = {o: until for o, until in hosted.tenants.items() if until > now}
                self._detectors.end_if_unused(hosted)
        for placed in list(self.held.values()):
            held = self._sessions.held
            placed.pending = [each for each in placed.pending if each[0].id in held]
            self._end_if_unused(placed)
        own = self._journals.stream
        is_time = now >= self._next_word
        if is_time:
            self._next_word = now + EVERY
        for site in list(self._sites.values()):
            if site.host == own or self._directory.reaches(site.host):
                site.reached = now
            is_lost = now - site.reached >= GONE or now - site.heard >= SILENT
            if is_lost and site.host != own:
                self._lose(site)
            elif is_time and self._sites.get((site.key, site.host)) is site:
                self._ask(site)

    # -- ending

    def _subscriber_gone(self, subscription: Subscription) -> None:
        for placed in list(self.held.values()):
            if subscription.feed.id in placed.subscribers:
                placed.subscribers.discard(subscription.feed.id)
                self._end_if_unused(placed)

    def _end_if_unused(self, placed: Placed) -> None:
        if not placed.subscribers and not placed.pending:
            self._end(placed)

    def _end(self, placed: Placed) -> None:
        """Nobody here needs it, nor those of its parts that nothing else here needs."""
        if self.held.pop(placed.key, None) is None:
            return
        needed = {id(site) for each in self.held.values() for site in each.sites}
        for site in placed.sites:
            if id(site) not in needed and self._sites.pop((site.key, site.host), None) is site:
                self._ask(site, lease=0.0)

    def _fail(self, placed: Placed, code: str, why: str) -> None:
        """It cannot be detected anywhere."""
        self._end(placed)
        self._detectors.dismiss(placed.pending, placed.subscribers, code, why)

    # -- the way to others

    def _is_passable(self, neighbor: str) -> bool:
        return self._borders.with_(neighbor) is None

    def _towards(self, stream: m.StreamId, message: Any) -> bool:
        neighbor = self._directory.relay(stream)
        if neighbor is None or not self._is_passable(neighbor):
            return False
        self._agenda.to_link(neighbor, message)
        return True

    # -- for operators

    def status(self) -> list[dict[str, Any]]:
        """What was placed for subscribers of this broker, and where its parts are."""
        return [
            {
                "pattern": str(placed.pattern),
                "type": placed.pattern.type,
                "placement": placed.policy,
                "grant": placed.assignment.owner,
                "subscribers": len(placed.subscribers),
                "in_force": placed.in_force,
                "parts": [
                    {
                        "pattern": str(site.placement.pattern),
                        "broker": self._name(site.host),
                        "in_force": site.in_force,
                    }
                    for site in placed.sites
                ],
            }
            for placed in self.held.values()
        ]

    def _name(self, stream: m.StreamId) -> str:
        origin = self._directory.origin(stream)
        return stream if origin is None else origin.broker
