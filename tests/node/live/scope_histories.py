"""Generated runs of live brokers with a scope graph that changes, held against the model.

A publication is decided by the graph of the epoch that its stamp names. For that graph, with all
clients as components, `ScopeGraph.deliveries` says who sees what of it. Whoever was given anything
else has seen across a boundary. And a subscription that was in force before, and lasts to the end,
must have been given all that it matches of this, whatever was changed, cut or killed meanwhile.

Among members that rules take in, a policy chooses as the broker knows them at that moment, which
the model cannot know. So what it has chosen is noted, and the model is told to choose the same; it
says who was eligible at most. Where nothing fails, these have to be all that were.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

from overlay import Overlay

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.model import Notification
from stentor.model.codec import decode_header
from stentor.model.identity import NotificationId
from stentor.model.stamp import Stamp, without_stamps
from stentor.scopes import Interface, MembershipRule, ScopeGraph, mapping_of
from stentor.scopes.definition import Change, Record, graph_of, records_of
from stentor.scopes.dissemination import Delivery, Dissemination, Outcome, Postponed
from stentor.scopes.entry import Decided, EntryGraph
from stentor.scopes.graph import BY_HAND, RESERVED
from stentor.scopes.interfaces import CLOSED, OMITTED, OPEN
from stentor.scopes.language import parse
from stentor.scopes.language.automation import automate
from stentor.scopes.language.standing import Standing
from stentor.scopes.mappings import EdgeMapping
from stentor.scopes.nodes import NO_MAPPING, Edge, Node
from stentor.scopes.places import Waiting
from stentor.scopes.policies import (
    Answer,
    ByProducer,
    Chain,
    Delay,
    Hold,
    Kind,
    Nobody,
    OneOfN,
    Only,
    Question,
    RateLimit,
    RequirePrivilege,
    TopK,
    Traverse,
    compares,
)
from stentor.simulation.client import Client, SimulatedInbox

FILTERS = ("true", "x >= 1", "x < 3", "k = 'a'", "z = 7", "x = 2 or k = 'b'", "exists y")
#: Of these, the ones that only something translated can match.
TRANSLATED = ("z = 7", "exists y")
INTERFACES = (
    OMITTED,
    OPEN,
    OPEN,
    CLOSED,
    Interface.of("x > 0", "x > 1"),
    Interface.of(True, "k = 'a'"),
)
TENANTS = ("red", "green", "blue")


def random_mapping(rng: random.Random) -> EdgeMapping:
    """Attributes that are renamed, set or dropped, in one direction or both."""
    ways = [
        mapping_of({"z": 7}),
        mapping_of(rename={"x": "y"}),
        mapping_of({"k": "b"}, drop=["y"]),
        None,
    ]
    return EdgeMapping(rng.choice(ways), rng.choice(ways))


#: What is said in s0 begins a scope, and whoever consumes that becomes a member.
RULES = """DEFINE SCOPE auto AS SUPERSCOPE ALL FROM s0 INTERFACES INPUT(1), OUTPUT(1)
    UPDATE ON pub(n: x = 3) DO CREATE NOW INCLUDE COMPONENT
    UPDATE ON con(n: x = 3) DO (ALTER SCOPE SELF ADD ALL FROM TRIGGER)"""


class ScopeHistory:
    """One generated run."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        size = rng.choice([1, 2, 3, 4])
        names = [f"b{i}" for i in range(size)]
        links = [(names[rng.randrange(i)], names[i]) for i in range(1, size)]
        self.mapped, self.policed = rng.random() < 0.5, rng.random() < 0.4
        #: Whether policies choose among members; and whether nothing fails.
        self.choosing = rng.random() < 0.3
        self.calm = self.choosing and rng.random() < 0.5
        #: Whether subscriptions go only where something is advertised that they overlap.
        self.steered = rng.random() < 0.3
        self.mapped = (self.mapped or self.steered) and not self.choosing
        #: Whether scopes begin and grow by themselves, and those that did.
        self.automated = not self.choosing and rng.random() < 0.3
        self.begun: set[tuple[str, int]] = set()
        graph = size > 2 and rng.random() < 0.3
        if graph:
            links.append((names[0], names[-1]))
            links = list({frozenset(link): link for link in links}.values())
        advertisements = "covering" if self.steered else None
        self.sim = Overlay(
            links, brokers=names, seed=seed, graph=graph, advertisements=advertisements
        )
        self.names = names
        #: What has gone on after it had waited at a scope: by its id, the epoch in which it did,
        #: where, and as what. If a broker has tried it twice, the second time counts.
        self.resumed: dict[str, tuple[int, Waiting, Notification]] = {}
        #: What has let go of something, and of what; or dropped it.
        self.said: set[tuple[str, bool]] = set()
        #: What has gone on before the end although a policy held it, each with its key.
        self.freed: list[str] = []
        self.ending = self.judging = False
        #: What policies have chosen among: by publisher and number, scope and kind, the eligible
        #: and the chosen ones.
        self.chosen: dict[tuple[str, int, str, Kind], tuple[set[str], tuple[str, ...]]] = {}
        #: What the graph was in each epoch.
        self.epochs: dict[int, dict[str, Record]] = {}
        self.graph = ScopeGraph()
        self.clients: list[Client] = []
        self.inboxes: list[tuple[Client, SimulatedInbox, Filter]] = []
        self.answers: list[StentorError | None] = []
        self.deployed = False

    def run(self, steps: int = 40) -> None:
        rng, sim = self.rng, self.sim
        for i in range(rng.randint(2, 6)):
            client = sim.client(id=f"c{i}")
            if rng.random() < 0.8:
                client.attributes = {"tenant": rng.choice(TENANTS), "rank": rng.randrange(3)}
            client.connect(sim.hosts[rng.choice(self.names)])
            if self.steered:
                client.offer(Filter("x >= 0 and x < 4 and not exists y and not exists z"))
            self.clients.append(client)
            for _ in range(rng.randint(0, 2)):
                text = rng.choice(TRANSLATED if self.steered and rng.random() < 0.5 else FILTERS)
                options: dict[str, Any] = {"durable": f"d{i}{_}"} if rng.random() < 0.4 else {}
                self.inboxes.append((client, client.open(text, **options), Filter(text)))
        sim.settle()
        self.reconfigure()
        sim.settle()
        for _ in range(steps):
            self.step()
        sim.heal()
        for client in self.clients:
            if client.broker is None:
                client.connect(sim.hosts[client.homes[-1]])
        sim.settle()
        self.let_go()
        for _ in range(6):  # as often as something may be put off on its way
            sim.tick(30)
            sim.settle()
        self.judge()

    def step(self) -> None:
        rng, sim = self.rng, self.sim
        match rng.choice(
            ["publish"] * 6
            + ["advance"] * 4
            + ["change"] * 2
            + ["time"]
            + ["cut", "mend", "kill", "client"] * (not self.calm)
        ):
            case "publish":
                client = rng.choice(self.clients)
                client.send([{"x": rng.randrange(4), "k": rng.choice("ab")}])
            case "advance":
                sim.advance(rng.choice([1, 5, 30]))
            case "time":
                if self.calm:
                    sim.settle()  # who is not heard for so long counts as one that hangs
                sim.tick(rng.choice([2, 12]))
            case "change":
                self.reconfigure()
            case "cut" if sim.wires:
                sim.disconnect(*rng.choice(sim.wires))
            case "mend":
                sim.heal()
            case "kill":
                name = rng.choice(self.names)
                if sim.hosts[name].up:
                    sim.crash(name)
                    sim.advance(5)
                    sim.restart(name)
            case "client":
                client = rng.choice(self.clients)
                if client.broker is None and sim.hosts[client.homes[-1]].up:
                    client.connect(sim.hosts[client.homes[-1]])
                else:
                    client.disconnect()

    # -- the graph

    def reconfigure(self) -> None:
        """Change something and have it deployed, by whoever orders changes."""
        self.graph = self.altered() if self.deployed else self.first()
        host = self.sim.hosts[self.names[0]]
        if not host.up:
            return
        self.deployed = True
        host.core.scoping.deploy(records_of(self.graph), self.answers.append)
        self.sim.carry_out(host)

    def first(self) -> ScopeGraph:
        rng = self.rng
        graph = ScopeGraph()
        for i in range(rng.randint(1, 5)):
            graph.create_scope(f"s{i}", interface=rng.choice(INTERFACES))
            if rng.random() < 0.2:
                graph.set_everyone(f"s{i}", rng.choice(INTERFACES))
            for j in range(i):
                if rng.random() < 0.5:
                    graph.join(f"s{i}", f"s{j}", mapping=self.mapping())
            if rng.random() < 0.8:
                self.rule(graph, f"s{i}", rng.choice(TENANTS))
        for i in range(2):
            if rng.random() < 0.5:
                graph.add_component(f"c{i}")
                graph.join(f"c{i}", rng.choice([n for n in graph.nodes if n[0] == "s"]))
        if self.choosing:
            self.let_choose(graph)
        elif self.policed:
            self.police(graph)
        if self.automated:
            standing = Standing(graph, assume=False)
            standing.run(parse(RULES))
            automate(standing)
        return graph

    def let_choose(self, graph: ScopeGraph) -> None:
        """Policies that choose among members, at some scopes."""
        rng = self.rng
        for id in [n for n in graph.nodes if n[0] == "s"]:
            if rng.random() < 0.6:
                policy = rng.choice(
                    [
                        OneOfN(),
                        OneOfN("hash", "k"),
                        OneOfN("least_loaded", "rank", deep=True),
                        TopK("rank", rng.choice([1, 2])),
                        RateLimit(rng.choice([5, 50])),
                    ]
                )
                graph.set_policy(id, rng.choice([Kind.DELIVERY, Kind.INTERNAL]), policy)
            if self.calm and rng.random() < 0.3:
                order = rng.choice(["top_down", "bottom_up"])
                graph.set_policy(id, Kind.TRAVERSE, Traverse(order, rng.choice(["first", "all"])))

    def police(self, graph: ScopeGraph) -> None:
        rng = self.rng
        for id in [n for n in graph.nodes if n[0] == "s"]:
            if rng.random() < 0.5:
                policy = rng.choice(
                    [
                        Nobody(),
                        Only(tuple(rng.sample(sorted(graph.nodes), 1))),
                        Chain(tuple(n for n in graph.nodes if n[0] == "c")),
                        ByProducer(Filter("rank > 0")),
                        Delay(rng.choice([0, 3, 20])),
                        Delay(10, Filter("x > 1")),
                        RequirePrivilege(rng.choice([1, 2]), "rank"),
                        Hold("k", Filter("x = 3"), Filter("x = 0")),
                        Hold("k", Filter("x = 3")),
                    ]
                )
                graph.set_policy(
                    id, rng.choice([Kind.DELIVERY, Kind.INTERNAL, Kind.PUBLISHING]), policy
                )

    def mapping(self) -> EdgeMapping:
        often = 0.6 if self.steered else 0.4
        return random_mapping(self.rng) if self.mapped and self.rng.random() < often else NO_MAPPING

    def rule(self, graph: ScopeGraph, scope: str, tenant: str) -> None:
        imposed = self.rng.choice([OMITTED, OMITTED, Interface.of("x >= 1", "x >= 1")])
        graph.add_rule(
            MembershipRule(
                scope, Filter(f"tenant = '{tenant}'"), "r", imposed=imposed, mapping=self.mapping()
            )
        )

    def let_go(self) -> None:
        """In the end nobody holds anything any more, so that all of it goes on."""
        self.ending = True
        if not self.epochs:
            return
        graph = graph_of(self.epochs[max(self.epochs)])  # the last change may have been refused
        for id in list(graph.policed):
            for kind, policy in list(graph.node(id).policies.items()):
                if isinstance(policy, Hold):
                    graph.set_policy(id, kind, None)
        host = self.sim.hosts[self.names[0]]
        host.core.scoping.deploy(records_of(graph), self.answers.append)
        self.sim.carry_out(host)
        self.sim.settle()

    def altered(self) -> ScopeGraph:
        rng = self.rng
        graph = graph_of(records_of(self.graph))
        scopes = [n for n in graph.nodes if n[0] == "s"]
        if not scopes:
            return self.first()
        scope = rng.choice(scopes)
        match rng.choice(["interface", "rule", "rule", "edge", "destroy", "component", "anew"]):
            case "interface":
                graph.set_interface(scope, rng.choice(INTERFACES))
            case "rule":
                if graph.rules.of_scope(scope):
                    graph.remove_rule(scope, "r")
                if rng.random() < 0.7 and (self.choosing or not graph.scope(scope).policies):
                    self.rule(graph, scope, rng.choice(TENANTS))
            case "edge":
                other = rng.choice(scopes)
                if other in graph.parents(scope):
                    graph.leave(scope, other, label=BY_HAND)
                elif other < scope:
                    graph.join(scope, other, mapping=self.mapping())
            case "destroy":
                graph.destroy_scope(scope, force=True)
            case "component":
                if "c0" in graph:
                    graph.remove_component("c0")
                else:
                    graph.add_component("c0")
                    graph.join("c0", scope)
            case _:
                return self.first()
        return graph

    # -- the judgment

    def model(self, epoch: int) -> ScopeGraph:
        """The graph of an epoch, with all clients in it."""
        graph = graph_of(self.epochs[epoch])
        for client in self.clients:
            if client.id not in graph:
                wanted = [filter for each, _, filter in self.inboxes if each is client]
                interface = Interface(tuple(wanted), None) if self.choosing else OMITTED
                graph.add_component(client.id, interface=interface, attributes=client.attributes)
        return graph

    def chosen_alike(self, model: ScopeGraph, publisher: str, n: Notification) -> None:
        """Have the model choose what was chosen, and look at those it had to choose from."""
        for id in list(model.policed):
            for kind, policy in list(model.node(id).policies.items()):
                if compares(policy):
                    eligible, chosen = self.chosen.get(
                        (publisher, _sequence(n), id, kind), (set(), ())
                    )
                    model.set_policy(id, kind, Noted(policy, eligible, chosen, self.calm))

    def carried_on(self, owed: dict[tuple[str, str, int], set[frozenset[Any]]]) -> set[_Crossing]:
        """Add what is owed of all that has waited; which crossings that were, and led to."""
        found: set[_Crossing] = set()
        for epoch, waiting, n in self.resumed.values():
            model = self.model(epoch)
            for child in self.members_at(epoch, model, waiting):
                crossing = Postponed(
                    child,
                    waiting.parent,
                    waiting.upward,
                    n,
                    (waiting.producer, *waiting.climbed),
                    (waiting.producer, *waiting.path),
                )
                outcome = Dissemination(model).resume(crossing)
                origin = waiting.producer, _sequence(n)
                for each in outcome.deliveries:
                    owe(owed, each, origin)
                found |= self.put_off(outcome, origin)
        return found

    def put_off(self, outcome: Outcome, origin: tuple[str, int]) -> set[_Crossing]:
        """The crossings on which something waits, without those that may have been dropped."""
        self.said |= set(outcome.released)
        return {
            _crossing(each, origin)
            for each in outcome.postponed
            if each.key is None or (each.key, False) not in self.said
        }

    def members_at(self, epoch: int, model: ScopeGraph, waiting: Waiting) -> list[str]:
        """Who is at the end of an edge on which something waits."""
        if waiting.child[:1] != RESERVED:
            return [waiting.child or waiting.producer]
        named = {record.id for record in self.epochs[epoch].values() if hasattr(record, "id")}
        if waiting.parent not in model:
            return []
        members = model.members(waiting.parent)
        return [id for id in members if id not in named and id != waiting.producer]

    def check_waiting(self, wanted: set[_Crossing]) -> None:
        """Whatever a policy has put off has gone on, once its time had come."""
        done = {(w.producer, _sequence(n), w.child, w.parent) for _, w, n in self.resumed.values()}
        for publisher, sequence, child, parent in wanted:
            ends = [child, "" if child == publisher else child]
            known = any((publisher, sequence, each, parent) in done for each in ends)
            port = any(
                each[:2] == (publisher, sequence) and each[2][:1] == RESERVED and each[3] == parent
                for each in done
            )
            assert known or port, f"what {publisher} said waits for ever from {child} to {parent}"

    def judge(self) -> None:
        self.judging = True
        seen: dict[tuple[str, int], tuple[Stamp | None, Notification]] = {}
        for host in self.sim.hosts.values():
            for i, (data, _) in enumerate(host.log.entries, 1):
                (bare,) = without_stamps([data])
                seen[host.log.stream, i] = (
                    decode_header(data).stamp,
                    decode_header(bare).notification(),
                )
        owed: dict[tuple[str, str, int], set[frozenset[Any]]] = {}
        for stamp, n in seen.values():  # what may drop something comes first
            if stamp is not None and n.id is not None and n.id.producer == stamp.publisher:
                self.said |= set(self.model(stamp.epoch).outcome(n, stamp.publisher).released)
        saying = sum(n.get("x") == 3 and n.id == _id(n, s) for s, n in seen.values() if s)
        if not self.mapped and not self.policed:  # else there may be several versions, or times
            assert len(self.begun) <= saying, "something has begun more than one scope"
        waits = self.carried_on(owed)
        for stamp, n in seen.values():
            if stamp is not None and n.id is not None and n.id.producer == stamp.publisher:
                model = self.model(stamp.epoch)
                if self.choosing:
                    self.chosen_alike(model, stamp.publisher, n)
                found = model.outcome(n, stamp.publisher)
                for each in found.deliveries:
                    owe(owed, each, _origin(n))
                waits |= self.put_off(found, _origin(n))
                nowhere = [c.id for c in self.clients if not model.parents(c.id)]
                if stamp.publisher in nowhere:  # all who are in no scope see each other
                    for id in nowhere:
                        owed.setdefault((id, *_origin(n)), set()).add(frozenset(dict(n).items()))
        self.check_waiting(waits)
        for key in self.freed:
            scope = key.partition("\0")[0]
            kept = [
                f"scope {scope}" in r and _holds(r[f"scope {scope}"]) for r in self.epochs.values()
            ]
            assert (key, True) in self.said or not all(kept), f"nobody has let go of {key!r}"
        for client, inbox, filter in self.inboxes:
            had: set[tuple[Any, ...]] = set()
            for stream, offset, _ in inbox.given:
                stamp, n = seen[stream, offset]
                if stamp is None:
                    continue  # from before there was a graph
                version = frozenset(dict(n).items())
                may = owed.get((client.id, *_origin(n, stamp)), set())
                assert version in may, f"{client.id} has seen {dict(n)} of {stamp.publisher}"
                had.add((*_origin(n, stamp), version))
            for (id, *origin), versions in owed.items():
                for version in versions:
                    if id == client.id and filter.matches(dict(version)):
                        assert (*origin, version) in had, (
                            f"{id} has missed {dict(version)} of {origin}"
                        )


