"""Offers: what clients advertise, and what is asked for of it anywhere.

Where advertisements steer subscriptions, a subscription is known at a producer's broker only after
the advertisement has been there and back. So an advertisement is *in force* when a probe that was
sent after it has been answered: on every link the subscriptions that it calls for come before the
echo. The client hears `Done` then, and what it publishes before waits as long; nobody misses it.

For the same reason an advertisement outlives what was published under it: subscriptions that it
called for go when it does. It is withdrawn when nothing of its producer is on its way to the disk.

Mappings of scopes make of a publication what nobody has advertised. What that may be is not asked,
only where it may arrive: besides what a client advertises, its broker advertises all that is
visible at the places where something of the client may arrive translated. So the subscriptions of
whoever is there are known here, whatever they ask for. When a change of the graph adds such a
place, what clients publish waits until that is in force, as with any other advertisement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from typing import Final

from stentor.errors import NotPermitted, Overloaded, ProtocolError
from stentor.filters import Filter
from stentor.filters.expression import Atom
from stentor.model.codec import decode, decode_header, encode
from stentor.model.stamp import KEYS
from stentor.node.agenda import Agenda
from stentor.node.clock import Clock
from stentor.node.demand import Demands
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.deliveries import Deliveries
from stentor.node.parts.probing import Probing
from stentor.node.parts.publishing import Publishing
from stentor.node.parts.routing import Routing
from stentor.node.pauses import Pauses
from stentor.node.scopes import Scopes, check_names
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.protocol import messages as m
from stentor.routing.protocol import BrokerId, FilterId
from stentor.routing.table import Local

#: The attribute of a request that says where replies are wanted.
REPLY_TO: Final = "reply_to"
#: Pairs of a filter and an offer that are looked at in one step.
PAIRS_AT_ONCE: Final = 1_000
#: Advertisements that are withdrawn in one step.
WITHDRAWN_AT_ONCE: Final = 64


class Offers:
    """Keeps what clients offer and tells them what is asked for of it."""

    def __init__(
        self,
        routing: Routing | Carriage,
        *,
        probing: Probing,
        publishing: Publishing,
        pauses: Pauses,
        deliveries: Deliveries,
        sessions: Sessions,
        clock: Clock,
        agenda: Agenda,
        scopes: Scopes,
        read: Callable[[str], Filter],
        most: int,
    ) -> None:
        """`read` is how the words of clients are read. Each may have `most` advertisements."""
        self._read = read
        self._scopes = scopes
        self._routing = routing
        self._probing = probing
        self._publishing = publishing
        self._pauses = pauses
        self._sessions = sessions
        self._deliveries = deliveries
        self._clock = clock
        self._agenda = agenda
        self.most = most
        self._demands = Demands(routing.interests, at_once=PAIRS_AT_ONCE)
        #: What was withdrawn by producers that have something on its way, and what can go.
        self._outliving: dict[str, list[FilterId]] = {}
        self._going: deque[FilterId] = deque()
        #: By client: the places for which its broker advertises all that is visible there.
        self._translated: dict[int, tuple[FilterId, frozenset[str]]] = {}
        self._numbers = count(1)
        publishing.at_routed(self._routed)
        routing.watch(lambda filter, there: self._demands.entry(filter, there=there))
        sessions.at_leave(lambda session: probing.left(session.id))
        sessions.taken_down_by(self.take_down)

    def is_provided(self, session: Session, data: bytes, root: BrokerId) -> bool:
        """Whether somebody may reply to a request: a provider here, or a neighbor who wants it.

        A provider's filter asks for `reply_to`; others match without it. Where it is not known here
        what is asked for elsewhere, the answer is yes.
        """
        if self._scopes.active:
            return True  # who provides what in which scope is not told
        request = decode_header(data)
        if session.may_publish is not None and not session.may_publish(request):
            raise NotPermitted("what may not be published may not be asked about")
        routing = self._routing
        if not isinstance(routing, Routing) or routing.is_steered or routing.meets:
            return True
        plain = decode(data)
        plain = plain.replace(attributes={n: v for n, v in plain.items() if n != REPLY_TO})
        (_, asked), (_, anyway) = (
            routing.route_leading([each], None, 1, root)
            for each in (request, decode_header(encode(plain)))
        )
        return any(not isinstance(to, Local) or to not in anyway for to in asked)

    def advertise(self, session: Session, message: m.Advertise) -> None:
        if message.number in session.advertisements:
            raise ProtocolError(f"the number {message.number} is in use by another advertisement")
        if len(session.advertisements) >= self.most:
            raise Overloaded(
                f"{session.name!r} has {self.most} advertisements, the most that this broker "
                "allows to one client"
            )
        if self._probing.waiting(session.id) >= self.most:
            raise Overloaded(
                f"{self.most} advertisements of {session.name!r} are not in force yet, the most "
                "that this broker allows to one client; wait until it has answered"
            )
        filter = check_names(self._read(message.filter))
        session.allowance.check_weight(session.name, filter.weight)
        # What others ask for is told only to those who may answer it.
        permitted = session.may_advertise
        if message.demand and permitted is not None and not permitted(filter):
            raise NotPermitted(
                f"{session.name!r} may not publish all of {str(filter) or 'everything'!r}, so it "
                "may not know who asks for that; advertise less, or have the grant widened"
            )
        session.advertisements[message.number] = filter
        self._routing.advertise(_id(session, message.number), filter)
        self.follow(session)
        if self._routing.is_steered and not message.volatile:
            self._pauses.hold(session)
            done = partial(self._in_force, session, message.number)
            self._probing.then(session.id, done, steers=True)
        else:
            self._agenda.to_client(session.id, m.Done(message.number))
        if message.demand and not self._scopes.active:  # else nobody hears what others ask for
            self._demands.watch((session.id, message.number), filter)

    def _in_force(self, session: Session, number: int) -> None:
        self._pauses.release(session)
        self._agenda.to_client(session.id, m.Done(number))

    def unadvertise(self, session: Session, message: m.Unadvertise) -> None:
        if message.number in session.advertisements:
            self._withdraw(session, message.number)
        self._agenda.to_client(session.id, m.Done(message.number))

    def take_down(self, session: Session, most: int) -> bool:
        """Withdraw some of what a client has offered that is gone; whether that was all."""
        for number in list(islice(session.advertisements, most)):
            self._withdraw(session, number)
        if session.advertisements:
            return False
        id, _ = self._translated.pop(session.id, (None, None))
        if id is not None:
            self._outlive(session, id)
        return True

    def _withdraw(self, session: Session, number: int) -> None:
        del session.advertisements[number]
        self._demands.forget((session.id, number))
        self._outlive(session, _id(session, number))
        if not session.advertisements:
            self.follow(session)

    def _outlive(self, session: Session, id: FilterId) -> None:
        """Withdraw an advertisement as soon as nothing that needs it is on its way."""
        if self._publishing.owes(session.producer):
            self._outliving.setdefault(session.producer, []).append(id)
        else:
            self._routing.unadvertise(id)

    # -- what scopes make of it

    def scopes_moved(self) -> Iterator[None]:
        """The scope graph has changed: advertise what it makes of publications now."""
        if not self._routing.is_steered:
            return
        for session in list(self._sessions.held.values()):
            if self.follow(session):
                self._pauses.hold(session)
                release = partial(self._pauses.release, session)
                self._probing.then(session.id, release, steers=True)
            yield

    def follow(self, session: Session) -> bool:
        """Advertise what scopes make of its publications; whether that is more than before."""
        if not self._routing.is_steered:
            return False
        places: frozenset[str] = frozenset()
        if session.advertisements or session.id in self._agenda.residents:
            places = self._scopes.translated_places(session.id)
        known = self._translated.get(session.id)
        before = frozenset() if known is None else known[1]
        if places == before:
            return False
        if places:
            id = FilterId(f"{session.name}@{session.id} translated", next(self._numbers))
            visible = Filter.of_expression(Atom(KEYS, "overlaps", tuple(sorted(places))))
            self._translated[session.id] = id, places
            self._routing.advertise(id, visible)
        else:
            del self._translated[session.id]
        if known is not None:
            self._outlive(session, known[0])
        return not places <= before

    def _routed(self, producer: str) -> None:
        over = self._outliving.pop(producer, None)
        if over:
            self._going.extend(over)
            self._agenda.stir()

    def hush(self) -> None:
        """Tell nobody any longer what is asked for, which is for what has been asked for so far."""
        for offer in self._demands.offers():
            self._demands.forget(offer)

    def unblock(self, session: int) -> None:
        """The client reads again what it is sent."""
        self._demands.unblock(session)

    @property
    def has_work(self) -> bool:
        return self._demands.has_work or bool(self._going)

    def work(self) -> None:
        """Look at some of what is asked for anew, or no longer; withdraw some of what is over."""
        self._demands.work()
        for _ in range(min(WITHDRAWN_AT_ONCE, len(self._going))):
            self._routing.unadvertise(self._going.popleft())

    def tell(self) -> None:
        """Tell producers what has changed for them."""
        if self._demands:
            blocked = self._deliveries.blocked
            for (id, number), filters in self._demands.changes(self._clock.now, blocked):
                self._agenda.to_client(id, m.Demand(number, filters))


def _id(session: Session, number: int) -> FilterId:
    return FilterId(f"{session.name}@{session.id}", number)
