"""Generated histories of a chain of services, with events that are delayed, expire and weigh.

    sources ── stage 1 ──► service "first" ── stage 2 ──► service "second" ── stage 3

Each service is a durable subscription, or a durable group. It takes an event and publishes one of
the next stage, in one transaction. Some events are to be delivered later, some expire, some are
cancelled before they are due; services may want higher priorities first. Connections break,
processes die, brokers crash, disks are full, homes move. At the end everything heals and the
services deal with all they get. Then of each acknowledged event there is exactly one of stage 3 in
all journals, unless it has expired or was cancelled; then there is one at most, or none.

Run as a program it takes a number of histories and a first seed:

    python tests/node/live/chain_histories.py 1000 0
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from typing import Any

from overlay import Overlay

from stentor.errors import LeaseExpired, TransactionLost
from stentor.model import Notification, NotificationId, decode
from stentor.node import settling
from stentor.protocol import messages as m
from stentor.simulation.client import Client, Key, SimulatedCommit, SimulatedInbox

SERVICES = {"first": 1, "second": 2}
FAULTS = ("links", "brokers", "connections", "processes", "disks", "moves")


class Chain:
    """One generated run."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        names = [f"b{i}" for i in range(rng.randint(1, 3))]
        links = [(names[rng.randrange(i)], names[i]) for i in range(1, len(names))]
        self.sim = Overlay(links, brokers=names, queue=rng.choice([3, 1_000]), seed=seed)
        self.unsettled = rng.choice([5, settling.UNSETTLED])
        self.faults = {kind for kind in FAULTS if rng.random() < 0.4}
        self.sources = [self.sim.client(at=rng.choice(names)) for _ in range(rng.randint(1, 2))]
        self.subs: dict[Client, SimulatedInbox] = {}
        self.service: dict[Client, str] = {}
        self.options: dict[str, dict[str, Any]] = {}
        for name in SERVICES:
            ranked, group = rng.random() < 0.4, rng.random() < 0.4
            terms = m.Settlement(
                least=0.1,
                most=3.0,
                deadline=rng.choice([0.0, 2.0]) if group else 0.0,
                overtake=rng.random() < 0.3,
                ranked=ranked,
            )
            self.options[name] = {"durable": name, "settlement": terms}
            if group:
                self.options[name]["group"] = name
            home = rng.choice(names)
            for _ in range(rng.randint(1, 2) if group else 1):
                client = self.sim.client(at=home)
                client.window = rng.choice([1, 3, 100])
                self.service[client] = name
        self.stored: dict[str, set[Key]] = {name: set() for name in SERVICES}
        #: By number, the events of the sources; when each expires, and those that were cancelled.
        self.events: dict[int, NotificationId] = {}
        self.ends: dict[int, float] = {}
        self.cancelled: set[int] = set()
        #: Those of which nobody has said whether they are, since their broker has crashed.
        self.asked: set[int] = set()
        self.numbers = count()
        self.kinds: Counter[str] = Counter()
        for client in self.service:
            self._open(client)

    def _open(self, client: Client) -> None:
        name = self.service[client]
        sub = self.subs[client] = client.open(f"stage = {SERVICES[name]}", **self.options[name])
        sub.stored = self.stored[name]

    def run(self) -> None:
        rng, sim = self.rng, self.sim
        before, settling.UNSETTLED = settling.UNSETTLED, self.unsettled
        try:
            sim.settle()
            for _ in range(rng.randint(10, 80)):
                self.act()
                sim.advance(rng.choice([0, 1, 5, 20]))
            self.finish()
            self.judge()
        finally:
            settling.UNSETTLED = before

    # -- what happens

    def act(self) -> None:
        actions = [
            (self.publish, 20),
            (self.commit, 35),
            (self.refuse, 5),
            (self.cancel, 3),
            (self.tick, 10),
            (self.come_back, 8),
        ]
        faults = {
            "links": [(self.cut, 2), (self.mend, 3)],
            "brokers": [(self.crash, 3)],
            "connections": [(self.disconnect, 5)],
            "processes": [(self.die, 4)],
            "disks": [(self.disks, 2)],
            "moves": [(self.move, 3)],
        }
        for kind in sorted(self.faults):
            actions += faults[kind]
        [act] = self.rng.choices([a for a, _ in actions], [w for _, w in actions])
        self.kinds[act.__name__] += 1
        act()

    def publish(self) -> None:
        rng = self.rng
        found = []
        for _ in range(rng.choice([1, 1, 3])):
            number, parts, due = next(self.numbers), {}, self.sim.time
            if rng.random() < 0.3:
                due += rng.choice([-1.0, 0.5, 4.0])
                parts["deliver_at"] = datetime.fromtimestamp(due, UTC)
            if rng.random() < 0.2:
                self.ends[number] = max(due, self.sim.time) + rng.choice([0.5, 5.0])
                parts["expires"] = datetime.fromtimestamp(self.ends[number], UTC)
            priority = rng.choice([4, 4, rng.randint(0, 9)])
            found.append(Notification({"stage": 1, "k": number}, priority=priority, **parts))
        ids = rng.choice(self.sources).send(found)
        self.events.update(zip((n["k"] for n in found), ids, strict=True))

    def _sub(self) -> SimulatedInbox:
        return self.subs[self.rng.choice(list(self.subs))]

    def commit(self) -> None:
        sub = self._sub()
        for _ in range(self.rng.choice([1, 1, 3])):
            sub.hand_out()
        if sub.client.broker is not None and sub.hands:
            keys = [key for key in sub.hands if self.rng.random() < 0.8]
            self._commit(sub, keys)

    def _commit(self, sub: SimulatedInbox, keys: list[Key]) -> SimulatedCommit | None:
        pending = {key for each in sub.client.commits.values() for key in each.keys}
        keys = [key for key in keys if key not in pending]
        if not keys:
            return None
        events = []
        for key in keys:
            n = sub.hands[key].notification
            if not n.expires or n.expires.timestamp() > self.sim.time:
                events.append({"stage": n["stage"] + 1, "k": n["k"]})
        self.kinds["transactions"] += 1
        return sub.client.commit(sub, keys, events)

    def refuse(self) -> None:
        sub = self._sub()
        pending = {key for each in sub.client.commits.values() for key in each.keys}
        mine = [key for key in sub.hands if key not in pending]
        if sub.client.broker is not None and mine:
            key = self.rng.choice(mine)
            refused = m.Refused(*key, self.rng.choice([None, 0.0]), "", sub.hands[key].attempt)
            sub.client.settle(sub, begun=list(sub.hands), refused=[refused])

    def cancel(self) -> None:
        client = self.rng.choice(self.sources)
        mine = {str(id): k for k, id in self.events.items() if id.producer == client.id}
        host = client.broker
        if host is None or not mine:
            return
        id = self.rng.choice(list(mine))

        def answer(cancelled: bool, error: Exception | None) -> None:
            self.asked.discard(mine[id])
            if cancelled:
                self.kinds["cancelled"] += 1
                self.cancelled.add(mine[id])

        self.asked.add(mine[id])
        host.core.scheduling.cancel(host.core.sessions[client.session], id, answer)
        host.flush()

    def tick(self) -> None:
        self.sim.tick(self.rng.choice([0.2, 1.1, 3.1]))

    def come_back(self) -> None:
        for client in (*self.service, *self.sources):
            home = self.sim.hosts[client.homes[-1]]
            if client.broker is None and home.up:
                client.connect(home)

    def disconnect(self) -> None:
        self.rng.choice(list(self.service)).disconnect()

    def die(self) -> None:
        """A process dies; a member of a group that comes back is another one."""
        client = self.rng.choice(list(self.service))
        client.restart()
        if "group" in self.options[self.service[client]]:
            self._open(client)

    def move(self) -> None:
        """An operator lets a durable subscription live at another broker."""
        name = self.rng.choice(list(SERVICES))
        host = self.rng.choice([h for h in self.sim.hosts.values() if h.up])
        home = host.core.homes.registry.get(name)
        if home is not None and home.broker and host.core.directory.reaches(home.broker.stream):
            host.core.homes.fetch(name)
            host.flush()

    def crash(self) -> None:
        name = self.rng.choice(list(self.sim.hosts))
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
        """Everything heals, and services deal with what they get."""
        for _ in range(400):
            self.come_back()
            self.sim.settle()
            found = any(h.log.schedule for h in self.sim.hosts.values())
            for sub in self.subs.values():
                while sub.hand_out():
                    pass
                found = found or bool(sub.hands) or bool(sub.client.commits)
                if sub.hands:
                    self._commit(sub, list(sub.hands))
            self.sim.advance()
            if not found and not any(map(len, self._books())):
                return
        raise AssertionError("services do not come to an end")

    def _books(self) -> list[Any]:
        found = [h.core.subscriptions.values() for h in self.sim.hosts.values() if h.up]
        return [s.settling for each in found for s in each if s.settling is not None]

    def judge(self) -> None:
        stages: dict[int, Counter[int]] = {1: Counter(), 2: Counter(), 3: Counter()}
        ids: Counter[NotificationId] = Counter()
        for host in self.sim.hosts.values():
            assert not len(host.core.scheduling.schedule)
            for data, at in host.log.entries:
                n = decode(data)
                assert n.id is not None
                ids[n.id] += 1
                stages[n["stage"]][n["k"]] += 1
                if n.deliver_at is not None:
                    assert at >= n.deliver_at.timestamp(), f"{n.id} came before its time"
        assert all(number == 1 for number in ids.values()), f"{ids.most_common(1)} is there twice"
        for k, id in self.events.items():
            first, last = stages[1][k], stages[3][k]
            assert stages[2][k] <= first <= 1
            assert last <= stages[2][k]
            if k in self.cancelled:
                assert not first, f"{k} was cancelled, and came"
            elif k not in self.ends.keys() | self.asked and self.sim.publications[id].acknowledged:
                assert last == 1, f"{k} is lost"
        for name in SERVICES:
            homes = [h for h in self.sim.hosts.values() if name in h.core.durables]
            [durable] = [h.core.durables[name] for h in homes]
            assert not durable.dying
            assert not durable.intervals, durable.done
        for client in self.service:
            codes = {each.code for each in client.commits.values()}
            assert codes <= {"", LeaseExpired.code, TransactionLost.code}


def run_history(seed: int) -> Chain:
    history = Chain(seed)
    try:
        history.run()
    except BaseException as error:
        error.add_note(f"history with seed {seed}, faults {sorted(history.faults)}")
        error.add_note(f"{history.options}")
        raise
    return history


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    start = time.perf_counter()
    kinds: Counter[str] = Counter()
    for seed in range(first, first + wanted):
        kinds += run_history(seed).kinds
    print(f"{wanted} histories, none wrong, {time.perf_counter() - start:.0f} s")
    for name, number in kinds.most_common():
        print(f"  {number:7} {name}")


if __name__ == "__main__":
    main()