class Noted(Nobody, frozen=True):
    """A policy of the model that chooses what a broker has chosen, if that was its to choose."""

    selecting: ClassVar[bool] = True
    policy: Any
    had: set[str]
    chosen: tuple[str, ...]
    #: Whether the broker must have known all whom it could choose.
    calm: bool

    def decide(self, asked: Question, state: Any) -> Answer:
        eligible = set(asked.eligible)
        assert self.had <= eligible, f"{self.had - eligible} are not eligible at {asked.scope}"
        assert not self.calm or self.had == eligible, f"{eligible - self.had} were left out"
        most = {OneOfN: 1, TopK: getattr(self.policy, "k", 0)}.get(type(self.policy), len(eligible))
        fewer = isinstance(self.policy, RateLimit) or getattr(self.policy, "deep", False)
        assert len(self.chosen) == min(most, len(self.had)) or (
            fewer and set(self.chosen) <= self.had
        )
        return Answer(self.chosen)


#: A publication, and an edge that it has to cross later.
_Crossing: TypeAlias = tuple[str, int, str, str]


def _holds(record: Record) -> bool:
    policies = getattr(record, "policies", {}).values()
    return any("hold" in str(each).lower() for each in policies)


def _crossing(each: Postponed, origin: tuple[str, int]) -> _Crossing:
    return *origin, each.child, each.parent


