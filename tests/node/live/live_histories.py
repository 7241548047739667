"""Generated histories of live overlays, with everything that may go wrong.

A history is made from a seed: a tree or graph of brokers with large or tiny queues, clients, and
a random sequence of what clients do and what fails, while messages arrive, disks write and journals
are read in any order that is possible. At the end everything heals, and `judging` says what must
hold.

Run as a program it takes a number of histories, a first seed, and perhaps a shape:

    python tests/node/live/live_histories.py 1000 0
    python tests/node/live/live_histories.py 1000 0 rendezvous
    python tests/node/live/live_histories.py 1000 0 steered

In one that is steered, advertisements say where subscriptions go, and all that clients offer comes
and goes: just what they are about to publish, until they have.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from judging import judge, judge_empty
from overlay import Overlay

from stentor.filters import Filter
from stentor.model import Notification
from stentor.node import feed, reading, sessions
from stentor.node.parts import deliveries, offers, probing, publishing, routing, traffic
from stentor.node.parts import overlay as overlay_part
from stentor.protocol import messages as m
from stentor.routing import STRATEGIES, Strategy
from stentor.routing.graph import router as graph_router
from stentor.routing.reducers import covering
from stentor.routing.tree import layer
from stentor.simulation.broker import SimulatedBroker
from stentor.simulation.client import Client, SimulatedInbox

EVENTS: list[dict[str, Any]] = [{"x": x, "y": y} for x in range(4) for y in range(3)]
FAULTS = ("links", "brokers", "clients", "disks", "retention", "processes", "wiring", "cycles")
FILTERS = (
    *(f"x = {x}" for x in range(4)),
    *("x >= 1", "x < 3", "y = 1", "y >= 1 and x > 0", "true", "x = 0 or y = 2"),
)
#: The same where brokers find each other by types.
TYPED = [
    Notification(event, type=type)
    for event in EVENTS
    for type in ("a", "a.b", "a.c", "d", "e.f", None)
]
OF_TYPES = (
    *("isa a", "isa a.b", "isa a.c and x > 0", "isa d", "isa e", "isa e.f and y = 1"),
    *("isa d or isa e", "isa a and x = 1", "isa a.b or (isa d and y >= 1)", "isa g", "isa d"),
    *("x = 1", "isa a or x = 0"),
)


#: What one step does at most: small, so that what is much takes many steps, and as it is.
STEPS: list[tuple[Any, str, int]] = [
    (publishing, "ROUTED_BYTES", 50),
    (publishing, "CHECKED_AT_ONCE", 2),
    (publishing, "ROUTED_AT_ONCE", 2),
    (traffic, "COST_AT_ONCE", 40),
    (traffic, "MOST_AT_ONCE", 3),
    (deliveries, "SERVED_AT_ONCE", 1),
    (probing, "TOLD_AT_ONCE", 1),
    (overlay_part, "FEEDS_AT_ONCE", 1),
    (overlay_part, "MARKS_AT_ONCE", 1),
    (routing, "UNLINKED_AT_ONCE", 1),
    (sessions, "TAKEN_DOWN", 1),
    (offers, "PAIRS_AT_ONCE", 1),
    (reading, "LOOKED_BYTES", 100),
]

#: The same, drawn apart from everything else.
EFFORTS: list[tuple[Any, str, int]] = [
    (routing, "EFFORT", -1),
    (covering, "EFFORT", -1),
    (layer, "TOLD_AT_ONCE", 1),
    (traffic, "FED_AT_ONCE", 1),
    (layer, "STEERED", 1),
    (graph_router, "STEERED", 1),
]


@contextmanager
def small(stretch: int, fetches: int, steps: Iterable[tuple[Any, str, int]] = ()) -> Iterator[None]:
    """Read journals in stretches of so many, with so many requests at a time."""
    small = [(reading, "STRETCH", stretch), (feed, "STRETCH", stretch)]
    small += [(reading, "FETCHES", fetches), *steps]
    before = [(module, name, getattr(module, name)) for module, name, _ in small]
    try:
        for module, name, value in small:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class History:
    """One generated run."""

    def __init__(
        self, seed: int, *, shape: str | None = None, hangs: bool = False, steered: bool = False
    ) -> None:
        #: What clients offer is drawn apart.
        self.offering = random.Random(f"offers {seed}") if steered else None
        rng = self.rng = random.Random(seed)
        drawn = rng.random() < 0.4 if shape is None else shape != "tree"
        self.rendezvous = shape == "rendezvous"
        #: Whether links may form cycles.
        self.graph = drawn
        self.events = TYPED if self.rendezvous else EVENTS
        self.filters = FILTERS
        if self.rendezvous:  # mostly without those that concern everybody
            self.filters = OF_TYPES if random.Random(~seed).random() < 0.3 else OF_TYPES[:-2]
        size = rng.choice([3, 4, 4, 5, 6] if self.graph else [1, 2, 2, 3, 3, 4, 5, 7])
        names = [f"b{i}" for i in range(size)]
        links = [(names[rng.randrange(i)], names[i]) for i in range(1, size)]
        if self.graph:
            links += [
                (a, b) for a, b in (rng.sample(names, 2) for _ in range(rng.randint(1, size)))
            ]
            links = list({frozenset(link): link for link in links}.values())
        #: Peers at the core, if there are several, and hierarchies below them.
        parents = {}
        if self.graph and not self.rendezvous and rng.random() < 0.3:
            for i in range(size, size + rng.randint(1, 3)):
                names.append(f"b{i}")
                parents[names[i]] = names[rng.randrange(i)]
            links += [(above, below) for below, above in parents.items()]
        elif not self.graph and rng.random() < 0.25:
            roots = names[: rng.choice([1, 1, 2, 3])]
            parents = {b: a for a, b in links if b not in roots}
        self.stretch = rng.choice([2, 3, 1_000])
        self.fetches = rng.choice([1, 2, 32])
        self.steps = [step for step in STEPS if rng.random() < 0.3]
        apart = random.Random(-seed - 1)
        self.steps += [step for step in EFFORTS if apart.random() < 0.3]
        queue = rng.choice([1, 2, 4, 1_000])
        limit = rng.choice([2, 5, 10_000])
        routing, advertisements = self._strategies()
        if self.rendezvous:
            routing, advertisements = routing if not routing.floods else Strategy("simple"), None
        self.sim = Overlay(
            links,
            brokers=names,
            queue=queue,
            link_limit=limit,
            seed=seed,
            routing=routing,
            advertisements=advertisements,
            mixed=rng.choice([0, 0, seed + 1]),
            graph=self.graph,
            rendezvous=self.rendezvous,
            parents=parents,
        )
        self.queue = queue
        #: What may go wrong in this history.
        self.faults = {kind for kind in FAULTS if rng.random() < 0.4}
        #: Whether very much is published while links fail: much is then on its way.
        self.busy = self.graph and rng.random() < 0.6
        if self.busy:
            self.faults = {"links", rng.choice(FAULTS)}
        if self.rendezvous:
            self.faults -= {"cycles"}
        if parents:
            self.faults -= {"wiring", "cycles"}
        self.sim.moves = rng.random() < 0.3
        self.storm = rng.choice([1, 1, 4])
        self.kinds: Counter[str] = Counter()
        for _ in range(rng.randint(1, 4)):
            client = self.sim.client(at=rng.choice(names))
            client.slow = rng.random() < 0.3
            client.window = rng.choice([1, 2, 100])
        self.durable_names = 0
        #: Brokers that hang are drawn apart, so that histories without them stay as they are; and
        #: so are clients that do not read.
        self.hanging = random.Random(seed) if hangs else None
        self.deafness = random.Random(f"deaf {seed}")
        self.deaf = 0.04 if self.deafness.random() < 0.3 else 0.0
        #: Whether somebody publishes as soon as a subscription is in force, and which are known.
        self.eagerness = random.Random(f"eager {seed}")
        self.eager = self.eagerness.random() < 0.3
        self.known_in_force: set[str] = set()

    def _strategies(self) -> tuple[Strategy, Strategy | None]:
        """Half of the histories have brokers as they are without any settings."""
        rng = self.rng
        if self.offering is not None:
            names = [rng.choice(STRATEGIES), rng.choice([s for s in STRATEGIES if s != "flooding"])]
            loose = rng.choice([0.0, 0.3])
            routing, offers = (Strategy(n, loose if n == "merging" else 0.0) for n in names)
            return routing, offers
        if rng.random() < 0.5:
            return Strategy("covering"), None
        name = rng.choice(STRATEGIES)
        routing = Strategy(name, rng.choice([0.0, 0.3]) if name == "merging" else 0.0)
        offers = Strategy(rng.choice(STRATEGIES))
        return routing, offers if rng.random() < 0.7 else None

    def run(self) -> None:
        rng, sim = self.rng, self.sim
        with small(self.stretch, self.fetches, self.steps):
            if self.busy:
                for _ in range(rng.randint(2, 6)):
                    self.subscribe()
                sim.settle()
            for _ in range(rng.randint(1, 3)):
                for _ in range(rng.randint(40, 80) if self.busy else rng.randint(5, 40)):
                    self.act()
                    most = rng.choice([0, 1, 5, 20])
                    if self.eager:
                        for _ in range(most):
                            sim.advance(1)
                            self.answer_subscribers()
                    else:
                        sim.advance(most)
                    self.bounds()
                sim.settle()
                self.bounds()
                self.demand()
                judge(sim)
            self.quiet()
            self.leave()

    # -- what happens

    def act(self) -> None:
        actions = [
            (self.publish, 90 if self.busy else 30),
            (self.subscribe, 10),
            (self.unsubscribe, 3),
            (self.amend, 6),
            (self.confirm, 6),
            (self.credit, 6),
            (self.tick, 5),
            (self.advertise, 1),
            (self.reconnect, 6),
            (self.ask_again, 3),
            (self.sim.dawdle, 3),
        ]
        faults = {
            "links": [(self.break_link, 4), (self.mend_link, 5)],
            "brokers": [(self.crash, 2), (self.restart, 4)],
            "clients": [(self.disconnect, 4)],
            "disks": [(self.disk, 2)],
            "retention": [(self.trim, 3)],
            "processes": [(self.kill_client, 2)],
            "wiring": [(self.rewire, 3)],
            "cycles": [(self.close_cycle, 2)],
        }
        for kind in sorted(self.faults):
            actions += [(act, self.storm * weight) for act, weight in faults[kind]]
        [act] = self.rng.choices([a for a, _ in actions], [w for _, w in actions])
        if self.hanging is not None and self.hanging.random() < 0.05:
            act = self.hang
        if self.deafness.random() < self.deaf:
            act = self.stop_reading
        if self.offering is not None and self.offering.random() < 0.25:
            act = self.withdraw
        self.kinds[act.__name__] += 1
        act()

    def _client(self) -> Client:
        return self.rng.choice(self.sim.clients)

    def _hosts(self) -> list[SimulatedBroker]:
        return [host for host in self.sim.hosts.values() if host.up]

    def publish(self) -> None:
        rng = self.rng
        events = [self._event() for _ in range(rng.choice([1, 1, 2, 5]))]
        client = self._client()
        self.offer_all(client, *events)
        client.send(events, volatile=rng.random() < 0.15)

    def answer_subscribers(self) -> None:
        """Publish something for each who has just heard that it is in force."""
        for sub in self.sim.subs:
            if sub.in_force is not None and sub.component not in self.known_in_force:
                self.known_in_force.add(sub.component)
                others = [c for c in self.sim.clients if c.broker not in (None, sub.client.broker)]
                wanted = [event for event in self.events if sub.wants(event)]
                if others and wanted:
                    client = self.eagerness.choice(others)
                    event = self.eagerness.choice(wanted)
                    self.offer_all(client, event)
                    client.send([event if isinstance(event, Notification) else dict(event)])

    def _event(self) -> Any:
        event = self.rng.choice(self.events)
        return event if isinstance(event, Notification) else dict(event)

    def offer_all(self, client: Client, *events: Any) -> None:
        """Where it has to be, what the client may publish is advertised, in one piece or two."""
        if self.offering is not None:
            for event in events:
                x, y = event["x"], event["y"]
                if not any(offer.matches(event) for offer in client.offered.values()):
                    texts = f"x = {x}", f"x = {x} and y = {y}", f"y <= {y}", "exists x"
                    client.offer(Filter(self.offering.choice(texts)))
        elif self.sim.enforced and not all(
            any(offer.matches(event) for offer in client.offered.values()) for event in EVENTS
        ):
            for text in self.rng.choice([("true",), ("exists x",), ("x < 2", "x >= 2")]):
                client.offer(Filter(text))

    def subscribe(self) -> None:
        rng = self.rng
        client = self._client()
        if len(client.inboxes) >= 4:
            return
        options: dict[str, Any] = {}
        kind = rng.random()
        if kind < 0.3:
            self.durable_names += 1
            options["durable"] = f"d{self.durable_names}"
        elif kind < 0.4:
            options["overflow"] = rng.choice(["drop_oldest", "drop_newest", "disconnect", "block"])
        elif kind < 0.5:
            options["lease"] = rng.choice([3.0, 60.0])
        elif kind < 0.6:
            options["volatile"] = True
        if "volatile" not in options and rng.random() < 0.2:
            options["since"] = rng.choice([0.0, self.sim.time - 0.05])
        if rng.random() < 0.2:
            options["limit"] = rng.choice([1, 3])
        if rng.random() < 0.4:
            client.open_inbox(*rng.sample(self.filters, rng.choice([0, 1, 3])), **options)
        else:
            client.open(rng.choice(self.filters), **options)

    def amend(self) -> None:
        """An inbox asks for something else, whether its client is connected or not."""
        rng = self.rng
        inboxes = [s for c in self.sim.clients for s in c.inboxes.values() if s.changes]
        if inboxes:
            inbox = rng.choice(inboxes)
            if inbox.filters and rng.random() < 0.5:
                inbox.client.drop(inbox, rng.choice(list(inbox.filters)))
            else:
                inbox.client.add(inbox, rng.choice(self.filters))

    def _sub(self, *, connected: bool = True) -> SimulatedInbox | None:
        subs = [
            s
            for c in self.sim.clients
            if c.broker is not None or not connected
            for s in c.inboxes.values()
        ]
        return self.rng.choice(subs) if subs else None

    def unsubscribe(self) -> None:
        sub = self._sub()
        if sub is not None:
            sub.client.close(sub, forget=self.rng.random() < 0.5)

    def confirm(self) -> None:
        sub = self._sub()
        if sub is not None and sub.in_force is not None:
            sub.client.confirm(sub, request=self.rng.random() < 0.5)

    def credit(self) -> None:
        self._client().give_credit()

    def tick(self) -> None:
        self.sim.tick(self.rng.choice([0.2, 1.1, 2.0, 5.1]))

    def hang(self) -> None:
        assert self.hanging is not None
        name = self.hanging.choice(list(self.sim.hosts))
        self.sim.hang(name, self.hanging.choice([4, 6, 20]), self.hanging.choice([5, 100]))

    def advertise(self) -> None:
        client = self._client()
        if client.broker is not None and len(client.offered) < 2:
            client.offer(Filter(self.rng.choice(self.filters)))

    def withdraw(self) -> None:
        """Somebody of whom nothing is on its way offers something no longer."""
        assert self.offering is not None
        idle = [c for c in self.sim.clients if c.broker and c.offered and not c.unanswered]
        if idle:
            client = self.offering.choice(idle)
            client.withdraw(self.offering.choice(list(client.offered)))

    def reconnect(self) -> None:
        client = self._client()
        if client.broker is None and self.sim.places(client):
            self.sim.connect_again(client)

    def ask_again(self) -> None:
        self._client().ask_again()

    def disconnect(self) -> None:
        self._client().disconnect()

    def stop_reading(self) -> None:
        if self.sim.deaf and self.deafness.random() < 0.6:
            self.sim.read_on(min(self.sim.deaf, key=lambda client: client.id))
        else:
            self.sim.stop_reading(self.deafness.choice(self.sim.clients))

    def kill_client(self) -> None:
        client = self._client()
        client.restart()

    def break_link(self) -> None:
        if self.sim.queues:
            self.sim.disconnect(*self.rng.choice(list(self.sim.queues)))

    def mend_link(self) -> None:
        if self.sim.wires:
            self.sim.connect(*self.rng.choice(self.sim.wires))
        if self.rendezvous and self.rng.random() < 0.3:
            self.sim.mend_visits()

    def crash(self) -> None:
        hosts = self._hosts()
        if hosts:
            self.sim.crash(self.rng.choice(hosts).name)

    def restart(self) -> None:
        down = [h.name for h in self.sim.hosts.values() if not h.up]
        if down:
            self.sim.restart(self.rng.choice(down))

    def rewire(self) -> None:
        if self.sim.wires:
            self.sim.rewire(cycle=False)

    def close_cycle(self) -> None:
        if self.sim.wires:
            self.sim.rewire(cycle=True)

    def disk(self) -> None:
        self.sim.disks_fail = not self.sim.disks_fail

    def trim(self) -> None:
        host = self.rng.choice(list(self.sim.hosts.values()))
        host.log.trim(min(host.log.low + self.rng.randint(1, 5), host.core.head + 1))

    # -- what must hold

    def bounds(self) -> None:
        """Queues and buffers stay within what `feed` says."""
        for host in self._hosts():
            core = host.core
            assert len(core.catching_up.fetches) <= self.fetches
            for subscription in core.subscriptions.values():
                each = subscription.feed
                assert each.buffered <= each.limit
                most = (3 if each.overflow == "block" else 2) * each.limit + self.stretch
                assert len(each) + each.buffered <= most

    def demand(self) -> None:
        """Producers know what is asked for of what they offer; in a hierarchy perhaps more."""
        subs = [s for c in self.sim.clients for s in c.inboxes.values()]
        for client in self.sim.clients:
            for number, offer in client.offered.items():
                told = [Filter(text) for text in client.demand[number]]
                for event in self.events:
                    if offer.matches(event):
                        asked = any(s.wants(event) for s in subs)
                        wanted = any(f.matches(event) for f in told)
                        if self.sim.routing.is_exact and not self.sim.parents:
                            assert asked == wanted, (offer, told, event)
                        assert wanted or not asked, (offer, told, event)

    def quiet(self) -> None:
        """With nothing else going on, each publication reaches exactly who wants it."""
        sim = self.sim
        for _ in range(2):
            publisher = self._client()
            event = self._event()
            self.offer_all(publisher, event)
            sim.settle()
            before, leased = sim.counters.copy(), self.leased()
            [id] = publisher.send([event])
            sim.settle()
            for client in sim.clients:
                for sub in client.inboxes.values():
                    got = sum(each == id for _, _, each in sub.given)
                    if self.rendezvous and "volatile" in sub.options:
                        # The first of a type at a broker may come before those who ask are known.
                        assert got <= sub.wants(event), (sub.component, event, got)
                        continue
                    assert got == sub.wants(event), (sub.component, event, got)
            exact = sim.routing.is_exact and not sim.parents and not self.rendezvous
            if exact and not leased:  # or one that wanted it may have ended meanwhile
                used = (sim.counters - before).links["notification"]
                assert used == self.needed(publisher, event), (used, event)
        self.silence()

    def needed(self, publisher: Client, event: Any) -> Counter[tuple[Any, Any]]:
        """The links that lead from the publisher's broker to those who want the event."""
        sim, links = self.sim, set()
        entry = publisher.broker
        assert entry is not None
        for client in sim.clients:
            if any(sub.wants(event) for sub in client.inboxes.values()):
                at = client.broker
                while at is not None and at is not entry:
                    way = at.core.directory.towards(entry.log.stream)
                    assert way is not None
                    links.add((way, at.name))
                    at = sim.hosts[way]
        return Counter(links)

    def leased(self) -> bool:
        """Whether there is a subscription that ends by itself."""
        return any("lease" in s.options for c in self.sim.clients for s in c.inboxes.values())

    def silence(self) -> None:
        """When nothing happens, nobody says anything, however much time passes."""
        sim = self.sim
        if self.leased():
            return  # its end may be told
        sim.tick(1.1)  # copies of what has changed last
        sim.advance()
        before, heard = Counter(sim.said), [len(client.answers) for client in sim.clients]
        for seconds in (0.2, 1.1, 5.1, 5.1):
            sim.tick(seconds)
            sim.advance()
        said = sim.said - before
        del said[m.Wanted]  # what journals have to keep is said again and again
        assert not said, said
        assert [len(client.answers) for client in sim.clients] == heard

    def leave(self) -> None:
        sim = self.sim
        clients, sim.clients = sim.clients, []
        for client in clients:
            client.disconnect()
        sim.settle()
        judge_empty(sim)


def run_history(
    seed: int, *, shape: str | None = None, hangs: bool = False, steered: bool = False
) -> History:
    """One history; of a tree or a graph, unless a shape is given: also "rendezvous"."""
    history = History(seed, shape=shape, hangs=hangs, steered=steered)
    try:
        history.run()
    except BaseException as error:
        error.add_note(f"history with seed {seed}, faults {sorted(history.faults)}")
        raise
    return history


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    hangs, steered = "hangs" in sys.argv, "steered" in sys.argv
    shape = next((word for word in sys.argv[3:] if word not in ("hangs", "steered")), None)
    start = time.perf_counter()
    kinds: Counter[str] = Counter()
    given = 0
    for seed in range(first, first + wanted):
        history = run_history(seed, shape=shape, hangs=hangs, steered=steered)
        kinds += history.kinds
        given += sum(len(sub.given) for sub in history.sim.subs)
    seconds = time.perf_counter() - start
    print(f"{wanted} histories, none wrong, {given} notifications given, {seconds:.0f} s")
    for name, number in kinds.most_common():
        print(f"  {number:7} {name}")


if __name__ == "__main__":
    main()
