"""A network of brokers: who gets which event, what each routing strategy costs, what breaks.

Everything it prints is computed while it runs, on the simulator: the same routers that brokers run,
with virtual links between them.
"""

from __future__ import annotations

import random

from rich.console import Console
from rich.table import Table

from stentor.routing import STRATEGIES
from stentor.simulation import Counters, Network

console = Console(highlight=False)

EDGES = [(1, 2), (1, 3), (3, 4), (4, 5), (4, 6)]


def across_brokers() -> None:
    console.rule("[bold]Six brokers, no topics")
    console.print("    2 ─ 1 ─ 3 ─ 4 ─ 5\n                └── 6\n")
    net = Network.tree(EDGES, routing="covering")
    desks = {
        "ann at 5": (net.client(at=5, id="ann"), "symbol = 'IBM' and price > 100"),
        "ben at 6": (net.client(at=6, id="ben"), "price > 50"),
        "eve at 2": (net.client(at=2, id="eve"), "volume >= 1000"),
    }
    for client, text in desks.values():
        client.subscribe(text)
    net.settle()
    ticker = net.client(at=1, id="ticker")
    table = Table("published at 1", "delivered to", "links used")
    for event in (
        {"symbol": "IBM", "price": 120.5},
        {"symbol": "SAP", "price": 98.0, "volume": 4000},
        {"symbol": "SIE", "price": 12.0},
    ):
        net.counters = Counters()
        had = {name: len(client.received) for name, (client, _) in desks.items()}
        ticker.publish(event)
        net.settle()
        used = [f"{a}→{b}" for a, b in net.counters.links["notification"]]
        got = [name for name, (client, _) in desks.items() if len(client.received) > had[name]]
        words = ", ".join(f"{name}={value!r}" for name, value in event.items())
        table.add_row(words, ", ".join(got) or "nobody", " ".join(used) or "none")
    console.print(table)
    console.print(f"The formal model agrees: {net.check(order=('fifo', 'causal'))}\n")


def what_strategies_cost(clients: int = 150, events: int = 150) -> None:
    console.rule("[bold]One API, five strategies")
    table = Table(
        "routing",
        "subscription messages",
        "remote entries",
        "notification messages",
        "delivered",
    )
    for routing in STRATEGIES:
        rng = random.Random(7)
        net = Network.tree([(i // 2, i) for i in range(2, 16)], routing=routing)
        for _ in range(clients):
            low = rng.randint(0, 99)
            text = f"x is int and x between {low} and {min(99, low + rng.randint(0, 19))}"
            net.client(at=rng.randint(1, 15)).subscribe(text)
            net.settle()
        entries = sum(size.remote for size in net.table_sizes().values())
        for _ in range(events):
            net.client(at=rng.randint(1, 15)).publish({"x": rng.randint(0, 99)})
            net.settle()
        counters = net.counters
        table.add_row(
            routing,
            f"{counters.subscriptions:,}",
            f"{entries:,}",
            f"{counters.notifications:,}",
            f"{counters.delivered:,}",
        )
    console.print(f"{clients} clients with intervals at 15 brokers, {events} events:")
    console.print(table)


def what_breaks() -> None:
    console.rule("[bold]A ring of eight brokers loses two links and one broker")
    ring = [(i, i % 8 + 1) for i in range(1, 9)] + [(1, 5), (3, 7)]
    net = Network.graph(ring, routing="covering")
    reader, writer = net.client(at=5, id="reader"), net.client(at=1, id="writer")
    reader.subscribe("x > 1")
    net.settle()
    table = Table("what happened", "way of the next event", "delivered")

    def publish(what: str) -> None:
        net.counters = Counters()
        had = len(reader.received)
        writer.publish({"x": 2})
        net.settle()
        used = [f"{a}→{b}" for a, b in net.counters.links["notification"]]
        table.add_row(what, " ".join(used), str(len(reader.received) - had))

    publish("nothing")
    net.disconnect(1, 5)
    net.settle()
    publish("link 1–5 failed")
    net.fail_broker(3)
    net.settle()
    publish("broker 3 died")
    net.disconnect(7, 8)
    net.settle()
    net.connect(8, 4)
    net.settle()
    publish("link 7–8 failed, 8–4 added")
    console.print(table)


def main() -> None:
    across_brokers()
    what_strategies_cost()
    what_breaks()


if __name__ == "__main__":
    main()