def _id(n: Notification, stamp: Stamp) -> NotificationId | None:
    """The id, if it is of what was published, and of no other version."""
    return n.id if n.id is not None and n.id.producer == stamp.publisher else None


def _sequence(n: Notification) -> int:
    assert n.id is not None
    return n.id.sequence


def owe(
    owed: dict[tuple[str, str, int], set[frozenset[Any]]],
    delivery: Delivery,
    origin: tuple[str, int],
) -> None:
    version = frozenset(dict(delivery.notification).items())
    owed.setdefault((delivery.consumer, *origin), set()).add(version)


def _origin(n: Notification, stamp: Stamp | None = None) -> tuple[str, int]:
    """Which publication something is a version of."""
    assert n.id is not None
    producer = n.id.producer if stamp is None else stamp.publisher
    return producer, n.id.sequence


def run_scope_history(seed: int) -> ScopeHistory:
    history = ScopeHistory(seed)
    change = EntryGraph.change

    def noted(self: EntryGraph, epoch: int, wanted: Change) -> None:
        before = set(self.graph.nodes)
        change(self, epoch, wanted)
        new = (id for id in self.graph.nodes if id not in before)
        history.begun |= {(id, epoch) for id in new if self.graph.node(id).definition == "auto"}
        known = history.epochs.setdefault(epoch, dict(self.records))
        assert known == self.records, "brokers have different graphs in the same epoch"

    def gone_on(self: EntryGraph, stamp: Stamp, n: Notification, now: float = 0.0) -> Decided:
        waiting = Waiting.of(stamp)
        history.resumed[str(n.id)] = self.epoch, waiting, n
        if waiting.held and not history.ending:
            history.freed.append(waiting.held)
        return resume(self, stamp, n, now)

    def chosen(
        self: Dissemination,
        kind: Kind,
        node: Node,
        n: Notification,
        edges: Mapping[str, Edge],
        *more: Any,
    ) -> Answer:
        known = (node.id, kind, n) in self._decided
        answer = decide(self, kind, node, n, edges, *more)
        if not history.judging and compares(node.policies[kind]) and not known:
            publisher = self._publisher.removeprefix(f"{RESERVED}@")
            history.chosen[publisher, _sequence(n), node.id, kind] = set(edges), answer.now
        return answer

    resume, decide = EntryGraph.resume, Dissemination._decide
    EntryGraph.change, EntryGraph.resume = noted, gone_on  # type: ignore[method-assign]
    Dissemination._decide = chosen  # type: ignore[method-assign]
    try:
        history.run()
    finally:
        EntryGraph.change, EntryGraph.resume = change, resume  # type: ignore[method-assign]
        Dissemination._decide = decide  # type: ignore[method-assign]
    return history


if __name__ == "__main__":
    import sys

    first, count = int(sys.argv[2]), int(sys.argv[1])
    kinds: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            done = run_scope_history(seed)
        except BaseException:
            print(f"history {seed} is wrong", flush=True)
            raise
        kinds["choosing"] += done.choosing
        kinds["calm"] += done.calm
        kinds["mapped"] += done.mapped
        kinds["chosen"] += len(done.chosen)
        kinds["delayed"] += len(done.resumed)
        kinds["held"] += sum(bool(waiting.held) for _, waiting, _ in done.resumed.values())
        kinds["freed"] += len(done.freed)
        kinds["begun"] += len(done.begun)
    print(f"{count:,} histories from {first} on, none wrong; {dict(kinds)}", flush=True)
