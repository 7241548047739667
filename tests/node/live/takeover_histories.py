"""Histories of settlement with `takeover`: brokers go on without a home that they cannot reach.

Both sides may serve the durable subscription then, so something may be dealt with twice, and in
another order. Nothing is lost by that; and when all can reach each other again there is one home,
which has what was dealt with on either side.

Run as a program it takes a number of histories and a first seed:

    python tests/node/live/takeover_histories.py 1000 0
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Any

from settling_histories import NAME, Settlements

from stentor.simulation.client import Client, Key, SimulatedInbox


class Nothing(set[Any]):
    """What is settled on disk at one home may be given by the other, so nothing counts as that."""

    def update(self, *_: Any) -> None:
        pass


class Takeovers(Settlements):
    """One generated run."""

    def __init__(self, seed: int) -> None:
        self.apart = random.Random(f"takeover {seed}")
        self.takeover = self.apart.choice([0.0, 0.0, 2.0])
        super().__init__(seed)
        self.faults |= {"links", "home"} if self.apart.random() < 0.7 else {"links"}

    def _open(self, client: Client) -> None:
        self.options["takeover"] = self.takeover
        super()._open(client)
        self.subs[client].stored = Nothing()

    def act(self) -> None:
        acts = [(self.wander, 6), (self.tick, 4), (self.down, 2), (self.cut, 2), (super().act, 86)]
        [act] = self.apart.choices([a for a, _ in acts], [w for _, w in acts])
        act()

    def _up(self) -> list[str]:
        return [name for name, host in self.sim.hosts.items() if host.up]

    def wander(self) -> None:
        """A client asks at another broker."""
        self.kinds["wander"] += 1
        client = self.apart.choice(self.members)
        client.disconnect()
        client.connect(self.sim.hosts[self.apart.choice(self._up())])

    def down(self) -> None:
        """A broker dies and stays away for a while."""
        if len(self._up()) > 1:
            self.kinds["down"] += 1
            self.sim.crash(self.apart.choice(self._up()))

    def crash(self) -> None:
        down = [n for n in self.sim.hosts if n not in self.sim.heirs and n not in self._up()]
        if down:
            self.sim.restart(self.rng.choice(down))
        else:
            super().crash()

    def _take(self, sub: SimulatedInbox) -> Key | None:
        found = sub.hand_out()
        if found is not None and self.rng.random() < 0.7:
            sub.client.settle(sub, begun=[found[0]])
        return None if found is None else found[0]

    def _bounds(self) -> None:
        """Two copies that are united may have more intervals than each."""

    def judge(self) -> None:
        letters = self.letters()
        for id, known in self.sim.publications.items():
            if known.acknowledged and known.at >= self.begun:
                assert id in self.settled or str(id) in letters, f"{id} is lost"
        cores = [self.sim.hosts[name].core for name in self._up()]
        homes = [core.durables[NAME] for core in cores if NAME in core.durables]
        assert len(homes) == 1, f"there are {len(homes)} homes"
        assert not homes[0].dying
        assert not homes[0].intervals, homes[0].done
        assert not any(homes[0].refused.values()), homes[0].refused
        assert not any(NAME in core._durables.parted for core in cores), "the home was not told"
        self.kinds["term"] += cores[0].homes.registry.term(NAME)


def run_history(seed: int) -> Takeovers:
    history = Takeovers(seed)
    try:
        history.run()
    except BaseException as error:
        error.add_note(f"history with seed {seed}, faults {sorted(history.faults)}")
        error.add_note(f"group {history.group}, takeover {history.takeover}, {history.terms}")
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
