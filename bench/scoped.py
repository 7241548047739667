"""What scopes cost a broker: the same deliveries with scopes and without, in one run.

bench/scoped.py                    all cases; `--only tenants`, `--quick` for some of it

A broker's core is driven as its host drives it, by one batch of publications after the other, and
carries them up to the messages for the connections. Nothing is journaled and there are no sockets,
so scopes have nothing to hide behind. Without scopes, subscriptions name the tenant in their filter
and each publication carries it; with scopes neither does. Both deliver the same to the same
subscribers. The two take turns, the processor time of the process is taken, and the medians of all
turns are compared.

    tenants     200 scopes with ten subscribers each, nothing but boundaries
    content     the same below a common scope, with interfaces that look at what is said
    many        10,000 scopes and 100,000 components
    changes     what it takes to change one edge or rule, by the size of the graph
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from time import process_time
from typing import TYPE_CHECKING, Any, Final

from onecore import use_one_core

if TYPE_CHECKING:
    from stentor.node.core import Core
    from stentor.scopes import ScopeGraph

CASES: Final = ("tenants", "content", "many", "changes")
BATCH: Final = 100
TURNS: Final = 9
CREDIT: Final = 1_000_000_000


class Driven:
    """One core with clients, of which some publish."""

    def __init__(self) -> None:
        from stentor.node.core import Core
        from stentor.simulation.journal import MemoryLog

        self.core: Core = Core("a", MemoryLog("a#"), now=0.0, clock=1_000.0)
        self.delivered = 0
        self._numbers = 0

    def drain(self) -> None:
        from stentor.node.agenda import Append, Persist, ToClient
        from stentor.protocol import messages as m

        core = self.core
        while True:
            for action in core.take():
                if isinstance(action, ToClient):
                    if isinstance(action.message, m.Deliver):
                        self.delivered += len(action.message.items)
                elif isinstance(action, Persist):
                    if action.context is not None:
                        core.stored(action.context, None)
                elif isinstance(action, Append):
                    raise AssertionError("nothing is journaled here")
            if not core.wants_turn:
                return
            core.work()

    def join(self, id: int, name: str, filter: str | None, **attributes: Any) -> None:
        from stentor.protocol import messages as m

        self.core.join(id, name, attributes=attributes)
        if filter is not None:
            self.core.heard(id, m.Subscribe(1, filter, CREDIT, volatile=True))
        if not id % 1_000:
            self.drain()

    def deploy(self, graph: ScopeGraph) -> float:
        from stentor.scopes.definition import records_of

        records = records_of(graph)
        before = process_time()
        failed: list[Any] = []
        self.core.scoping.deploy(records, failed.append)
        self.drain()
        assert failed == [None], failed
        return process_time() - before

    def publish(self, publications: list[tuple[int, list[bytes]]]) -> None:
        from stentor.protocol import messages as m

        for id, items in publications:
            self._numbers += 1
            self.core.heard(id, m.Publish(self._numbers, items, volatile=True))
            self.drain()


def publications(
    publishers: list[tuple[int, str, str]], batches: int, *, tagged: bool
) -> list[tuple[int, list[bytes]]]:
    from stentor.model import IdSource, Notification, encode_batch

    rng = random.Random(1)
    now = datetime.now(UTC)
    sources = {name: IdSource(name, 1) for _, name, _ in publishers}
    found = []
    for _ in range(batches):
        id, name, tenant = rng.choice(publishers)
        said = [
            {"kind": rng.choice("abcd"), "price": rng.randrange(100), "volume": rng.randrange(1000)}
            for _ in range(BATCH)
        ]
        for each in said:
            each |= {"tenant": tenant} if tagged else {}
        found.append(
            (id, encode_batch([Notification(e, id=next(sources[name]), time=now) for e in said]))
        )
    return found


def compared(
    tenants: int, members: int, batches: int, graph: Callable[[int], ScopeGraph], *, content: bool
) -> dict[str, float]:
    """Publications in a second, with scopes and without."""
    plain, scoped = Driven(), Driven()
    publishers: list[tuple[int, str, str]] = []
    number = 0
    for tenant in range(tenants):
        for member in range(members):
            number += 1
            name, of = f"c{number}", f"t{tenant}"
            floor = member * 90 // members
            text = f"price >= {floor}"
            plain.join(number, name, f"tenant = '{of}' and {text}")
            scoped.join(number, name, text, tenant=of)
            if not member:
                publishers.append((number, name, of))
    if content:  # someone in the common scope who sees what the interfaces let out
        plain.join(number + 1, "auditor", "kind = 'a' and price >= 95")
        scoped.join(number + 1, "auditor", "price >= 95", audits=True)
    plain.drain()
    took = scoped.deploy(graph(tenants))
    gc.collect()
    gc.freeze()  # or each turn would walk through all that stands
    rates: dict[str, list[float]] = {"plain": [], "scoped": []}
    for turn in range(TURNS + 2):
        delivered = []
        for name, driven in (("plain", plain), ("scoped", scoped)):
            work = publications(publishers, batches, tagged=name == "plain")
            gc.collect()
            seen, before = driven.delivered, process_time()
            driven.publish(work)
            spent = process_time() - before
            delivered.append(driven.delivered - seen)
            if turn > 1:
                rates[name].append(batches * BATCH / spent)
        assert delivered[0] == delivered[1] > 0, delivered
    gc.unfreeze()
    found = {name: statistics.median(each) for name, each in rates.items()}
    return {**found, "ratio": found["scoped"] / found["plain"], "deployed": took}


def tenants_only(tenants: int) -> ScopeGraph:
    from stentor.filters import Filter
    from stentor.scopes import MembershipRule, ScopeGraph

    graph = ScopeGraph()
    for i in range(tenants):
        graph.create_scope(f"t{i}")
        graph.add_rule(MembershipRule(f"t{i}", Filter(f"tenant = 't{i}'"), "r"))
    return graph


def with_content(tenants: int) -> ScopeGraph:
    from stentor.filters import Filter
    from stentor.scopes import Interface, MembershipRule

    graph = tenants_only(tenants)
    graph.create_scope("common")
    graph.add_rule(MembershipRule("common", Filter("audits = true"), "r"))
    for i in range(tenants):
        graph.join(f"t{i}", "common")
        graph.set_interface(f"t{i}", Interface.of("kind = 'notice'", "kind = 'a'"))
    return graph


def changes(scopes: int) -> dict[str, float]:
    """Milliseconds that one change takes where there are so many scopes, with ten clients each."""
    from stentor.filters import Filter
    from stentor.scopes import MembershipRule
    from stentor.scopes.definition import Change, records_of

    driven = Driven()
    for number in range(scopes * 10):
        driven.join(number, f"c{number}", "price >= 50", tenant=f"t{number % scopes}")
    graph = tenants_only(scopes)
    graph.create_scope("common")
    driven.deploy(graph)
    known = records_of(graph)
    found: dict[str, list[float]] = {"edge": [], "rule": []}
    for i in range(7):
        for what in found:
            if what == "edge":
                graph.join(f"t{i}", "common")
            else:
                graph.remove_rule(f"t{i}", "r")
                where = Filter(f"tenant = 't{i}' and rank > 1")
                graph.add_rule(MembershipRule(f"t{i}", where, "r"))
            records = records_of(graph)
            put = [record for key, record in records.items() if known.get(key) != record]
            known = records
            failed: list[Any] = []
            gc.collect()
            before = process_time()
            driven.core.scoping.deploy(None, failed.append, change=Change(put))
            driven.drain()
            found[what].append((process_time() - before) * 1e3)
            assert failed == [None], failed
    return {what: statistics.median(times) for what, times in found.items()}


def run(case: str, *, quick: bool) -> str:
    if case == "changes":
        sizes = (100, 1_000) if quick else (100, 1_000, 10_000)
        lines = [
            f"  {size:>6,} scopes, {size * 10:>7,} components: "
            + ", ".join(f"{name} {took:.1f} ms" for name, took in changes(size).items())
            for size in sizes
        ]
        return "\n".join(["changes", *lines])
    tenants, batches = (10_000, 200) if case == "many" else (200, 100)
    if quick:
        tenants, batches = tenants // 10, batches // 4
    graph = with_content if case == "content" else tenants_only
    found = compared(tenants, 10, batches, graph, content=case == "content")
    return (
        f"{case:8} {tenants:,} scopes, {tenants * 10:,} components: "
        f"{found['plain']:>8,.0f}/s without scopes, {found['scoped']:>8,.0f}/s with, "
        f"ratio {found['ratio']:.2f}; deployed in {found['deployed']:.1f} s"
    )


def main(arguments: list[str]) -> None:
    use_one_core()  # before Numba and Arrow are imported
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    for case in given.only or CASES:
        print(run(case, quick=given.quick), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
