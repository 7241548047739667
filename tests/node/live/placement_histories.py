"""Generated histories of patterns that are placed by a policy, and of what fails meanwhile.

Clients at brokers of a small tree subscribe to patterns with any of the policies; others publish,
at any broker, one event at a time, and some advertise before what they might. As long as nothing
fails, each has exactly what the reference detector finds in all that was published since it was in
force. Where brokers crash and links break, nothing is invented, and once everything has healed what
is published from then on is found as before.

Run as a program it takes a number of histories and a first seed:

    python tests/node/live/placement_histories.py 1000 0
"""

from __future__ import annotations

import random
import sys
import time

from overlay import Overlay

from stentor.composite import Pattern, detect_local
from stentor.composite import expressions as e
from stentor.composite.distribution import DISTRIBUTIONS
from stentor.composite.intervals import moment
from stentor.model import Notification, NotificationId
from stentor.node.detection import text_of
from stentor.protocol import messages as m
from stentor.simulation.client import Client, SimulatedInbox

NAMES = "ABCDEF"
EVENTS = {name: f"n = '{name.lower()}'" for name in NAMES}


def random_pattern(rng: random.Random, *, parted: bool) -> Pattern:
    """Patterns of which most can be taken apart, and some can not."""

    def row(names: str) -> e.Expression:
        found: e.Expression | None = None
        for name in names:
            atom = e.Atom((name,), (name,))
            found = atom if found is None else e.Sequence(found, atom)
        assert found is not None
        return found

    names = "".join(rng.sample(NAMES, 4))
    left, right = row(names[:2]), row(names[2:])
    expression = rng.choice(
        [
            e.Sequence(e.Sequence(left, row(names[2])), row(names[3])),
            e.Sequence(left, e.Iteration(right, 1, 2)),
            e.Alternation(left, right),
            e.Alternation(e.Within(left, 30_000_000), right),
            e.Parallel(left, right),
            e.Within(e.Sequence(left, right), 60_000_000),
            e.Window(tuple(names[: rng.randint(2, 3)])),
        ]
    )
    partition = ("host",) if parted or rng.random() < 0.3 else ()
    events: dict[str, str | Pattern] = dict(EVENTS)
    if rng.random() < 0.2:
        events[names[3]] = Pattern(row(rng.choice("AB") + "F"), EVENTS, partition=partition)
    return Pattern(expression, events, partition=partition)


class Placings:
    """One generated run."""

    def __init__(self, seed: int, *, faults: bool) -> None:
        rng = self.rng = random.Random(seed)
        self.faults = faults
        names = [f"b{i}" for i in range(rng.randint(1, 4))]
        links = [(names[rng.randrange(i)], names[i]) for i in range(1, len(names))]
        shape = rng.choice(["tree", "tree", "graph", "rendezvous"])
        self.sim = Overlay(
            links,
            brokers=names,
            seed=seed,
            graph=shape == "graph",
            rendezvous=shape == "rendezvous",
        )
        self.publishers = [self.sim.client(at=name) for name in names]
        self.sim.settle()
        for number in rng.choices(range(len(names)), k=rng.choice((0, 1, 1, 2))):
            offer = m.Advertise(rng.getrandbits(30), f"n >= '{rng.choice('aab')}'")
            self.sim.hosts[names[number]].core.heard(self.publishers[number].session, offer)
        patterns = [random_pattern(rng, parted=faults) for _ in range(rng.randint(1, 2))]
        self.asked: list[tuple[Pattern, Client, SimulatedInbox]] = []
        for _ in range(rng.randint(1, 3)):
            pattern, client = rng.choice(patterns), self.sim.client(at=rng.choice(names))
            is_row = isinstance(pattern.expression, e.Window)
            placement = "delegation" if is_row else rng.choice(list(DISTRIBUTIONS))
            said = m.Detection(text_of(pattern), placement=placement)
            inbox = client.open(f"_type = '{pattern.type}'", detect=said)
            self.asked.append((pattern, client, inbox))
        self.history: list[Notification] = []
        self.found = self.parts = 0

    def run(self) -> None:
        sim = self.sim
        sim.settle()
        self.become_sure()
        self.publish(40, "hi")
        self.judge("hi")
        if self.faults:
            for _ in range(3):
                self.fail()
                self.publish(3, "hi")
            sim.settle()
            self.become_sure()
            self.publish(40, "kl")  # nothing has begun there that could have been lost
            self.judge("kl")
        for _, client, inbox in self.asked:
            client.close(inbox)
        self.pass_time(30)
        for host in sim.hosts.values():
            assert not host.core.placements.held
            assert not host.core.detectors.held, "nothing is left behind"

    def become_sure(self) -> None:
        """All is placed, and those host it who are believed to."""
        self.pass_time(25)
        for _, _, inbox in self.asked:
            assert inbox.in_force is not None
        for host in self.sim.hosts.values():
            for placed in host.core.placements.held.values():
                assert placed.in_force
                assert placed.sites
                self.parts += len(placed.sites) - 1
                for site in placed.sites:
                    [at] = [h for h in self.sim.hosts.values() if h.core.stream == site.host]
                    assert at.core.detectors.held[site.key].in_force

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.sim.tick(1.0)
            self.sim.advance()

    def fail(self) -> None:
        rng, sim = self.rng, self.sim
        if not any(host.up for host in sim.hosts.values()) or (sim.wires and rng.random() < 0.5):
            sim.disconnect(*rng.choice(sim.wires or [("", "")]))
        else:
            name = rng.choice([name for name, host in sim.hosts.items() if host.up])
            sim.crash(name)
            if rng.random() < 0.5:
                sim.restart(name)
        self.pass_time(rng.choice([0, 1, 8, 25]))

    def publish(self, events: int, keys: str) -> None:
        rng, sim = self.rng, self.sim
        for _ in range(events):
            sim.tick(0.2)
            client = rng.choice(self.publishers)
            if client.broker is None:
                continue
            happened = moment(int(sim.time * 1_000_000))
            attributes = {"n": rng.choice("abcdef"), "host": rng.choice(keys)}
            event = Notification(attributes, time=happened)
            [id] = client.send([event])
            self.history.append(event.replace(id=id))
            sim.advance()

    def judge(self, keys: str) -> None:
        """What was found among the events of these hosts is what is there."""
        for pattern, client, _ in self.asked:
            history = [n for n in self.history if n["host"] in keys]
            expected = sorted(_known(found.id) for found in detect_local(pattern, history))
            received = [n for n in client.received if not self.faults or n["host"] in keys]
            found = sorted(_known(n.id) for n in received)
            status = [host.core.placements.status() for host in self.sim.hosts.values()]
            assert found == expected, f"{pattern}: {len(found)} of {len(expected)}; {status}"
            self.found += len(found)


def _known(id: NotificationId | None) -> tuple[int, int]:
    assert id is not None
    return id.epoch, id.sequence


def check(seed: int, *, faults: bool) -> Placings:
    history = Placings(seed, faults=faults)
    history.run()
    return history


def main() -> int:
    number, first = int(sys.argv[1]), int(sys.argv[2])
    began = time.perf_counter()
    found = moved = parts = 0
    for seed in range(first, first + number):
        try:
            history = check(seed, faults=seed % 2 == 1)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
            raise
        found += history.found
        parts += history.parts
        cores = [host.core for host in history.sim.hosts.values()]
        moved += sum(core.placements.counters["detectors_moved"] for core in cores)
    spent = time.perf_counter() - began
    print(f"{number} histories, {found} detections, {parts} parts, {moved} moved, {spent:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
