"""Live brokers in the simulator, thoroughly, with all that may happen to them.

Everything that the real host leaves open is decided by whoever drives the run: when a message
arrives, when the disk has written, when the core hears of it, when time passes, and what fails.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from stentor.node.agenda import Persist, ToClient
from stentor.node.border import Rights
from stentor.protocol import messages as m
from stentor.routing import STRATEGIES, Strategy, TreeRouter
from stentor.routing.graph import GraphRouter
from stentor.routing.protocol import Place
from stentor.routing.rendezvous import RendezvousRouter
from stentor.simulation.broker import SideChannel, SimulatedBroker
from stentor.simulation.client import Client, SimulatedInbox
from stentor.simulation.host import Host
from stentor.simulation.links import LinkRoom

UNHURRIED = 10_000
#: Seconds in which a client finds another broker.
MOMENT = 0.001


class Overlay(Host):
    """A network of trees that break and heal, and clients that come back."""

    def __init__(
        self,
        links: list[tuple[str, str]],
        *,
        brokers: list[str] | None = None,
        queue: int = 1_000,
        link_limit: int = UNHURRIED,
        seed: int = 0,
        rights: dict[tuple[str, str], Rights] | None = None,
        routing: Strategy | str = "covering",
        advertisements: Strategy | str | None = None,
        mixed: int = 0,
        graph: bool = False,
        rendezvous: bool = False,
        parents: dict[str, str] | None = None,
    ) -> None:
        #: Whether links may form cycles; and who is above whom.
        self.graph = graph or rendezvous
        #: Whether brokers find each other by types, and those that cannot connect meanwhile.
        self.rendezvous = rendezvous
        self.apart: set[frozenset[Any]] = set()
        self.parents = parents or {}
        self.routing = Strategy.of(routing)
        #: If not 0, brokers use different strategies that go together.
        self.mixed = mixed
        #: The strategy of advertisements, if they steer subscriptions.
        self.offers = None if advertisements is None else Strategy.of(advertisements)
        self.rng = random.Random(seed)
        #: Whether clients go to other brokers when they connect again.
        self.moves = False
        #: Where links belong, up or not.
        self.wires = [(a, b) for a, b in links]
        #: Brokers that have left for good, and who has what they had.
        self.heirs: dict[Any, Any] = {}
        #: Clients that do not read what they are sent.
        self.deaf: set[Client] = set()
        #: What brokers have said to each other, by its kind.
        self.said: Counter[type] = Counter()
        self.subs: list[SimulatedInbox] = []
        self.clients: list[Client] = []
        names = brokers or list(dict.fromkeys(name for link in links for name in link))
        super().__init__(
            {name: self.router_of(name) for name in names},
            links,
            seed=seed,
            advertisements=self.enforced,
            make=self.router_of,
            thorough=True,
            queue=queue,
            room=link_limit,
            rights=rights,
        )

    @property
    def enforced(self) -> bool:
        """Whether clients have to advertise what they publish."""
        return self.offers is not None

    def place(self, broker: Any, neighbor: Any) -> Place:
        if self.parents.get(broker) == neighbor:
            return "parent"
        return "child" if self.parents.get(neighbor) == broker else "peer"

    def router_of(self, name: Any) -> Any:
        """Brokers differ in their strategies as far as these go together."""
        routing, offers = self.routing, self.offers or Strategy("covering")
        if self.mixed:
            alike = random.Random(f"{name} {self.mixed}")
            names = [n for n in STRATEGIES if Strategy(n).terms == routing.terms]
            routing = routing if routing.looseness else Strategy(alike.choice(names))
            names = [n for n in STRATEGIES if Strategy(n).terms == offers.terms]
            offers = Strategy(alike.choice(names))
        if self.rendezvous:
            return RendezvousRouter(name, routing, at_once=2)
        if self.graph and name not in self.parents:
            return GraphRouter(name, routing, offers, coupled=self.enforced, at_once=2)
        return TreeRouter(name, routing, offers, coupled=self.enforced, at_once=2)

    @property
    def hosts(self) -> dict[Any, SimulatedBroker]:
        return self._brokers

    @property
    def queues(self) -> dict[Any, LinkRoom]:
        """Links that are up, in each direction."""
        return self._links

    def _send(self, sender: Any, receiver: Any, message: Any) -> None:
        self.said[type(message)] += 1
        super()._send(sender, receiver, message)

    def _do(self, broker: SimulatedBroker, action: Any) -> None:
        if isinstance(action, ToClient) and isinstance(action.message, m.Deliver):
            client = broker.sessions.get(action.session)
            inbox = None if client is None else client.inboxes.get(action.message.number)
            if inbox is not None and inbox.stored:
                given = {(action.message.stream, offset) for offset in action.message.offsets}
                assert not given & inbox.stored, f"{given} are given, and settled on disk"
        super()._do(broker, action)

    def begun(self, inbox: SimulatedInbox) -> None:
        if inbox not in self.subs:
            self.subs.append(inbox)
        super().begun(inbox)

    # -- what fails and heals

    def connect(self, a: Any, b: Any) -> None:
        visiting = self._visiting & {(a, b), (b, a)}
        if ((a, b) not in self._links or visiting) and self.hosts[a].up and self.hosts[b].up:
            self._open(a, b)

    def disconnect(self, a: Any, b: Any) -> None:
        if (a, b) in self._links:
            if self.rendezvous and self.rng.random() < 0.5:
                self.apart.add(frozenset((a, b)))
            self._cut(a, b)

    def may_visit(self, a: Any, b: Any) -> bool:
        return frozenset((a, b)) not in self.apart

    def mend_visits(self) -> None:
        """All brokers can connect to each other again."""
        self.apart.clear()
        for name in self._visits:
            self._dial_soon(name)

    def crash(self, id: Any) -> None:
        super().crash(id)
        self._severed.clear()

    def restart(self, id: Any) -> None:
        self.hosts[id].start()
        for gone, heir in self.heirs.items():
            if heir == id:
                self.hosts[id].core.adopt(self.hosts[gone].log)

    def drain(self, name: Any, heir: Any) -> None:
        """A broker leaves for good, and hands all that it has to a neighbor, as brokers do."""
        leaving, staying = self.hosts[name], self.hosts[heir]
        leaving.core.pause(True)
        for client in list(leaving.sessions.values()):
            client.disconnect()
        self._write_all(name)
        stored = dict(leaving.durables)
        while self.schedule.waiting((name, heir)) and not self.rng.random() < 0.02:
            self.step((name, heir))  # what was said before comes before
        if (name, heir) not in self._links:
            leaving.core.pause(False)
            return
        self.heirs[name] = heir
        self.crash(name)
        wires = [tuple(heir if end == name else end for end in wire) for wire in self.wires]
        self.wires = [(a, b) for a, b in wires if a != b]
        for client in self.clients:
            if client.homes and client.homes[-1] == name:
                client.homes[-1] = heir
        for producer, mark in leaving.log.published.items():
            known = staying.log.published.get(producer, mark)
            staying.log.published[producer] = max(mark, known)
        for key, data in staying.core.import_durables(leaving.log.stream, stored).items():
            staying.write(Persist(key, data, None))
        self._write_all(heir)
        staying.core.adopt(leaving.log)
        self.carry_out(staying)

    def _write_all(self, name: Any) -> None:
        """Until all that a broker wants to be on its disk is there."""
        own = [SideChannel(kind, name) for kind in ("work", "disk", "written")]
        self.carry_out(self.hosts[name])
        while waiting := [c for c in own if c in set(self.schedule.pending)]:
            self.step(waiting[0])  # type: ignore[arg-type]

    def client(self, at: Any = None, id: str | None = None, **_: Any) -> Client:
        client = Client(self, id or f"c{len(self.clients) + 1}", at or "")
        self.clients.append(client)
        if at is not None:
            client.connect(self.hosts[at])
        return client

    def places(self, client: Client) -> list[SimulatedBroker]:
        """Where a client may connect."""
        hosts = [host for host in self.hosts.values() if host.up]
        if client.homes and not self.moves:
            hosts = [host for host in hosts if host.name == client.homes[-1]]
        return hosts

    def connect_again(self, client: Client) -> None:
        """It is somewhere else a moment later, so what it makes there is younger."""
        place = self.rng.choice(self.places(client))
        self.tick(MOMENT)
        client.connect(place)

    # -- steps

    def choices(self) -> list[tuple[str, Any]]:
        """What could happen next on its own."""
        found: list[Any] = self.schedule.pending
        return [c[:2] if isinstance(c, SideChannel) else ("link", c) for c in found]

    def happen(self, kind: str, what: Any) -> None:
        assert self.step(what if kind == "link" else SideChannel(kind, what))  # type: ignore[arg-type]

    def advance(self, most: int | None = None) -> None:
        """Let things happen, in any order, at most so many."""
        lazy = self.schedule.lazy
        if most is None:
            self.schedule.lazy = set()
        for i in range(self.rng.randint(0, most) if most is not None else 1_000_000):
            if not self.step():
                break
            if i % 20_000 == 19_999:  # somebody asks again and again, for what takes time
                self.tick(1.0)
        else:
            assert most is not None, "it does not come to rest"
        self.schedule.lazy = lazy

    def dawdle(self) -> None:
        """From now on some links, clients, disks and journals have all the time in the world."""
        keys: list[Any] = list(self._links)
        keys += [SideChannel(k, name) for k in ("disk", "written", "work") for name in self.hosts]
        keys += [SideChannel(kind, client) for kind in ("up", "down") for client in self.clients]
        self.schedule.lazy = {key for key in keys if self.rng.random() < 0.3}

    def hang(self, name: Any, ticks: int, most: int = 1_000) -> None:
        """A broker stops for a while, and the others go on: nothing is lost, all of it is late."""
        clients = {c for c in self.clients if c.broker is self.hosts[name]}

        def is_its(channel: Any) -> bool:
            if isinstance(channel, SideChannel):
                return channel.of == name or (channel.kind == "up" and channel.of in clients)
            return bool(channel[1] == name)

        for _ in range(ticks):
            for _ in range(self.rng.randint(0, most)):
                others = [channel for channel in self.schedule.pending if not is_its(channel)]
                if not others:
                    break
                self.step(self.rng.choice(others))
            self.now += 0.5
            for other, host in self.hosts.items():
                if host.up and other != name:
                    host.core.tick(self.now, self.time)
                    self.carry_out(host)

    def stop_reading(self, client: Client) -> None:
        """A client does not read what it is sent, so nothing more is given to it."""
        if client.broker is not None:
            self.deaf.add(client)
            client.broker.core.block(client.session)

    def read_on(self, client: Client) -> None:
        self.deaf.discard(client)
        if client.broker is not None:
            client.broker.core.unblock(client.session)
            client.broker.flush()

    def heal(self) -> None:
        """Everything works again."""
        self.disks_fail = False
        for client in sorted(self.deaf, key=lambda client: client.id):
            self.read_on(client)
        for name, host in self.hosts.items():
            if not host.up and name not in self.heirs:
                self.restart(name)
        self.mend_visits()
        for a, b in self.wires:
            if self.graph or b not in self.reached(a):
                self.connect(a, b)
        for link in self._links.values():
            link.limit = UNHURRIED

    def reached(self, name: Any) -> set[Any]:
        """The brokers that links lead to from here."""
        reached, edge = {name}, {name}
        while edge:
            edge = {b for a, b in self._links if a in edge} - reached
            reached |= edge
        return reached

    def rewire(self, *, cycle: bool) -> None:
        """Put a link in another place; or leave the old one, so that there is a cycle."""
        a, b = self.rng.choice(self.wires)
        if not cycle:
            self.disconnect(a, b)
            self.wires.remove((a, b))
            reached = {b}
            both = self.wires + [(b, a) for a, b in self.wires]
            while more := {y for x, y in both if x in reached} - reached:
                reached |= more
            ends = sorted(set(self.hosts) - reached), sorted(reached)
            if ends[0]:
                self.wires.append((self.rng.choice(ends[0]), self.rng.choice(ends[1])))
                self.connect(*self.wires[-1])
        else:
            self.connect(*self.rng.sample(sorted(self.hosts), 2))

    @property
    def some_wait(self) -> bool:
        """Whether clients have been told that what they ask for lives elsewhere."""
        inboxes = (inbox for client in self.clients for inbox in client.inboxes.values())
        return any(inbox.waits or inbox.unstored for inbox in inboxes)

    def settle(self) -> None:
        """Heal everything, and wait until nothing is under way."""
        for _ in range(100):
            self._rest()
            if all(client.broker is not None for client in self.clients):
                break  # else somebody's queue was full, and it has to come back
        else:
            raise AssertionError("clients are disconnected for ever")
        self.trace.quiescent()

    def _rest(self) -> None:
        for _ in range(2_000):
            self.heal()
            if self.some_wait:
                self.tick(1.0)
            for client in self.clients:
                if client.broker is None:
                    self.connect_again(client)
                client.ask_again()
                client.give_credit()
            if not self.graph and len(self._links) > 2 * len(self.hosts) - 2:  # a cycle
                self.advance(10_000)
                self.tick(1.0)
                continue
            self.advance()
            if (
                all(b in self.reached(a) for a, b in self.wires)
                and all(c.broker is not None and not owes(c) for c in self.clients)
                and not self.some_wait
            ):
                break
        else:
            raise AssertionError("clients do not come to rest")
        for seconds in (1.5, 6.0, 1.5, 1.5):  # marks, progress, ends of leases, ends of demand
            self.tick(seconds)
            for _ in range(2_000):
                self.advance()
                # Who was given what it had missed may have been disconnected for being slow.
                away = [client for client in self.clients if client.broker is None]
                if not away and not any(map(owes, self.clients)):
                    break
                for client in away:
                    self.connect_again(client)
                for client in self.clients:
                    client.give_credit()


def owes(client: Client) -> bool:
    return any(inbox.debt for inbox in client.inboxes.values())


def said(client: Client) -> list[bytes]:
    """What a client has said that its broker has not heard."""
    return client.host.schedule.waiting(SideChannel("up", client))
