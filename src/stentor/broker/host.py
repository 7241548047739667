"""`Broker`: a live broker. Sockets, clocks, the journal's thread, around the pure `Core`.

The host carries events to the core and the core's answers out. It works in turns of the event
loop: whatever arrives is told to the core at once, and what is to be done is collected and done
once at the end of the turn (`changed` arranges that). So work is batched exactly as far as it has
already arrived: notifications of many clients are routed, written to the journal, and sent on
together under load, and one by one when there is little to do.

Reading journals for subscribers who catch up is done one stretch per turn, behind live traffic.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Final

from stentor.broker import report
from stentor.broker.access import Access, Permissions
from stentor.broker.advertising import advertised
from stentor.broker.lags import Lags
from stentor.broker.links import Links
from stentor.broker.monitoring import Monitor
from stentor.broker.peers import HELLO_FRAME, ConnectedClient, Guest, Link
from stentor.broker.questions import Questions
from stentor.broker.reloading import Certificates, Reloading, bounds_of, room_of
from stentor.broker.settings import OVERLAYS, Settings
from stentor.broker.storage import Journal, JournalBatch
from stentor.broker.succession import Imported, Succession
from stentor.broker.visits import Visits
from stentor.broker.vouching import Vouching
from stentor.errors import (
    InvalidConfiguration,
    NameTaken,
    Overloaded,
    ShuttingDown,
    StentorError,
)
from stentor.matching import Index, Matcher
from stentor.matching.index.preparing import is_prepared, prepare
from stentor.model.names import text_problem
from stentor.node.agenda import (
    Action,
    Append,
    CloseClient,
    CloseLink,
    Persist,
    ToClient,
    ToLink,
    Visit,
)
from stentor.node.core import FILTERS_AT_ONCE, Core
from stentor.node.hooks import Hooks
from stentor.node.latencies import Latencies
from stentor.node.parts.detectors import OwnerRules
from stentor.node.reading import Texts
from stentor.notation.completion import offering
from stentor.protocol import messages as m
from stentor.protocol.handshake import Handshake
from stentor.routing.graph import GraphRouter
from stentor.routing.protocol import LiveRouter, Place
from stentor.routing.rendezvous import RendezvousRouter
from stentor.routing.strategy import Strategy
from stentor.routing.tree import TreeRouter
from stentor.transport import (
    Address,
    Connection,
    Listener,
    Rota,
    serve,
)

_log: Final = logging.getLogger("stentor.broker")

#: Seconds of one round of the event loop for what the core has to do that can wait.
BUDGET: Final = 0.005
#: Seconds between two looks at the clock.
TICK: Final = 0.1
#: Seconds between two looks at what durable subscriptions need of journals.
WANTED_EVERY: Final = 1.0


class Broker:
    """A broker of the overlay, to be run in an event loop.

    async with Broker(Settings(listen=("127.0.0.1:0",))) as broker:
        async with stentor.connect(broker) as bus:
            ...
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        hooks: Hooks | None = None,
        source: Callable[[], Settings] | None = None,
        engine: Callable[[], Matcher[Any]] = Index,
        ahead: Callable[[], float] = float,
        watch: Callable[[Action], object] | None = None,
    ) -> None:
        """`source` says what the settings are when they are to be read again.

        `engine` makes what finds the filters that match. `ahead` is by how many seconds its clock
        is ahead of the machine's, 0 unless a test lets time pass. `watch` is called with all that
        the core has the broker do.
        """
        #: What it was configured with.
        self.settings = settings or Settings()
        self._engine = engine
        self._ahead = ahead
        self._watch = watch
        #: Functions that are called with what comes by.
        self.hooks = hooks or Hooks()
        self.guests: set[Guest] = set()
        #: Those that have not said who they are, the oldest first.
        self.strangers: dict[Guest, None] = {}
        self.room = room_of(self.settings)
        #: The links with other brokers.
        self.links = Links(self)
        self.clients: dict[int, ConnectedClient] = {}
        self.access = Access(self.settings.grants)
        self.draining = False
        self.started_at = 0.0
        self._by_producer: dict[str, ConnectedClient] = {}
        self._sessions = count(1)
        self.listeners: list[Listener] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._parser = ThreadPoolExecutor(1, "stentor-filters")
        self._held_back: set[Connection] = set()
        self._turn: asyncio.Handle | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._stopped: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._monitor: Monitor | None = None
        self._pinged = 0.0
        self._looked = 0.0
        self.succession = Succession(self)
        self.vouching = Vouching(self)
        self.visits = Visits(self)
        self.reloading = Reloading(self, source)
        self.lags = Lags()
        self.questions = Questions(self)
        #: Where others are told to connect, best first.
        self.advertised: list[str] = []
        self.certificates: Certificates
        self.journal: Journal
        self.core: Core
        self.rota: Rota

    # -- life

    __dir__ = offering(
        *("address", "addresses", "advertised", "drain", "health", "hooks", "links", "metrics"),
        *("monitor_address", "name", "ready", "reload", "settings", "start"),
        *("status", "stop", "stream", "wait_closed"),
    )

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the journal, listen, and link up with the neighbors."""
        settings = self.settings
        self._loop = asyncio.get_running_loop()
        self.rota = Rota(self._loop)
        self._stopped = asyncio.Event()
        dialed = (*settings.neighbors, *([settings.parent] if settings.parent else ()))
        await self._start([Address.parse(text) for text in settings.listen], dialed)

    async def _start(self, addresses: list[Address], dialed: Iterable[str]) -> None:
        settings = self.settings
        if not addresses:
            raise InvalidConfiguration("a broker needs an address to listen at")
        name = settings.name or (settings.data.resolve().name if settings.data else None)
        name = name or str(addresses[0])
        problem = text_problem(name)
        if problem is not None:
            raise InvalidConfiguration(f"the name of the broker {problem}; give it another")
        self._check_overlay()
        self.certificates = await asyncio.to_thread(Certificates.load, settings.tls)
        self.certificates.warn()
        await self._prepare_kernels()
        self.succession.begin()
        self.journal = Journal.open(
            settings.data, name=name, retention=settings.retention, clock=self._time
        )
        self.vouching.opened()
        try:
            self._make_core(name)
            # Before anybody can ask for a durable subscription that is in one of them.
            await self.succession.open()
            await self.settle()
            # What came from journals that were taken over is published, as nobody is here yet.
            self.core.journals.head = self.journal.head
            await self._listen(addresses)
            self.succession.serve()
            await self._start_monitor()
        except BaseException:
            await self._close_listeners()
            await self.succession.close()
            self.journal.close()
            raise
        self.started_at = time.time()
        for address in dialed:
            self.links.add(address)
        self.vouching.begin(contact=bool(self.links.dialed))
        self._tick()

    async def _prepare_kernels(self) -> None:
        """Now, and beside the loop: compiling takes seconds, and whoever waits is told why."""
        if self._engine is not Index or is_prepared():
            return

        def notice(text: str) -> None:
            _log.warning("%s", text, extra={"event": "kernels"})

        prepared = await asyncio.to_thread(prepare, self.settings.kernels, notice)
        if prepared.problem is not None:
            _log.warning(
                "compiled matching code cannot be kept: %s",
                prepared.problem,
                extra={"event": "kernels"},
            )

    def _check_overlay(self) -> None:
        """Raise if the settings ask for links that the overlay does not have."""
        settings = self.settings
        places = OVERLAYS[settings.overlay]
        if "visitor" in places and settings.routing == "flooding":
            raise InvalidConfiguration(
                f"on a {settings.overlay} overlay filters say where notifications go, so they "
                "cannot be flooded; choose another routing"
            )
        if "visitor" in places and settings.advertisements != "none":
            raise InvalidConfiguration(
                f"on a {settings.overlay} overlay event types steer subscriptions, and not "
                "advertisements; leave `advertisements` out"
            )
        if settings.parent is not None and "parent" not in places:
            raise InvalidConfiguration(
                f"in a {settings.overlay} brokers have no parent; name it among the neighbors, or "
                "make the overlay a hierarchy or hybrid"
            )
        if settings.neighbors and ("peer" not in places or settings.parent is not None):
            raise InvalidConfiguration(
                "a broker of a hierarchy is linked with its parent and with those that name it as "
                "theirs; leave its neighbors out"
            )

    def _router(self, name: str) -> LiveRouter:
        settings = self.settings
        loose = settings.looseness if settings.routing == "merging" else 0.0
        routing = Strategy(settings.routing, loose)
        steered = settings.advertisements != "none"
        offers = Strategy(settings.advertisements if steered else "covering")
        above = settings.overlay == "hybrid" and settings.parent is None
        if settings.overlay == "rendezvous":
            stream = self.journal.stream
            return RendezvousRouter(stream, routing, engine=self._engine, at_once=FILTERS_AT_ONCE)
        if settings.overlay == "graph" or above:
            return GraphRouter(
                self.journal.stream,
                routing,
                offers,
                engine=self._engine,
                shape=settings.overlay,
                coupled=steered,
                at_once=FILTERS_AT_ONCE,
            )
        return TreeRouter(
            name,
            routing,
            offers,
            engine=self._engine,
            shape=settings.overlay,
            coupled=steered,
            at_once=FILTERS_AT_ONCE,
        )

    def _make_core(self, name: str) -> None:
        settings = self.settings
        self.core = Core(
            name,
            self.journal,
            router=self._router(name),
            enforce_advertisements=(
                settings.enforce_advertisements or settings.advertisements != "none"
            ),
            bounds=bounds_of(settings),
            latencies=Latencies(time.perf_counter, self._time),
            hooks=self.hooks,
            now=self._loop.time() + self._ahead(),
            clock=self._clock(),
        )
        self.core.restore(self.journal.durables())
        self.core.restore_schedule(self.journal.scheduled())
        self.core.detectors.rules = self._rules_of
        self.core.wanted.at_need = self._keep_wanted
        self.core.restore_detectors()
        self.journal.start(self._loop.call_soon_threadsafe, self._committed)

    def _rules_of(self, owner: str | None) -> OwnerRules | None:
        """What a grant allows to a detector, whether or not a client of it is connected."""
        found = self.access.of_grant(owner)
        if found is None:
            return None
        return OwnerRules(found.publish, found.subscribe, found.advertise, found.allowance)

    def _clock(self) -> float:
        """The time of day, which a clock that was set back does not take behind the journal."""
        return max(self._time(), self.journal.time)

    def _time(self) -> float:
        return time.time() + self._ahead()

    def call_from_thread(self, function: Callable[..., object], *args: Any) -> None:
        """Run something in the event loop, from any thread."""
        self._loop.call_soon_threadsafe(function, *args)

    async def _listen(self, addresses: list[Address]) -> None:
        tls = self.certificates.for_listening
        for address in addresses:
            listener = await serve(address, lambda: Guest(self), tls=tls, max_frame=HELLO_FRAME)
            self.listeners.append(listener)
        listening = [listener.address for listener in self.listeners]
        self.advertised = advertised(self.settings.advertise, listening)
        self.core.announce_as(self.advertised)

    async def _start_monitor(self) -> None:
        if self.settings.monitor is not None and self._monitor is None:
            self._monitor = Monitor(self, self.settings.monitor)
            await self._monitor.start()

    @property
    def name(self) -> str:
        """Its name, unique in the overlay."""
        return self.core.name

    @property
    def stream(self) -> str:
        """The name of its journal: that of the broker, and which of its journals it is."""
        return self.core.stream

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return [str(listener.address) for listener in self.listeners]

    @property
    def address(self) -> str:
        """Where it listens first of all."""
        listening = self.addresses
        if not listening:
            raise ShuttingDown("the broker does not listen; start it, as by async with")
        return listening[0]

    @property
    def monitor_address(self) -> str | None:
        """Where it answers about its metrics and health, if anywhere."""
        return None if self._monitor is None else str(self._monitor.address)

    async def stop(self, reason: str = "the broker is shutting down") -> None:
        """Shut down in good order: take nothing new, store what came, say goodbye."""
        if self._stopped is None or self._stopped.is_set():
            return
        await self.vouching.settled()
        await self._stop(reason)
        self._stopped.set()

    async def start_anew(self, reason: str) -> None:
        """Stop, and start again with what is then in the data directory."""
        addresses = [listener.address for listener in self.listeners]
        dialed = self.links.dialed
        await self._stop(reason, for_good=False)
        for kept in (self.listeners, self.links, self.clients, self._by_producer):
            kept.clear()
        self._parser = ThreadPoolExecutor(1, "stentor-filters")
        self._turn = None
        self.succession = Succession(self)
        self.draining = False
        await self._start(addresses, dialed)

    def ended(self) -> None:
        """It could not be started again."""
        assert self._stopped is not None
        self._stopped.set()

    async def _stop(self, reason: str, *, for_good: bool = True) -> None:
        self.draining = True
        self.vouching.release()
        for task in self._background:
            task.cancel()
        dialing = [*self.links.stop_dialing(), *self.visits.stop()]
        await self._close_listeners()
        await self.settle()
        self.say_goodbye(reason, elsewhere=for_good)
        for link in list(self.links.values()):
            link.flush()
            link.connection.send(m.Goodbye(reason))
            link.connection.close()
        leaving = {client.connection for client in self.clients.values() if client.is_leaving}
        for guest in list(self.guests):
            if guest.connection is not None and guest.connection not in leaving:
                guest.connection.close()
        await self._until(lambda: not self.guests and not self.links, self.settings.limits.shutdown)
        await self.settle()
        for guest in list(self.guests):
            if guest.connection is not None:
                guest.connection.abort()
        await asyncio.gather(*dialing, *self._background, return_exceptions=True)
        for handle in (self._ticker, self._turn):
            if handle is not None:
                handle.cancel()
        if self._monitor is not None and for_good:
            await self._monitor.stop()
        await self.succession.close()
        if self.journal.path is None:
            self.journal.close()  # what is in memory belongs to the loop
        else:
            await asyncio.to_thread(self.journal.close)
        self._parser.shutdown(wait=False, cancel_futures=True)
        self.succession.finish()

    def stop_soon(self, reason: str) -> None:
        """Stop when this turn is over."""
        self._stopping = self._loop.create_task(self.stop(reason))

    def say_goodbye(self, reason: str, *, elsewhere: bool = True) -> None:
        """Send all clients away; `elsewhere` to the neighbors, if there are any."""
        heirs = self.heirs() if elsewhere else []
        instead = [address for link in heirs for address in link.origin.addresses]
        for client in list(self.clients.values()):
            if not client.is_operator:
                client.say_goodbye(reason, instead)

    def heirs(self) -> list[Link]:
        """The neighbors, in the order in which one is turned to instead: own choices first."""
        return sorted(
            self.links.values(),
            key=lambda link: (link.place == "visitor", not link.dialed, link.origin.broker),
        )

    async def dismiss_clients(self, reason: str) -> None:
        """Send all clients away; return when they are gone and what they said is on disk.

        First everything that was read is answered, so that they do not publish it elsewhere again.
        """
        for client in self.clients.values():
            if not client.is_operator:
                client.connection.pause_reading()
        await self.settle()
        self.say_goodbye(reason)
        await self._until(
            lambda: all(client.is_operator for client in self.clients.values()),
            self.settings.limits.shutdown,
        )
        await self.settle()

    async def wait_closed(self) -> None:
        """Until it has been stopped."""
        assert self._stopped is not None
        await self._stopped.wait()

    async def _close_listeners(self) -> None:
        for listener in self.listeners:
            await listener.close()

    async def settle(self) -> None:
        """Until everything that was published is on disk, routed and answered."""
        self._work()
        await self._until(
            lambda: not (self.journal.pending or self.core.is_routing),
            self.settings.limits.shutdown,
        )
        self._work()

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = self._loop.time() + seconds
        while not done() and self._loop.time() < deadline:
            await asyncio.sleep(0.005)

    # -- turns

    def changed(self) -> None:
        """Something was done with a part of the core: see what follows of it, as `heard`."""
        self.core.stir()
        self.heard()

    def heard(self) -> None:
        """Something was told to the core: see at the end of this turn what is to be done."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._work)

    def _work(self) -> None:
        """Do what can wait, a piece at a time, for as long as a round of the loop has."""
        self._turn = None
        core = self.core
        deadline = time.monotonic() + BUDGET
        while True:
            if core.has_work:
                core.work()
            self._carry_out()
            if not core.wants_turn:
                break
            if time.monotonic() > deadline:
                self.heard()
                break

    def _carry_out(self) -> None:
        touched: set[Link] = set()
        actions = self.core.take()
        if self.vouching.is_outdated():
            return
        for action in actions:
            if self._watch is not None:
                self._watch(action)
            match action:
                case ToClient():
                    client = self.clients.get(action.session)
                    if client is not None:
                        client.send(action.message)
                case ToLink():
                    link = self.links.get(action.neighbor)
                    if link is not None:
                        link.push(action.message)
                        touched.add(link)
                case Append():
                    if not self.vouching.holds(action):
                        self.append(action)
                case Persist():
                    self._store(JournalBatch(durables={action.name: action.data}, context=action))
                case CloseClient():
                    client = self.clients.get(action.session)
                    if client is not None:
                        client.dismiss(action.code, action.reason)
                case Visit():
                    self.visits.want(action.brokers)
                case CloseLink():
                    link = self.links.get(action.neighbor)
                    if link is not None:
                        _log.warning("%s: %s", action.code, action.reason)
                        link.connection.send(m.Failure(action.code, action.reason))
                        link.connection.close()
        for link in touched:
            link.flush()

    def append(self, action: Append) -> None:
        """Write publications to the journal."""
        self._store(
            JournalBatch(
                action.items,
                producers=action.marks,
                retain=action.retain,
                durables=dict(action.states),
                schedule=action.schedule,
                unschedule=action.unschedule,
                line=action.line,
                context=action,
            )
        )

    def _store(self, batch: JournalBatch) -> None:
        """Give a batch to the journal. One that it does not take has failed, as on a full disk."""
        try:
            self.journal.append(batch)
        except StentorError as error:
            batch.error = error
            if batch.line is not None:
                batch.line.failed = True
            self._loop.call_soon(self._committed, [(batch, 0)])

    def _committed(self, done: list[tuple[JournalBatch, int]]) -> None:
        """The journal has dealt with these batches."""
        stored = []
        for batch, first in done:
            action = batch.context
            if isinstance(action, Persist):
                self.core.stored(action.context, batch.error)
            elif isinstance(action, Imported):
                action.stored(batch.error)
                if batch.error is None:
                    self.core.restore_schedule(each.entry for each in batch.schedule)
            elif batch.error is not None:
                self.core.failed(action.context, batch.error)
            else:
                stored.append((action.context, first, batch.items))
        if stored:
            self.core.committed(stored)
        if self._held_back and not self.journal.full:
            for connection in self._held_back:
                connection.last_heard = self._loop.time()
                connection.resume_reading()
            self._held_back.clear()
        self.heard()

    def hold_back(self, connection: Connection) -> None:
        """Read no more from this one until the journal has caught up."""
        self._held_back.add(connection)
        connection.pause_reading()

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK, self._tick)
        now = self._loop.time()
        self.pass_time()
        self.succession.reminded(self.core.overlay.known)
        if now >= self._looked:
            self._looked = now + WANTED_EVERY
            for journal in (self.journal, *self.succession.journals):
                self._keep_wanted(journal.stream)
        self.core.latencies.wants_delivery = True
        if self._monitor is not None and self.lags.is_due(now):
            self.start_soon(self.rota.run(self.lags.look(self.core)))
        for link in self.links.values():
            link.grant()
        timeout = self.settings.limits.timeout
        if now - self._pinged >= timeout / 6:
            self._pinged = now
            self._ping(now, timeout)

    def _keep_wanted(self, stream: m.StreamId) -> None:
        """Have a journal keep what durable subscriptions want of it."""
        for journal in (self.journal, *self.succession.journals):
            if journal.stream == stream and stream in self.core.journals:
                journal.keep_from(self.core.wanted.low(stream))

    def pass_time(self) -> None:
        """Tell the core what time it is, and see at the end of this turn what is to be done."""
        self.core.tick(self._loop.time() + self._ahead(), self._clock())
        self.heard()

    def _ping(self, now: float, timeout: float) -> None:
        """Ask those who are silent for a sign of life; give up those who are too long."""
        connections = [c.connection for c in self.clients.values()]
        connections += [link.connection for link in self.links.values()]
        for connection in connections:
            if connection in self._held_back:
                continue  # it may have spoken; we do not listen
            silence = now - connection.last_heard
            if silence > timeout:
                _log.info("gave up %s after %.1f s of silence", connection.peer, silence)
                connection.abort()
            elif silence > timeout / 3 and not connection.is_closing:
                connection.send(m.Ping())

    # -- who connects

    def admit(self, connection: Connection, handshake: Handshake) -> ConnectedClient | Link:
        """Somebody has said who they are: let them in, or raise why not."""
        hello = handshake.hello
        if self.draining and hello.role != "operator":
            raise ShuttingDown("this broker is being shut down; connect to another")
        permissions = self.access.admit(hello, connection.peer_certificate)
        if hello.role == "broker":
            origin = handshake.neighbor(self.core.routing.terms)
            place: Place = "child" if hello.below else "visitor" if hello.visits else "peer"
            self.links.check(origin, permissions, place, dialed=False)
            welcome = self._welcome(handshake.version, terms=self.core.routing.terms)
            connection.send(welcome)
            return self.links.made(connection, handshake, origin, permissions, place, dialed=False)
        return self._new_client(connection, handshake, permissions)

    def _welcome(
        self,
        version: int,
        published: tuple[int, int] | None = None,
        producer: str = "",
        window: int | None = None,
        terms: str = "",
    ) -> m.Welcome:
        limits = self.settings.limits
        return m.Welcome(
            version,
            self.name,
            self.stream,
            self.advertised,
            published,
            window or limits.window,
            limits.frame,
            limits.timeout,
            producer,
            terms,
            self._clock(),
        )

    def _new_client(
        self, connection: Connection, handshake: Handshake, permissions: Permissions
    ) -> ConnectedClient:
        if len(self.clients) >= self.settings.limits.clients:
            raise Overloaded(
                f"{len(self.clients)} clients are connected, the most that this broker allows"
            )
        name = handshake.hello.name
        producer = permissions.producer(name)
        attributes = permissions.claimed(handshake.hello.attributes)
        old = self._by_producer.get(producer)
        if old is not None:
            old.dismiss(NameTaken.code, f"another client has connected as {name!r}")
            self.client_gone(old, None)
        id = next(self._sessions)
        published = self.journal.published(producer)
        session = self.core.join(
            id,
            name,
            producer=producer,
            newest=published,
            may_publish=permissions.publish,
            may_subscribe=permissions.subscribe,
            may_advertise=permissions.advertise,
            owner=permissions.name,
            allowance=permissions.allowance,
            component=permissions.component(name),
            attributes=attributes,
            audits=permissions.audits,
        )
        window = self.core.publishing.window(session)
        is_operator = handshake.hello.role == "operator"
        who = handshake, id, producer, permissions
        client = ConnectedClient(self, connection, *who, window, is_operator)
        self.clients[id] = self._by_producer[producer] = client
        connection.send(self._welcome(handshake.version, published, producer, window))
        _log.debug("client %s connected from %s", name, connection.peer)
        return client

    def client_gone(self, client: ConnectedClient, error: Exception | None) -> None:
        """The connection of a client is over."""
        if self.clients.pop(client.id, None) is None:
            return
        if self._by_producer.get(client.producer) is client:
            del self._by_producer[client.producer]
        self._held_back.discard(client.connection)
        self.core.leave(client.id)
        self.heard()
        _log.debug("client %s is gone%s", client.name, f": {error}" if error else "")

    def refused(self, connection: Connection, hello: m.Hello, error: StentorError) -> None:
        level = logging.DEBUG if hello.role == "broker" else logging.WARNING
        _log.log(level, "refused %s %r at %s: %s", hello.role, hello.name, connection.peer, error)

    def start_soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something while everything else goes on, unless the broker stops."""
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- filters

    def parse(self, text: str, texts: Texts[Any]) -> asyncio.Future[Any]:
        """Done when `texts` know what this is; others are served meanwhile.

        One at a time, so that however many wait for theirs, the loop has its half of a processor.
        """

        def known(future: asyncio.Future[Any]) -> None:
            if not future.cancelled():
                texts.remember(text, future.result())

        parsing = self._loop.run_in_executor(self._parser, texts.outcome, text)
        parsing.add_done_callback(known)
        return parsing

    async def reload(self, settings: Settings | None = None) -> dict[str, list[str]]:
        """Take over new grants, tokens, certificates and limits, while everything goes on.

        Without settings, they are read where the broker has them from. If something is wrong with
        them, nothing changes, and it is raised. What has changed, and what only a restart changes.
        """
        return await self.reloading.reload(settings)

    async def drain(self) -> dict[str, Any]:
        """Leave the overlay for good; a neighbor takes over what this broker answers for."""
        return await self.succession.drain()

    # -- what operators see

    def status(self) -> dict[str, Any]:
        """Everything about the broker, as plain data."""
        return report.status(self)

    def metrics(self) -> list[Any]:
        """Its metrics, as `/metrics` shows them."""
        return report.metrics(self)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether it works: the journal can be written."""
        return report.health(self)

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether it takes clients, and all its configured links are up."""
        return report.ready(self)
