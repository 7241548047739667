"""Generated histories of a durable, guaranteed detector, and of what fails meanwhile.

A detector has its home at one broker of a small tree. Clients publish at all of them; links break,
brokers crash, the home among them, disks are full, the subscriber goes away and comes back. At the
end everything heals. Then its subscriber has had exactly what the reference detector finds in all
that was published, each once.

Run as a program it takes a number of histories and a first seed:

    python tests/node/live/detector_histories.py 1000 0
"""

from __future__ import annotations

import random
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2] / "composite"))

from composite_histories import random_pattern
from overlay import Overlay

from stentor.composite import detect_local
from stentor.composite.intervals import moment
from stentor.model import Notification, NotificationId
from stentor.protocol import messages as m

FAULTS = ("links", "home", "others", "subscriber", "disks")
#: Seconds by which what was published may come later, as clients that lost their broker send again.
LATENESS = 1_000.0


class Detections:
    """One generated run."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        names = [f"b{i}" for i in range(rng.randint(1, 3))]
        links = [(names[rng.randrange(i)], names[i]) for i in range(1, len(names))]
        self.names = names
        self.sim = Overlay(links, brokers=names, queue=rng.choice([3, 1_000]), seed=seed)
        self.pattern = random_pattern(rng)
        text = msgspec.json.encode(self.pattern.dump()).decode()
        detection = m.Detection(text, "guaranteed", LATENESS)
        self.faults = {kind for kind in FAULTS if rng.random() < 0.5}
        self.publishers = [self.sim.client(at=rng.choice(names)) for _ in range(rng.randint(1, 3))]
        self.subscriber = self.sim.client(at="b0")
        found = f"_type = '{self.pattern.type}'"
        self.inbox = self.subscriber.open(found, durable="alarms", detect=detection)
        self.history: list[Notification] = []
        self.crashes = 0
        #: Whether something was given up at a limit, so that what is found may differ.
        self.gave_up = False

    def run(self) -> None:
        rng, sim = self.rng, self.sim
        sim.settle()
        assert self.inbox.in_force is not None
        for _ in range(rng.randint(1, 3)):
            for _ in range(rng.randint(5, 25)):
                self.act()
                sim.advance(rng.choice([0, 1, 5, 20]))
            sim.settle()
            self.become_stable()
        self.judge()

    def become_stable(self) -> None:
        """All streams are heard of later than anything that may happen in the pattern.

        So that is when most is found, and something fails just then as well.
        """
        rng, sim = self.rng, self.sim
        sim.now += 100 * LATENESS
        for _ in range(rng.randint(0, 6)):
            sim.tick(0.6)
            sim.advance(rng.choice([1, 5, 20]))
            if rng.random() < 0.5 and self.faults:
                self.fail()
        for _ in range(4):
            sim.tick(1.0)
            sim.settle()
            self.subscriber.ask_again()

    def act(self) -> None:
        if self.faults and self.rng.random() < 0.3:
            self.fail()
        else:
            self.rng.choice([self.publish, self.publish, self.tick])()

    def fail(self) -> None:
        faults: dict[str, list[tuple[Any, int]]] = {
            "links": [(self.cut, 2), (self.mend, 3)],
            "home": [(lambda: self.crash("b0"), 3)],
            "others": [(lambda: self.crash(self.rng.choice(self.names)), 2)],
            "subscriber": [(self.subscriber_leaves, 3), (self.subscriber_returns, 4)],
            "disks": [(self.disks, 2)],
        }
        actions = [each for kind in sorted(self.faults) for each in faults[kind]]
        [act] = self.rng.choices([a for a, _ in actions], [w for _, w in actions])
        act()

    def publish(self) -> None:
        rng = self.rng
        client = rng.choice(self.publishers)
        events = []
        for _ in range(rng.choice([1, 1, 2, 4])):
            jitter = rng.choice([0, 0, 1, 3])
            happened = moment(int(self.sim.time * 1_000_000)) - timedelta(seconds=jitter)
            attributes = {
                "n": rng.choice("aabbcd"),
                "x": rng.randrange(3),
                "host": rng.choice("hi"),
            }
            events.append(Notification(attributes, time=happened))
        ids = client.send(events)
        self.history += [n.replace(id=i) for n, i in zip(events, ids, strict=True)]

    def tick(self) -> None:
        self.sim.tick(self.rng.choice([0.1, 1.0, 2.0]))

    def cut(self) -> None:
        if self.sim.wires:
            self.sim.disconnect(*self.rng.choice(self.sim.wires))

    def mend(self) -> None:
        if self.sim.wires:
            self.sim.connect(*self.rng.choice(self.sim.wires))

    def crash(self, name: str) -> None:
        if self.sim.hosts[name].up:
            self.sim.crash(name)
            self.crashes += 1
        else:
            self.sim.restart(name)

    def subscriber_leaves(self) -> None:
        if self.subscriber.broker is not None:
            self.subscriber.disconnect()

    def subscriber_returns(self) -> None:
        if self.subscriber.broker is None and self.sim.hosts["b0"].up:
            self.subscriber.connect(self.sim.hosts["b0"])

    def disks(self) -> None:
        self.sim.disks_fail = not self.sim.disks_fail

    def judge(self) -> None:
        expected = sorted(_known(f.id) for f in detect_local(self.pattern, self.history))
        received = sorted(_known(n.id) for n in self.subscriber.received)
        status = [
            hosted.status()
            for h in self.sim.hosts.values()
            for hosted in h.core.detectors.held.values()
        ]
        if any(each["dropped"] for each in status):  # a limit was reached, and it says so
            self.gave_up = True
            assert len(set(received)) == len(received)
            return
        assert received == expected, (
            f"{self.pattern} with {self.pattern.events}: found {len(received)} of "
            f"{len(expected)} detections, {len(set(received))} different; {status}"
        )


def _known(id: NotificationId | None) -> tuple[int, int]:
    assert id is not None
    return id.epoch, id.sequence


def check(seed: int) -> Detections:
    history = Detections(seed)
    history.run()
    return history


def main() -> int:
    number, first = int(sys.argv[1]), int(sys.argv[2])
    began = time.perf_counter()
    found = crashes = gave_up = 0
    for seed in range(first, first + number):
        try:
            history = check(seed)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
            raise
        found += len(history.subscriber.received)
        crashes += history.crashes
        gave_up += history.gave_up
    spent = time.perf_counter() - began
    print(
        f"{number} histories, {crashes} crashes, {found} detections, {spent:.0f} s; "
        f"{gave_up} reached a limit"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
