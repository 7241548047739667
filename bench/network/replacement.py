"""What it costs to replace a link of a tree, and what goes wrong meanwhile (07/§4.9).

Clients publish without pause while messages arrive in a random order, and in the middle of that one
link takes the place of another. The trace is then held against the specification: what was owed and
never came is lost, what came against the order of its producer or of causes is reordered. Second
copies never reach a client; its delivery gate counts them. All ways have the same runs: tree,
clients, subscriptions, publications and links come from the seed.
"""

from __future__ import annotations

import random
from collections import Counter
from statistics import fmean
from typing import Any, Final

from measure.throughput import WrongAnswer
from network.profiles import Profile
from progress import progress
from stentor.research.trees import CarryingRouter
from stentor.research.trees.change import Ahead
from stentor.routing import BrokerId, Message, Outputs
from stentor.routing.messages import Update
from stentor.semantics import Condition
from stentor.simulation import Network
from stentor.simulation.topology import reachable
from stentor.simulation.trees import REPLACEMENTS

ROUTINGS: Final = ("simple", "identity", "covering")
BROKERS: Final = 12
CLIENTS: Final = 24
DOMAIN: Final = 20
#: Publications before the change and after it, and how many messages arrive at most after each.
PUBLICATIONS: Final = 40
MOST_STEPS: Final = 6
_FAULTS: Final = ("lost", "duplicates", "fifo", "causal")


def measure_replacement(profile: Profile) -> list[dict[str, Any]]:
    """Every way to replace a link, under several strategies, over several seeds."""
    rows = []
    for routing in ROUTINGS:
        progress(f"replacing a link, {routing}")
        for how in REPLACEMENTS:
            runs = [_run(routing, how, seed) for seed in range(profile.replacements)]
            total: Counter[str] = sum(runs, Counter())
            if how == "lossless" and (total["lost"] or total["duplicates"]):
                raise WrongAnswer(f"lossless replacement under {routing}: {total}")
            rows.append(
                {
                    "routing": routing,
                    "how": how,
                    "runs": len(runs),
                    "control": fmean(run["control"] for run in runs),
                    "filters": fmean(run["filters"] for run in runs),
                    "notifications": fmean(run["notifications"] for run in runs),
                    **{what: total[what] for what in ("owed", *_FAULTS)},
                    "spotless": sum(not any(run[fault] for fault in _FAULTS) for run in runs),
                }
            )
    return rows


class _Reader(CarryingRouter):
    """Counts the filters that it is told come or go; one message may hold many."""

    filters = 0

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        told = message.message if isinstance(message, Ahead) else message
        if isinstance(told, Update):
            self.filters += len(told.added) + len(told.removed)
        return super().receive(sender, message)


def _run(routing: str, how: str, seed: int) -> Counter[str]:
    r = random.Random(seed)
    tree = [(r.randint(1, broker - 1), broker) for broker in range(2, BROKERS + 1)]
    routers: dict[BrokerId, _Reader] = {id: _Reader(id, routing) for id in range(1, BROKERS + 1)}
    net = Network(dict(routers), tree, seed=seed)
    clients = [net.client(at=r.randint(1, BROKERS)) for _ in range(CLIENTS)]
    for client in clients:
        low = r.randrange(DOMAIN)
        client.subscribe(f"x >= {low} and x < {low + r.randint(1, DOMAIN // 2)}")
    net.settle()
    old, new = _links(tree, r)
    plan = [
        (r.choice(clients), r.randrange(DOMAIN), r.randint(0, MOST_STEPS))
        for _ in range(2 * PUBLICATIONS)
    ]
    before, read = net.counters.copy(), sum(router.filters for router in routers.values())
    for number, (client, x, steps) in enumerate(plan):
        if number == PUBLICATIONS:
            net.replace_link(old, new, how)
        client.publish({"x": x})
        for _ in range(steps):
            net.step()
    net.settle()
    cost = net.counters - before
    report = net.check(order=("fifo", "causal"))
    found = Counter(violation.condition for violation in report.violations)
    copies = sum(net.core(broker).counters["repeated"] for broker in net.brokers)
    return Counter(
        control=cost.subscriptions + cost.control,
        filters=sum(router.filters for router in routers.values()) - read,
        notifications=cost.notifications,
        owed=report.owed,
        lost=found[Condition.LOST],
        duplicates=copies,
        fifo=found[Condition.FIFO],
        causal=found[Condition.CAUSAL],
    )


def _links(
    tree: list[tuple[int, int]], r: random.Random
) -> tuple[tuple[int, int], tuple[int, int]]:
    """A link, and another that joins the same two parts of the tree."""
    old = r.choice(tree)
    rest = [link for link in tree if link != old]
    parts = [sorted(reachable(end, rest), key=int) for end in old]
    while True:
        new = (int(r.choice(parts[0])), int(r.choice(parts[1])))
        if new != old:
            return old, new
