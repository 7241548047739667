"""What one more subscription costs a whole overlay, and how that grows with the number of brokers.

    python bench/one_subscription.py [--graph] [BROKERS ...]

A simulated binary tree of brokers under covering, 200 clients with a filter each, and then one more
at the last leaf: either something that another filter covers, or something that nobody asked for
before. It is in force when all who may publish it have said that they have heard of it. Where
advertisements steer, only those who offer it are told and asked. Counted are the messages between
brokers, updates of filters and all others, and the processor time of all brokers together, but
without what they do once a second anyway.

With `--graph` every seventh broker of the tree is linked to the next one as well, so that there are
cycles. There the first subscription of a broker has to find out about all; the client makes one
before.
"""

from __future__ import annotations

import argparse
from random import Random
from time import process_time
from typing import Final, NamedTuple

from stentor.simulation import Client, Network

CLIENTS: Final = 200
#: One that is covered by a filter of some client, and one that is about something else.
COVERED: Final = "x > 5000 and s = 'k1'"
NEW: Final = "x < 3 and s = 'new'"


class Cost(NamedTuple):
    """Of one subscription."""

    updates: int
    others: int
    milliseconds: float

    def __str__(self) -> str:
        return f"{self.updates:,} + {self.others:,}, {self.milliseconds:.1f} ms"


def populated(brokers: int, *, steered: bool, graph: bool) -> Network:
    """A tree of brokers with clients everywhere; one of them offers what all want."""
    edges = [(max(1, i // 2), i) for i in range(2, brokers + 1)]
    advertisements = "covering" if steered else None
    if graph:
        edges += [(i, i + 1) for i in range(4, brokers, 7)]
        network = Network.graph(edges, "covering", advertisements)
    else:
        network = Network.tree(edges, "covering", advertisements, record=False)
    random = Random(1)
    places = [random.randint(1, brokers) for _ in range(CLIENTS)]
    clients = [network.client(at=place, journaled=True) for place in places]
    if steered:
        network.client(at=2, journaled=True).advertise("x >= 0")
    for i, client in enumerate(clients):
        client.subscribe(f"x > {1000 + i % 50} and s = 'k{i % 40}'")
    if graph:
        network.client(at=brokers, journaled=True).subscribe("x > 6000")
    network.settle()
    return network


def cost(network: Network, client: Client, filter: str) -> Cost:
    """Of this subscription, until nothing is on its way."""
    counters, began = network.counters.copy(), process_time()
    client.subscribe(filter)
    while network.step():
        pass
    seconds = process_time() - began
    network.settle()
    spent = network.counters - counters
    return Cost(spent.subscriptions, spent.control, 1000 * seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("brokers", nargs="*", type=int, default=[25, 50, 100, 200])
    parser.add_argument("--graph", action="store_true", help="with cycles")
    options = parser.parse_args()
    print("| Brokers | Covered | New | Covered, steered | New, steered |")
    print("|---:|---:|---:|---:|---:|")
    for brokers in options.brokers:
        costs = []
        for steered in (False, True):
            network = populated(brokers, steered=steered, graph=options.graph)
            for filter in (COVERED, NEW):
                client = network.client(at=brokers, journaled=True)
                costs.append(cost(network, client, filter))
        print(f"| {brokers} | {' | '.join(map(str, costs))} |", flush=True)


if __name__ == "__main__":
    main()
