"""Generated histories of subscribers that settle notifications one by one, and of what fails.

A durable subscription, or a durable group, has its home at one broker of a small tree. What its
applications get they acknowledge, refuse, keep for longer, or forget about; connections break,
processes die, brokers crash or leave for good, disks are full, the home moves. At the end
everything heals and the applications deal with all they get. Then each publication that was
acknowledged has been settled by some application, or there is one dead letter of it.

Run as a program it takes a number of histories and a first seed:

    python tests/node/live/settling_histories.py 1000 0
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Any

from live_histories import small
from overlay import Overlay

from stentor.model import Notification, NotificationId, decode
from stentor.model.dead_letter import PRODUCER
from stentor.node import reading, settle_portions, settling
from stentor.node.parts import settlements
from stentor.protocol import messages as m
from stentor.protocol.messages import StreamId
from stentor.simulation.broker import SimulatedBroker
from stentor.simulation.client import Client, Key, SimulatedInbox

NAME = "billing"
FAULTS = ("links", "home", "connections", "processes", "disks", "hangs", "moves")

#: What is much takes many steps.
STEPS: list[tuple[Any, str, int]] = [
    (settle_portions, "NAMED", 1),
    (settlements, "REFUSED", 1),
]


class Settlements:
    """One generated run."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        names = [f"b{i}" for i in range(rng.randint(1, 3))]
        links = [(names[rng.randrange(i)], names[i]) for i in range(1, len(names))]
        self.sim = Overlay(links, brokers=names, queue=rng.choice([1, 3, 1_000]), seed=seed)
        self.group = rng.random() < 0.4
        attempts = rng.choice([0, 0, 1, 2, 3])
        self.terms = m.Settlement(
            attempts=attempts,
            least=rng.choice([0.1, 1.0]),
            most=3.0,
            deadline=rng.choice([0.0, 0.0, 2.0]),
            dead_letter=attempts > 0,
            overtake=rng.random() < 0.3,
        )
        self.unsettled = rng.choice([2, 5, settling.UNSETTLED])
        #: What one step does at most, drawn apart from everything else.
        apart = random.Random(-seed - 1)
        self.steps = [(settling, "UNSETTLED", self.unsettled)]
        self.steps += [step for step in STEPS if apart.random() < 0.5]
        self.faults = {kind for kind in FAULTS if rng.random() < 0.4}
        #: What applications do while they have no connection.
        self.alone = random.Random(f"alone {seed}")
        #: After so many steps a broker leaves for good, and perhaps somebody moves things then.
        self.leaving = random.Random(f"drain {seed}")
        self.leaves = self.leaving.randint(0, 60) if self.leaving.random() < 0.3 else -1
        options: dict[str, Any] = {"durable": NAME, "settlement": self.terms}
        if self.group:
            options |= {"group": "g", "choice": rng.choice(["round_robin", "least_loaded"])}
        self.options = options
        self.publishers = [self.sim.client(at=rng.choice(names)) for _ in range(rng.randint(1, 2))]
        self.members = [self.sim.client(at="b0") for _ in range(rng.randint(1, 3))]
        if not self.group:
            del self.members[1:]
        #: What is settled on disk, whoever did it, and what applications have settled.
        self.stored: set[Key] = set()
        self.settled: set[NotificationId] = set()
        #: What was refused and not settled since: with the attempt at which it was.
        self.failed: dict[Key, tuple[str, int]] = {}
        self.subs: dict[Client, SimulatedInbox] = {}
        self.kinds: Counter[str] = Counter()
        for client in self.members:
            client.window = rng.choice([1, 3, 100])
            self._open(client)

    def _open(self, client: Client) -> None:
        sub = self.subs[client] = client.open("exists x", **self.options)
        sub.stored = self.stored

    def run(self) -> None:
        rng, sim = self.rng, self.sim
        with small(reading.STRETCH, reading.FETCHES, self.steps):
            sim.settle()
            self.begun = sim.steps
            for number in range(rng.randint(10, 80)):
                if number == self.leaves:
                    self.drain()
                self.act()
                sim.advance(rng.choice([0, 1, 5, 20]))
                self._bounds()
            self.finish()
            self.judge()

    # -- what happens

    def act(self) -> None:
        actions = [
            (self.publish, 20),
            (self.take, 25),
            (self.acknowledge, 15),
            (self.refuse, 10),
            (self.extend, 2),
            (self.credit, 5),
            (self.tick, 8),
            (self.come_back, 8),
        ]
        faults = {
            "links": [(self.cut, 2), (self.mend, 3)],
            "home": [(self.crash, 2)],
            "connections": [(self.disconnect, 4)],
            "processes": [(self.die, 3)],
            "disks": [(self.disks, 2)],
            "hangs": [(self.hang, 4)],
            "moves": [(self.move, 4)],
        }
        for kind in sorted(self.faults):
            actions += faults[kind]
        [act] = self.rng.choices([a for a, _ in actions], [w for _, w in actions])
        self.kinds[act.__name__] += 1
        act()

    def publish(self) -> None:
        events = [{"x": 1}] * self.rng.choice([1, 1, 2, 5])
        self.rng.choice(self.publishers).send(events)

    def _sub(self) -> SimulatedInbox:
        return self.subs[self.rng.choice(self.members)]

    def take(self) -> None:
        for _ in range(self.rng.choice([1, 1, 3])):
            self._take(self._sub())

    def _take(self, sub: SimulatedInbox) -> Key | None:
        found = sub.hand_out()
        if found is None:
            return None
        (stream, offset), held = found
        producer = held.id.producer
        known = self.failed.get((stream, offset))
        if known is not None and held.attempt <= known[1]:
            del self.failed[stream, offset]  # the home has never heard of it
        if not self.group and not self.terms.overtake:
            for (s, o), (p, _) in self.failed.items():
                if s == stream and p == producer and o < offset:
                    first = decode(self.sim.journal(s).entries[o - 1][0]).id
                    dead = str(first) in self.letters()
                    assert dead, f"{stream}:{offset} came before {o}, which was refused"
        assert not self.terms.attempts or held.attempt <= self.terms.attempts
        if self.rng.random() < 0.7:
            sub.client.settle(sub, begun=[(stream, offset)])
        return stream, offset

    def acknowledge(self) -> None:
        sub = self._sub()
        keys = [key for key in sub.hands if self.rng.random() < 0.7]
        self._acknowledge(sub, keys, request=self.rng.random() < 0.4)

    def _acknowledge(self, sub: SimulatedInbox, keys: list[Key], *, request: bool = False) -> None:
        if not keys:
            return
        self.settled.update(sub.hands[key].id for key in keys)
        for key in keys:
            self.failed.pop(key, None)
        if self.group and self.terms.deadline:
            request = False  # it may be somebody else's by then
        sub.client.settle(sub, done=keys, request=request)

    def refuse(self) -> None:
        sub = self._sub()
        if not sub.hands:
            return
        rng = self.rng if sub.client.broker is not None else self.alone
        key = rng.choice(list(sub.hands))
        delay = rng.choice([None, None, 0.0, 2.0])
        self._failed(key, sub.hands[key].id.producer, sub.hands[key].attempt)
        refused = m.Refused(*key, delay, "it is wrong", sub.hands[key].attempt)
        sub.client.settle(sub, begun=list(sub.hands), refused=[refused])

    def _failed(self, key: Key, producer: str, attempt: int) -> None:
        if self.terms.attempts and attempt >= self.terms.attempts:
            self.failed.pop(key, None)
        else:
            self.failed[key] = producer, attempt

    def extend(self) -> None:
        sub = self._sub()
        if sub.hands:
            key = self.rng.choice(list(sub.hands))
            sub.client.settle(sub, extended=[(*key, 5.0)])

    def hang(self) -> None:
        """Time passes, and applications do nothing."""
        for _ in range(3):
            self.sim.tick(1.0)
            self.sim.advance(20)

    def credit(self) -> None:
        self.rng.choice(self.members).give_credit()

    def tick(self) -> None:
        self.sim.tick(self.rng.choice([0.2, 1.1, 3.1]))

    def come_back(self) -> None:
        sim = self.sim
        for client in (*self.members, *self.publishers):
            home = sim.hosts[client.homes[-1]]
            if client.broker is None and home.up:
                client.connect(home)

    def disconnect(self) -> None:
        self.rng.choice(self.members).disconnect()

    def die(self) -> None:
        """A process dies; a member of a group that comes back is another one."""
        client = self.rng.choice(self.members)
        client.restart()
        if self.group:
            self._open(client)

    def move(self) -> None:
        """An operator lets it live at another broker."""
        self._fetch(self.rng.choice([h for h in self.sim.hosts.values() if h.up]))

    def _fetch(self, host: SimulatedBroker) -> None:
        core = host.core
        home = core.homes.registry.get(NAME)
        # One that cannot be reached would be taken over, which is not exact.
        if home is not None and home.broker and core.directory.reaches(home.broker.stream):
            core.homes.fetch(NAME)
            host.flush()

    def drain(self) -> None:
        """A broker is removed, while what was moved may be on its way."""
        sim, rng = self.sim, self.leaving
        links = sorted(link for link in sim.queues if all(sim.hosts[name].up for name in link))
        if not links or sim.disks_fail:
            return
        self.kinds["drain"] += 1
        name, heir = rng.choice(links)
        if rng.random() < 0.6:
            self._fetch(rng.choice([host for host in sim.hosts.values() if host.up]))
            sim.advance(rng.choice([0, 2, 5, 10, 20, 40]))
        if all(sim.hosts[end].up for end in (name, heir)):
            sim.drain(name, heir)

    def crash(self) -> None:
        name = self.rng.choice([name for name in self.sim.hosts if name not in self.sim.heirs])
        self.sim.crash(name)
        self.sim.restart(name)

    def cut(self) -> None:
        if self.sim.queues:
            self.sim.disconnect(*self.rng.choice(list(self.sim.queues)))

    def mend(self) -> None:
        if self.sim.wires:
            self.sim.connect(*self.rng.choice(self.sim.wires))

    def disks(self) -> None:
        self.sim.disks_fail = not self.sim.disks_fail

    # -- the end

    def finish(self) -> None:
        """Everything heals, and applications deal with what they get."""
        sim = self.sim
        for _ in range(400):
            self.come_back()
            sim.settle()
            found = False
            for sub in self.subs.values():
                while sub.waiting or sub.hands:
                    found = True
                    while self._take(sub):
                        pass
                    self._acknowledge(sub, list(sub.hands), request=True)
                    sim.advance()
            if not found and not any(b.settling for b in self._books()):
                return
        raise AssertionError("applications do not come to an end")

    def _books(self) -> list[Any]:
        found = [h.core.subscriptions.values() for h in self.sim.hosts.values() if h.up]
        return [s for each in found for s in each if s.settling is not None]

    def _bounds(self) -> None:
        for each in self._books():
            assert len(each.settling) <= self.unsettled + 3  # it may have been held before
            assert each.durable.intervals <= self.unsettled + 3

    def letters(self) -> dict[str, list[Notification]]:
        found: dict[str, list[Notification]] = {}
        for host in self.sim.hosts.values():
            for data, _ in host.log.entries:
                each = decode(data)
                assert each.id is not None
                if each.id.producer.startswith(PRODUCER):
                    assert each["durable"] == NAME
                    found.setdefault(each["original"], []).append(each)
        return found

    def judge(self) -> None:
        sim, letters = self.sim, self.letters()
        for original, found in letters.items():
            assert len(found) == 1, f"{len(found)} dead letters of {original}"
            assert found[0]["attempts"] == self.terms.attempts > 0
            assert found[0]["event.x"] == 1
        for id, known in sim.publications.items():
            if known.acknowledged and known.at >= self.begun:
                assert id in self.settled or str(id) in letters, f"{id} is lost"
        cores = [host.core for host in sim.hosts.values() if host.up]
        [durable] = [core.durables[NAME] for core in cores if NAME in core.durables]
        assert not durable.dying
        assert not any(durable.refused.values()), durable.refused
        assert not durable.intervals, durable.done
        heads: dict[StreamId, int] = {h.log.stream: h.log.head for h in sim.hosts.values()}
        for stream, position in durable.positions.items():
            assert position <= heads[stream]


def run_history(seed: int) -> Settlements:
    history = Settlements(seed)
    try:
        history.run()
    except BaseException as error:
        error.add_note(f"history with seed {seed}, faults {sorted(history.faults)}")
        error.add_note(f"group {history.group}, {history.terms}")
        raise
    return history


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    start = time.perf_counter()
    kinds: Counter[str] = Counter()
    settled = letters = 0
    for seed in range(first, first + wanted):
        history = run_history(seed)
        kinds += history.kinds
        settled += len(history.settled)
        letters += len(history.letters())
    seconds = time.perf_counter() - start
    print(f"{wanted} histories, none wrong, {settled} settled, {letters} dead, {seconds:.0f} s")
    for name, number in kinds.most_common():
        print(f"  {number:7} {name}")


if __name__ == "__main__":
    main()
