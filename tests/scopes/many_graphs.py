"""Random graphs with mappings and policies: every implementation delivers what the model does.

    PYTHONPATH=src:tests/scopes python tests/scopes/many_graphs.py GRAPHS SEED [IMPLEMENTATION…]

Graphs are generated from SEED on, one for each number, and a failure says which. An implementation
that refuses policies, or mappings, is given graphs without.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from random_graphs import police, random_graph, random_notification

from stentor.model import Notification, NotificationId
from stentor.scopes import ScopeGraph
from stentor.scopes.architectures import IntegratedRouting, MappingComponents, ScopeMedia
from stentor.scopes.architectures.media import MEDIA
from stentor.scopes.collapsed import collapsed
from stentor.scopes.definition import Change, records_of
from stentor.scopes.entry import Component, EntryGraph

#: Notifications that are published in each graph.
PUBLISHED: Final = 3
Published = list[tuple[str, Notification]]


def components(g: ScopeGraph) -> list[str]:
    return sorted(id for id, node in g.nodes.items() if not node.is_scope)


def versions(deliveries: Iterable[Any]) -> set[tuple[str, Notification]]:
    return {(each.consumer, each.notification) for each in deliveries}


def on_brokers(g: ScopeGraph, r: Random, mode: str) -> IntegratedRouting:
    brokers = range(r.randint(1, 8))
    links = [(r.randrange(b), b) for b in brokers if b]
    homes = {id: r.choice(brokers) for id in components(g)}
    return IntegratedRouting(g, links, homes, mode=mode)


Make = Callable[[ScopeGraph, Random], Any]
ARCHITECTURES: Final[dict[str, Make]] = {
    "mapping components": lambda g, r: MappingComponents(g),
    "broker scopes": lambda g, r: ScopeMedia(g),
    "addressing scopes": lambda g, r: ScopeMedia(g, medium="addressed"),
    "bridged": lambda g, r: ScopeMedia(
        g, {id: r.choice(MEDIA) for id, node in g.nodes.items() if node.is_scope}
    ),
    "crossing once": lambda g, r: on_brokers(g, r, "once"),
    "crossing at gateways": lambda g, r: on_brokers(g, r, "gateway"),
    "crossing everywhere": lambda g, r: on_brokers(g, r, "everywhere"),
}
#: Those of them in which an administrator applies policies.
POLICED: Final = ("broker scopes",)


def check_architecture(name: str, g: ScopeGraph, r: Random, published: Published) -> None:
    system = ARCHITECTURES[name](g, r)
    for publisher, n in published:
        assert versions(system.publish(publisher, n)) == versions(g.deliveries(n, publisher))


def check_collapsed(g: ScopeGraph, r: Random, published: Published) -> None:
    for publisher, n in published:
        told = {id for id, each in collapsed(g, publisher).items() if each.matches(n)}
        assert told == {d.consumer for d in g.deliveries(n, publisher)}


def check_spark(g: ScopeGraph, r: Random, published: Published) -> None:
    """What a Python worker of Spark does with one batch, without Spark around it."""
    import pyarrow as pa
    from pyspark.sql.types import LongType, StringType, StructType

    from stentor.pipeline.scopes.mapped_columns import mapped_schema
    from stentor.pipeline.scopes.scoped import _delivered

    known = [(p, n.replace(id=NotificationId(p, 0, i))) for i, (p, n) in enumerate(published)]
    source = StructType().add("kind", StringType()).add("x", LongType()).add("_id", StringType())
    wanted = mapped_schema(g, source, None) if g.has_mappings else source
    arrays = [
        pa.array([n.get("kind") for _, n in known], pa.string()),
        pa.array([n.get("x") for _, n in known], pa.int64()),
        pa.array([str(n.id) for _, n in known], pa.string()),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, ["kind", "x", "_id"])
    found: Counter[Any] = Counter()
    for part in _delivered(iter([batch]), g, None, "consumer", source, wanted):
        for row in part.to_pylist():
            found[row["consumer"], row["_id"], row.get("kind"), row.get("x")] += 1
    assert found == Counter(
        (d.consumer, str(n.id), d.notification.get("kind"), d.notification.get("x"))
        for publisher, n in known
        for d in g.outcome(n, publisher).deliveries
    )


def check_entry(g: ScopeGraph, r: Random, published: Published) -> None:
    """What a broker decides where a notification enters, and what each component may see of it."""
    g.self_delivery = True
    entry = EntryGraph()
    entry.change(1, Change(list(records_of(g).values())))
    clients = {id: Component(id, id, {}) for id in components(g)}
    views = {id: entry.view(each) for id, each in clients.items()}
    for publisher, n in published:
        decided = entry.versions(clients[publisher], n)
        told = {
            (id, n if version is None else version)
            for stamp, version in decided.versions
            for id, view in views.items()
            if view.sees(stamp)
        }
        alone = g.parents(publisher)
        expected = versions(g.deliveries(n, publisher)) | {(publisher, n)}
        if not alone:  # all who are in no scope hear each other
            expected |= {(id, n) for id in clients if not g.parents(id)}
        assert told == expected


def checks() -> dict[str, tuple[Callable[[ScopeGraph, Random, Published], None], bool, bool]]:
    """Each with whether it does mappings, and policies."""
    found: dict[str, Any] = {
        name: (
            lambda g, r, published, name=name: check_architecture(name, g, r, published),
            True,
            name in POLICED,
        )
        for name in ARCHITECTURES
    }
    return found | {
        "collapsed": (check_collapsed, False, False),
        "spark": (check_spark, True, True),
        "entry": (check_entry, True, True),
    }


CHECKS: Final = checks()


def run(name: str, seed: int) -> None:
    """One graph."""
    check, mapped, policed = CHECKS[name]
    r = Random(f"{name} {seed}")
    g = random_graph(r, mappings=mapped and r.random() < 0.7)
    if policed and r.random() < 0.7:
        police(r, g)
    published = [(r.choice(components(g)), random_notification(r)) for _ in range(PUBLISHED)]
    check(g, r, published)


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2])
    for name in sys.argv[3:] or CHECKS:
        for seed in range(first, first + count):
            try:
                run(name, seed)
            except BaseException:
                print(f"{name}: graph {seed} is wrong", flush=True)
                raise
        print(f"{name}: {count:,} graphs from {first} on, none wrong", flush=True)
