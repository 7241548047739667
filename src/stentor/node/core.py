"""`Core`: everything a broker decides, without input or output, made of parts.

A host feeds it what happens (a client says something, a neighbor says something, a link comes or
goes, the journal has committed, time has passed) and then calls `take`, which returns what is to be
done. The core itself decides nothing. It puts the parts together, and says in two tables which part
hears which message.

    part           owns                                               file in `parts`
    routing        the router: which filters go where                 routing.py
    traffic        notifications on their way                         traffic.py
    deliveries     what consumers are given, and whom they hold up    deliveries.py
    publishing     what publishers send, until it is routed           publishing.py
    subscribing    what subscribers ask                               subscribing.py
    durables       what is kept of durable subscriptions              durables.py
    homes          where durable subscriptions live                   homes.py
    wanted         what journals have to keep for them                wanted.py
    settlements    what becomes of single notifications; dead letters settlements.py
    scheduling     what is delivered later                            scheduling.py
    transactions   what consumers publish and settle as one step      transactions.py
    leases         subscriptions that end by themselves               leases.py
    groups         which groups live where                            groups.py
    offers         advertisements, and demand for what is offered     offers.py
    overlay        links, which brokers there are, marks              overlay.py
    probing        when subscriptions are in force                    probing.py
    catching_up    reading journals for feeds                         catching_up.py
    last_values    last values for new subscribers                    last_values.py
    bulk_reads     reading journals for clients                       bulk_reads.py
    meetings       who has to do with whom, on a rendezvous overlay  meetings.py
    carriage       in place of routing, traffic and overlay, for      carriage.py
                   routers that carry notifications themselves
    progress       how far streams have come                          progress.py
    scoping        the scope graph: changes, and what follows of them scoping.py
    detectors      composite events, found here                       detectors.py
    scope_holds    what scopes hold back until something is said     scope_holds.py
    scope_updates  rules by which scopes change themselves            scope_updates.py
    rosters        members among whom policies of scopes choose       rosters.py
    placements     composite events that are found elsewhere          placements.py
    pulses         how far streams are by which time, for detectors   pulses.py
    inquiries      why somebody has a notification, or has not        inquiries.py

Publications that pass through concern few of them. All parts are asked what they have to do when
something has stirred them (`agenda`), which is whatever else the core is told.

What several parts look at is given to each in its constructor: the `sessions` of clients, the
`subscriptions`, the `journals`, the `directory` of brokers, the `borders` with neighbors, the
`clock`, the `agenda` of what is to be done, and two queues of subscriptions: those that are `ready`
to deliver and those that are `hungry` for what is in journals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from stentor.errors import ProtocolError, StentorError
from stentor.filters import Filter
from stentor.node.agenda import Action, Agenda
from stentor.node.allowance import UNLIMITED, Allowance, Shares
from stentor.node.assurance import Assurance
from stentor.node.border import Borders, Rights
from stentor.node.bounds import Bounds
from stentor.node.checks import (
    Advertised,
    Check,
    Identity,
    Permission,
    Repetition,
    Timely,
    Unstamped,
    Waitable,
)
from stentor.node.clock import Clock
from stentor.node.durable import Durable
from stentor.node.graph_directory import GraphDirectory
from stentor.node.holdings import Holdings
from stentor.node.hooks import Hooks
from stentor.node.journals import Journals
from stentor.node.latencies import Latencies
from stentor.node.log import Log
from stentor.node.marks import Marks
from stentor.node.parts.bulk_reads import BulkReads
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.catching_up import CatchingUp
from stentor.node.parts.deliveries import Deliveries
from stentor.node.parts.detectors import Detectors
from stentor.node.parts.durables import Durables, Hear
from stentor.node.parts.groups import Groups
from stentor.node.parts.homes import Homes
from stentor.node.parts.inquiries import Inquiries
from stentor.node.parts.last_values import LastValues
from stentor.node.parts.leases import Leases
from stentor.node.parts.meetings import Meetings
from stentor.node.parts.offers import Offers
from stentor.node.parts.overlay import Overlay
from stentor.node.parts.placements import Placements
from stentor.node.parts.probing import Probing
from stentor.node.parts.progress import Progress
from stentor.node.parts.publishing import Publishing
from stentor.node.parts.pulses import Pulses
from stentor.node.parts.rosters import Rosters
from stentor.node.parts.routing import Routing
from stentor.node.parts.scheduling import Scheduling
from stentor.node.parts.scope_holds import ScopeHolds
from stentor.node.parts.scope_updates import ScopeUpdates
from stentor.node.parts.scoping import Scoping
from stentor.node.parts.settlements import Settlements
from stentor.node.parts.subscribing import Subscribing
from stentor.node.parts.traffic import Traffic
from stentor.node.parts.transactions import Transactions
from stentor.node.parts.wanted import STORED, WantedHistory
from stentor.node.pauses import Pauses
from stentor.node.portions import portions
from stentor.node.reading import Fetches
from stentor.node.rendezvous_directory import RendezvousDirectory
from stentor.node.schedule import Schedule, Scheduled
from stentor.node.scopes import Scopes
from stentor.node.session import AdvertiseRule, PublishRule, Session, SubscribeRule
from stentor.node.sessions import Sessions
from stentor.node.stock import Stock
from stentor.node.streams import Directory
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.trail import Trail
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.node.wording import Wording
from stentor.node.words import Words
from stentor.protocol import messages as m
from stentor.routing import tree_router
from stentor.routing.graph import GraphRouter
from stentor.routing.protocol import BrokerId, LiveRouter, Place, Router
from stentor.routing.rendezvous import RendezvousRouter
from stentor.routing.tree import TreeRouter

#: Filters that are announced or hidden in one step because another one has gone or come.
FILTERS_AT_ONCE: Final = 32


class Core:
    """The decisions of one broker."""

    def __init__(
        self,
        name: str,
        log: Log,
        *,
        router: Router | LiveRouter | None = None,
        ids: Mapping[str, BrokerId] | None = None,
        addresses: Iterable[str] = (),
        enforce_advertisements: bool = False,
        bounds: Bounds = Bounds(),  # noqa: B008, it cannot be changed
        hooks: Hooks | None = None,
        wording: Wording | None = None,
        latencies: Latencies | None = None,
        now: float = 0.0,
        clock: float = 0.0,
        draw: Callable[[], int] | None = None,
    ) -> None:
        """`now` is a clock that only goes forward; `clock` is seconds since 1970.

        The router is one that brokers run, or a `Router` that carries notifications by itself.
        `ids` is by what it knows neighbors, where that is not their names, and `wording` how it is
        told of filters and tells them. `draw` gives the numbers of requests, which otherwise nobody
        can foresee.
        """
        self.name = name
        self.hooks = hooks = hooks or Hooks()
        self.clock = time = Clock(now, clock)
        self.latencies = latencies = latencies or Latencies()
        self.agenda = agenda = Agenda()
        self.borders = borders = Borders()
        self.journals = journals = Journals(log)
        router = router or _router(name)
        own = m.Origin(log.stream, name, tuple(addresses))
        self.directory = directory = _ways(own, router)
        self._ready = ready = Turns[str]()
        hungry = Turns[str]()
        self._sessions = sessions = Sessions()
        self._subscriptions = subscriptions = Subscriptions(ready)
        self._marks = marks = Marks()
        self.scopes = scopes = Scopes(sessions, time)
        scopes.entry.stream = log.stream
        trail = Trail(time)
        subscriptions.at_end(trail.ended)
        meets = isinstance(router, RendezvousRouter)
        holdings = Holdings(journals) if meets else None
        stock = Stock() if meets else None
        assurance = Assurance(directory, marks)
        wording = wording or Wording()
        fetches = Fetches(draw)
        routing: Routing | Carriage
        self.traffic: Traffic | Carriage
        self._from_neighbors: dict[type, Any] = {}
        self.carriage: Carriage | None = None
        if isinstance(router, Router):
            self.carriage = self.traffic = routing = Carriage(
                router,
                ids=ids or {},
                subscriptions=subscriptions,
                sessions=sessions,
                ready=ready,
                agenda=agenda,
            )
        else:
            routing = Routing(
                router,
                subscriptions=subscriptions,
                borders=borders,
                hooks=hooks,
                agenda=agenda,
                assurance=assurance,
                ids=ids or {},
                wording=wording,
                holdings=holdings,
            )
            self.traffic = traffic = Traffic(
                routing,
                directory=directory,
                marks=marks,
                subscriptions=subscriptions,
                ready=ready,
                borders=borders,
                hooks=hooks,
                agenda=agenda,
                latencies=latencies,
                scopes=scopes,
            )
            self._from_neighbors = {
                m.Subscriptions: routing.filters_heard,
                m.Advertisements: routing.filters_heard,
                m.Forward: traffic.forward_heard,
            }
        self.routing = routing
        schedule = Schedule(bounds.scheduled, bounds.scheduled_bytes, bounds.owners)
        self._schedule = schedule
        self._pauses = pauses = Pauses(sessions, time)
        checks: list[Check] = [
            Identity(time),
            Unstamped(),
            Repetition(),
            Permission(),
            Timely(schedule, time),
            Waitable(schedule, scopes),
        ]
        if enforce_advertisements:
            checks.append(Advertised())
        self.publishing = Publishing(
            self.traffic,
            checks=checks,
            schedule=schedule,
            pauses=pauses,
            journals=journals,
            sessions=sessions,
            clock=time,
            agenda=agenda,
            trail=trail,
            scopes=scopes,
            window=bounds.window,
        )
        self.scheduling = Scheduling(
            schedule,
            publishing=self.publishing,
            routing=routing,
            journals=journals,
            scopes=scopes,
            clock=time,
        )
        self.deliveries = Deliveries(
            subscriptions,
            sessions=sessions,
            ready=ready,
            hungry=hungry,
            hooks=hooks,
            clock=time,
            agenda=agenda,
            trail=trail,
            scopes=scopes,
            latencies=latencies,
            patience=bounds.block,
        )
        self._durables = durables = Durables(
            subscriptions,
            sessions=sessions,
            agenda=agenda,
            shares=Shares(bounds.durables, bounds.owners),
        )
        self.settlements = Settlements(
            subscriptions,
            durables=durables,
            publishing=self.publishing,
            routing=routing,
            journals=journals,
            hooks=hooks,
            ready=ready,
            clock=time,
            agenda=agenda,
            scopes=scopes,
        )
        self.transactions = Transactions(
            subscriptions,
            durables=durables,
            publishing=self.publishing,
            settlements=self.settlements,
            journals=journals,
            sessions=sessions,
            clock=time,
            agenda=agenda,
            scopes=scopes,
        )
        self.leases = Leases(subscriptions, sessions=sessions, clock=time, agenda=agenda)
        self.groups = Groups(
            subscriptions,
            sessions=sessions,
            journals=journals,
            directory=directory,
            routing=routing,
            borders=borders,
            assurance=assurance,
            clock=time,
            agenda=agenda,
            shares=Shares(bounds.groups, bounds.owners),
        )
        self.homes = Homes(
            subscriptions,
            durables=durables,
            sessions=sessions,
            journals=journals,
            directory=directory,
            marks=marks,
            routing=routing,
            borders=borders,
            assurance=assurance,
            clock=time,
            agenda=agenda,
        )
        self.wanted = WantedHistory(
            durables,
            homes=self.homes,
            journals=journals,
            directory=directory,
            borders=borders,
            clock=time,
            agenda=agenda,
        )
        self.last_values = LastValues(
            subscriptions,
            journals=journals,
            directory=directory,
            fetches=fetches,
            ready=ready,
            clock=time,
            agenda=agenda,
            scopes=scopes,
        )
        self.catching_up = CatchingUp(
            subscriptions,
            journals=journals,
            directory=directory,
            durables=durables,
            last_values=self.last_values,
            fetches=fetches,
            ready=ready,
            hungry=hungry,
            borders=borders,
            hooks=hooks,
            clock=time,
            agenda=agenda,
            scopes=scopes,
        )
        self.bulk_reads = BulkReads(
            name, journals=journals, sessions=sessions, agenda=agenda, scopes=scopes
        )
        self.progress = Progress(
            subscriptions, journals=journals, marks=marks, clock=time, agenda=agenda
        )
        self.probing = Probing(
            subscriptions,
            routing=routing,
            directory=directory,
            journals=journals,
            durables=durables,
            last_values=self.last_values,
            marks=marks,
            progress=self.progress,
            catching_up=self.catching_up,
            assurance=assurance,
            ready=ready,
            hungry=hungry,
            clock=time,
            agenda=agenda,
        )
        self._offers = Offers(
            routing,
            probing=self.probing,
            publishing=self.publishing,
            pauses=pauses,
            deliveries=self.deliveries,
            sessions=sessions,
            clock=time,
            agenda=agenda,
            scopes=scopes,
            read=wording.received,
            most=bounds.subscriptions,
        )
        self.rosters = Rosters(
            scopes,
            sessions=sessions,
            subscriptions=subscriptions,
            probing=self.probing,
            pauses=pauses,
            journals=journals,
            directory=directory,
            routing=routing,
            borders=borders,
            assurance=assurance,
            clock=time,
            agenda=agenda,
        )
        self.overlay = Overlay(
            directory,
            journals=journals,
            marks=marks,
            routing=routing,
            probing=self.probing,
            catching_up=self.catching_up,
            groups=self.groups,
            homes=self.homes,
            rosters=self.rosters,
            subscriptions=subscriptions,
            borders=borders,
            assurance=assurance,
            hungry=hungry,
            clock=time,
            agenda=agenda,
            stock=stock,
        )
        self.subscribing = Subscribing(
            subscriptions,
            sessions=sessions,
            durables=durables,
            homes=self.homes,
            groups=self.groups,
            leases=self.leases,
            settlements=self.settlements,
            probing=self.probing,
            routing=routing,
            journals=journals,
            directory=directory,
            ready=ready,
            hungry=hungry,
            clock=time,
            agenda=agenda,
            scopes=scopes,
            read=wording.received,
            most=bounds.subscriptions,
            queue=bounds.queue,
        )
        self.pulses = Pulses(directory, journals=journals, clock=time, agenda=agenda)
        self.detectors = Detectors(
            self.subscribing,
            subscriptions=subscriptions,
            sessions=sessions,
            durables=durables,
            homes=self.homes,
            offers=self._offers,
            publishing=self.publishing,
            routing=routing,
            journals=journals,
            pulses=self.pulses,
            clock=time,
            agenda=agenda,
            scopes=scopes,
            shares=Shares(bounds.detectors, bounds.owners),
        )
        self.placements = Placements(
            self.detectors,
            subscriptions=subscriptions,
            sessions=sessions,
            directory=directory,
            borders=borders,
            journals=journals,
            clock=time,
            agenda=agenda,
        )
        first, second = (
            Words(
                number,
                scopes,
                subscribing=self.subscribing,
                publishing=self.publishing,
                sessions=sessions,
                journals=journals,
                agenda=agenda,
            )
            for number in range(2)
        )
        self.scope_holds = ScopeHolds(scopes, schedule, words=first, journals=journals, clock=time)
        self.scope_updates = ScopeUpdates(
            scopes, words=second, journals=journals, directory=directory
        )
        self.scoping = Scoping(
            scopes,
            holds=self.scope_holds,
            updates=self.scope_updates,
            rosters=self.rosters,
            assurance=assurance,
            subscriptions=subscriptions,
            sessions=sessions,
            journals=journals,
            directory=directory,
            routing=routing,
            probing=self.probing,
            catching_up=self.catching_up,
            offers=self._offers,
            hungry=hungry,
            clock=time,
            agenda=agenda,
        )
        self.inquiries = Inquiries(
            trail,
            subscriptions=subscriptions,
            sessions=sessions,
            durables=durables,
            journals=journals,
            schedule=schedule,
            directory=directory,
            routing=routing,
            borders=borders,
            clock=time,
            scopes=scopes,
        )
        #: Those who have something to do that can wait; the next comes first.
        self._working: deque[Any] = deque(
            (
                sessions,
                self.traffic,
                self.publishing,
                routing,
                self.overlay,
                self.probing,
                self._offers,
                self.catching_up,
                self.last_values,
                self.bulk_reads,
                self.wanted,
                self.settlements,
                self.scoping,
                self.scope_updates,
                self.detectors,
                durables,
            )
        )
        self._from_clients: dict[type, Any] = {
            m.Publish: self.publishing.publish,
            m.Subscribe: self.placements.subscribe,
            m.Unsubscribe: self.placements.unsubscribe,
            m.Renew: self.subscribing.renew,
            m.Credit: self.subscribing.credit,
            m.Confirm: self.subscribing.confirm,
            m.Settle: self.settlements.settle,
            m.Commit: self.transactions.commit,
            m.Amend: self.subscribing.amend,
            m.Advertise: self._offers.advertise,
            m.Unadvertise: self._offers.unadvertise,
            m.Read: self.bulk_reads.read_asked,
        }
        self._from_neighbors |= {
            m.Streams: self.overlay.streams_heard,
            m.Mark: self.overlay.mark_heard,
            m.Pulse: self.pulses.pulse_heard,
            m.Wanted: self.wanted.wanted_heard,
            m.Census: self.placements.census_heard,
            m.Counted: self.placements.counted_heard,
            m.Host: self.placements.host_heard,
            m.Hosting: self.placements.hosting_heard,
            m.Probe: self.probing.probe_heard,
            m.Echo: self.probing.echo_heard,
            m.Fetch: self.catching_up.fetch_heard,
            m.Chunk: self.catching_up.chunk_heard,
            m.Groups: self.groups.groups_heard,
            m.Homes: self.homes.homes_heard,
            m.Copy: self.homes.copy_heard,
            m.Seek: self.homes.seek_heard,
            m.Claim: self.homes.claim_heard,
            m.Kept: self.homes.kept_heard,
            m.Links: self.overlay.links_heard,
            m.Scopes: self.scoping.scopes_heard,
            m.Roster: self.rosters.roster_heard,
        }
        self.meetings: Meetings | None = None
        if isinstance(router, RendezvousRouter) and isinstance(routing, Routing):
            assert holdings is not None
            assert stock is not None
            self.meetings = meetings = Meetings(
                router,
                holdings,
                stock,
                routing=routing,
                overlay=self.overlay,
                directory=directory,
                groups=self.groups,
                agenda=agenda,
            )
            self._working.append(meetings)
            self.publishing.at_let_in(meetings.note)
            self._from_neighbors |= {
                m.Types: meetings.types_heard,
                m.Watch: routing.watch_heard,
                m.Sources: routing.sources_heard,
            }

    # -- what is to be done

    def take(self) -> list[Action]:
        """What is to be done now."""
        agenda = self.agenda
        if not self.traffic.has_work:
            self.publishing.route_some()
        if not agenda.at_rest:
            agenda.ask()
            self._tell()
        self.deliveries.deliver()
        if not self.deliveries.congested:
            self.publishing.answer()
        if not agenda.at_rest:
            self._publish()
        return agenda.take()

    def _tell(self) -> None:
        """What others have to hear of before they are given anything."""
        self.routing.withdraw()
        self.groups.tell()
        self.homes.tell()
        self.rosters.tell()
        if self.meetings is not None:
            self.meetings.tell()
        if not self.scoping.is_moving:  # neighbors hear of a change before they are asked
            self.probing.begin()

    def _publish(self) -> None:
        """What parts publish or store on their own account, once all is delivered."""
        self.settlements.publish()
        self.scope_holds.look()
        self.scope_updates.look()
        self.scheduling.look()
        self.transactions.publish()
        self.placements.tell()
        self.detectors.publish()
        self._durables.settle()
        self._offers.tell()

    @property
    def has_work(self) -> bool:
        """Whether `work` has something to do at once."""
        agenda = self.agenda
        if agenda.at_rest:
            return self.traffic.has_work or self.publishing.has_work
        for part in self._working:
            if part.has_work:
                return True
        agenda.idle()
        return False

    @property
    def wants_turn(self) -> bool:
        """Whether the host should come back at once, to `work` or to `take`."""
        return bool(self._ready) or self.has_work

    def work(self) -> None:
        """Do one piece of something that can wait; the parts take turns."""
        if self.agenda.at_rest:
            (self.traffic if self.traffic.has_work else self.publishing).work()
            return
        self.stir()
        working = self._working
        for _ in range(len(working)):
            part = working[0]
            working.rotate(-1)
            if part.has_work:
                part.work()
                return

    def stir(self) -> None:
        """Something was done with one of the parts; see what follows of it."""
        self.agenda.stir()

    def tick(self, now: float, clock: float) -> None:
        """Time has passed: `now` only goes forward, `clock` is seconds since 1970."""
        self.stir()
        self.clock.now, self.clock.time = now, clock
        self.probing.tick()
        self.catching_up.tick()
        self.leases.tick()
        self.deliveries.tick()
        self._pauses.tick()
        self.settlements.tick()
        self.last_values.tick()
        self.overlay.tick()
        self._durables.tick()
        self.homes.tick()
        self.wanted.tick()
        self.progress.tick()
        self.pulses.tick()
        self.detectors.tick()
        self.placements.tick()

    def rebound(self, bounds: Bounds) -> None:
        """From now on these bounds hold, also for clients that are connected."""
        self.stir()
        owners = bounds.owners
        self._schedule.resize(bounds.scheduled, bounds.scheduled_bytes, owners)
        self._durables.shares.resize(bounds.durables, owners)
        self.groups.shares.resize(bounds.groups, owners)
        self.detectors.shares.resize(bounds.detectors, owners)
        self._offers.most = bounds.subscriptions
        self.subscribing.rebound(bounds.subscriptions, bounds.queue)
        self.publishing.rebound(bounds.window)
        self._pauses.rebound()
        self.deliveries.patience = bounds.block

    # -- clients

    def join(
        self,
        id: int,
        name: str,
        *,
        producer: str | None = None,
        newest: tuple[int, int] | None = None,
        may_publish: PublishRule | None = None,
        may_subscribe: SubscribeRule | None = None,
        may_advertise: AdvertiseRule | None = None,
        owner: str | None = None,
        allowance: Allowance = UNLIMITED,
        component: str | None = None,
        attributes: dict[str, Any] | None = None,
        audits: bool = False,
    ) -> Session:
        """A client has connected; `newest` is what the journal holds of it as a producer.

        Its name is what it says. What it publishes is told from that of others by `producer`. To
        scopes it is the `component` of that name, if not its own, with these attributes; `audits`
        if it reads journals whatever scopes say.
        """
        self.stir()
        producer = name if producer is None else producer
        line = self.publishing.line(producer, name, newest)
        rules = may_publish, may_subscribe, may_advertise
        session = Session(id, name, producer, line, *rules, owner, audits, allowance)
        self._sessions.begin(session)
        self.scopes.join(session, component or name, attributes or {})
        self.rosters.join(session)
        return session

    def leave(self, id: int) -> None:
        """A client's connection is gone. What it had many of is taken down in several steps."""
        self.stir()
        self._sessions.leave(id)

    def heard(self, id: int, message: Any) -> None:
        """A client says something."""
        for _ in self.hear(id, message) or ():
            pass

    def hear(self, id: int, message: Any) -> Iterator[None] | None:
        """The same; what takes long is done in steps, of which all but the first are returned.

        They are to be done before the client is heard again. If it leaves they may be left undone.
        """
        session = self._sessions.held.get(id)
        if session is None:
            return None
        handler = self._from_clients.get(type(message))
        if handler is None:
            raise ProtocolError(f"a client cannot send {type(message).__name__}")
        if self.scoping.is_moving:
            return self._stirring(chain(self.scoping.moved(), self._heard_later(id, message)))
        publishes = isinstance(message, m.Publish)
        if not publishes:
            self.stir()
            if self.publishing.waits_to_be_routed:
                # It came before what this may change.
                routing = self.publishing.route_volatile()
                next(routing, None)
                if self.publishing.waits_to_be_routed:
                    return chain(routing, self._heard_later(id, message))
        try:
            steps: Iterator[None] | None = handler(session, message)
        except ProtocolError:
            raise
        except StentorError as error:
            number = getattr(message, "number", None)
            self.agenda.to_client(session.id, m.Failure(error.code, str(error), number))
            return None
        return steps if publishes or steps is None else self._stirring(steps)

    def _heard_later(self, id: int, message: Any) -> Iterator[None]:
        yield from self.hear(id, message) or ()

    def _stirring(self, steps: Iterator[None]) -> Iterator[None]:
        self.stir()
        for step in steps:
            yield step
            self.stir()

    def block(self, id: int) -> None:
        """The client does not read what it is sent."""
        self.stir()
        self.deliveries.block(id)
        self.bulk_reads.block(id)

    def unblock(self, id: int) -> None:
        """It does again."""
        self.stir()
        session = self._sessions.held.get(id)
        if session is not None:
            self.deliveries.unblock(session)
            self._offers.unblock(id)
            self.bulk_reads.unblock(session)

    # -- neighbors

    def link_up(
        self, neighbor: str, rights: Rights | None = None, place: Place | None = None
    ) -> None:
        """A new link, over which nothing has been said yet; `rights` if not all is allowed.

        `place` is what the neighbor is to this broker, if the router does not know.
        """
        self.stir()
        if self.carriage is None:
            self.scoping.link_up(neighbor)
        (self.carriage or self.overlay).link_up(neighbor, rights, place)

    def link_down(self, neighbor: str) -> None:
        """The link is gone, with everything that was on its way."""
        self.stir()
        (self.carriage or self.overlay).link_down(neighbor)

    def is_unlinking(self, neighbor: str) -> bool:
        """Whether it is still being forgotten what a neighbor asked for that is gone."""
        return self.routing.is_unlinking(neighbor)

    def receive(self, neighbor: str, message: Any) -> None:
        """A neighbor says something."""
        for _ in self.hear_neighbor(neighbor, message):
            pass

    def hear_neighbor(self, neighbor: str, message: Any) -> Iterator[None]:
        """The same, in steps: a long message is dealt with as several short ones."""
        if self.carriage is not None:
            self.stir()
            self.carriage.heard(neighbor, message)
            return
        handler = self._from_neighbors.get(type(message))
        if handler is None:
            raise ProtocolError(f"a broker cannot send {type(message).__name__}")
        steps = self._heard_from(neighbor, handler, message)
        if (
            isinstance(message, m.Forward)
            and not self.routing.is_linking(neighbor)
            and not self.scoping.is_moving
        ):
            yield from steps
        else:
            yield from self._stirring(steps)

    def _heard_from(self, neighbor: str, handler: Any, message: Any) -> Iterator[None]:
        yield from self.routing.linked(neighbor)
        yield from self.scoping.moved()
        for portion in portions(message):
            yield from self.traffic.passed()
            yield from handler(neighbor, portion) or ()
            yield

    def broken(self, stream: m.StreamId, neighbor: str | None = None) -> m.Streams | None:
        """What to say to a neighbor in place of notifications that were dropped on the way."""
        self.stir()
        return self.overlay.broken(stream, neighbor)

    def announce_as(self, addresses: Iterable[str]) -> None:
        """Where others can connect; to be said before the first link is made."""
        self.overlay.announce_as(self.name, addresses)

    # -- the journal

    def committed(self, commits: Iterable[tuple[Any, int, list[bytes]]]) -> None:
        """These are on disk: what `Append` had as its context, from which offset on, which items.

        They follow one another in the journal.
        """
        self.publishing.committed(commits)

    def failed(self, context: Any, error: StentorError) -> None:
        """What was appended could not be stored, nor anything of this producer behind it."""
        self.stir()
        self.publishing.failed(context, error)

    def stored(self, hear: Hear | None, error: StentorError | None) -> None:
        """The state of a durable subscription is on disk, or could not be stored."""
        self.stir()
        if hear is not None:
            hear(error)

    def restore(self, durables: dict[str, bytes]) -> None:
        """Take up the durable subscriptions that were stored."""
        self.stir()
        self.wanted.restore(durables.pop(STORED, None))
        self.scoping.restore(durables)
        self.homes.restore(durables)
        for durable in self.durables.values():
            for stream, position in durable.positions.items():
                self._marks.seen(stream, position)

    def restore_detectors(self) -> None:
        """Take up the detectors that were stored, by the rules that `detectors.rules` tells."""
        self.stir()
        self.detectors.restore()

    def restore_schedule(self, scheduled: Iterable[Scheduled]) -> None:
        """Take up what was on disk to be delivered later."""
        self.stir()
        scheduled = list(scheduled)
        self.scheduling.schedule.restore(scheduled)
        self.scope_holds.restore(scheduled)

    def pause(self, paused: bool) -> None:
        """Whether what is kept here is being handed over, and is to stay as it is."""
        self.stir()
        for part in (self.scheduling, self.homes, self.settlements, self.transactions):
            part.paused = paused

    def import_durables(
        self, stream: m.StreamId, durables: dict[str, bytes]
    ) -> dict[str, bytes | None]:
        """Take over durable subscriptions of a broker that was removed; what is to be stored."""
        self.stir()
        return self.homes.adopt(stream, durables)

    @property
    def used(self) -> int | None:
        """How far the own stream is known to have come, by neighbors; None if none has spoken."""
        return self.overlay.known.get(self.stream)

    def adopt(self, log: Log) -> None:
        """Answer for the journal of a broker that was removed."""
        self.stir()
        self.overlay.adopt(log)
        self.homes.succeed(log.stream)
        if self.meetings is not None:
            self.meetings.adopt(log)

    # -- what it holds

    @property
    def stream(self) -> m.StreamId:
        return self.journals.stream

    @property
    def head(self) -> int:
        """The last offset of the own stream that was routed."""
        return self.journals.head

    @property
    def router(self) -> Router | LiveRouter:
        return self.routing.router

    @property
    def neighbors(self) -> list[str]:
        return self.routing.neighbors

    @property
    def congested(self) -> bool:
        """Whether publishers wait for a slow subscriber, by its own policy."""
        return self.deliveries.congested

    @property
    def is_routing(self) -> bool:
        """Whether something that was published is still to be routed."""
        return self.publishing.has_work

    @property
    def sessions(self) -> dict[int, Session]:
        """The clients that are connected."""
        return self._sessions.held

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        return self._subscriptions.held

    @property
    def durables(self) -> dict[str, Durable]:
        return self._durables.held

    def is_attached(self, durable: Durable) -> bool:
        """Whether somebody consumes this durable subscription now."""
        return self._durables.is_attached(durable)

    @property
    def dropped(self) -> int:
        """Notifications that subscriptions dropped which are gone."""
        return self._subscriptions.dropped

    @property
    def counters(self) -> dict[str, int]:
        """What was forwarded, received, delivered, ...: for operators."""
        total: dict[str, int] = {}
        for part in (
            self.publishing,
            self.traffic,
            self.deliveries,
            self.settlements,
            self.scheduling,
            self.transactions,
            self.detectors,
            self.placements,
            self.catching_up,
            self.bulk_reads,
            self.probing,
            self.overlay,
            self.scopes,
        ):
            for name, count in part.counters.items():
                total[name] = total.get(name, 0) + count
        return total

    def streams(self, since: float | None = None) -> list[dict[str, object]]:
        """The journals that this broker has; with a time, also where each was at that time."""
        return self.journals.listed(since)

    def offers(self) -> list[Filter]:
        """What is advertised anywhere, as far as it is not covered by something else."""
        return self.routing.offers()

    def is_provided(self, id: int, request: object) -> bool:
        """Whether somebody may reply to a request of this client, which comes as it travels."""
        session = self.sessions.get(id)
        if session is None:
            return True
        if not isinstance(request, bytes):
            raise ProtocolError("request= is not an encoded notification")
        return self._offers.is_provided(session, request, self.directory.root(self.stream))


def _router(name: str) -> TreeRouter:
    return tree_router(name, advertisements="covering", coupled=False, at_once=FILTERS_AT_ONCE)


def _ways(own: m.Origin, router: Router | LiveRouter) -> Ways:
    """How streams get about, where this router routes."""
    match router:
        case GraphRouter():
            return GraphDirectory(own, router)
        case RendezvousRouter():
            return RendezvousDirectory(own, router)
    return Directory(own)
