"""Policies choose among members whom rules take in, at any broker (04/E13, R-04.60, R-04.66)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from overlay import Overlay

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.model.codec import decode_header
from stentor.node.clock import Clock
from stentor.node.scopes import Scopes
from stentor.node.session import Line, Session
from stentor.node.sessions import TAKEN_DOWN, Sessions
from stentor.protocol import messages as m
from stentor.scopes import Interface, Kind, MembershipRule, ScopeGraph, policy_of
from stentor.scopes.definition import records_of
from stentor.simulation.client import Client, SimulatedInbox

CHOSEN = pytest.mark.spec("R-04.60", "R-04.66", "04/E13", "04/P12", "04/T12")


def workshop(policy: str | None, *arguments: Any, kind: Kind = Kind.DELIVERY) -> ScopeGraph:
    """What the `shop` publishes goes to workers as a policy of their scope says."""
    graph = ScopeGraph()
    for scope in ("shop", "workers"):
        graph.create_scope(scope, interface=Interface.of(True, True))
    graph.join("workers", "shop")
    graph.add_rule(MembershipRule("shop", Filter("role = 'till'"), "r"))
    graph.add_rule(MembershipRule("workers", Filter("role = 'worker'"), "r"))
    if policy is not None:
        graph.set_policy("workers", kind, policy_of(policy, arguments))
    return graph


class World:
    """Two brokers; the till at one, workers at both."""

    def __init__(self, count: int = 3, **options: Any) -> None:
        self.sim = Overlay([("a", "b")], **options)
        self.till = self.client("till", "a", role="till")
        if options:
            self.till.offer(Filter("exists n"))
        self.workers: dict[str, Client] = {}
        self.inboxes: dict[str, SimulatedInbox] = {}
        for i in range(count):
            self.worker(f"w{i}", "ab"[i % 2], load=i)
        self.sim.settle()

    def client(self, id: str, at: str, **attributes: Any) -> Client:
        client = self.sim.client(id=id)
        client.attributes = attributes
        client.connect(self.sim.hosts[at])
        return client

    def worker(self, name: str, at: str, filter: str = "exists n", **attributes: Any) -> None:
        self.workers[name] = self.client(name, at, role="worker", **attributes)
        self.inboxes[name] = self.workers[name].open(filter)

    def deploy(self, graph: ScopeGraph) -> None:
        answers: list[StentorError | None] = []
        host = self.sim.hosts["a"]
        host.core.scoping.deploy(records_of(graph), answers.append)
        self.sim.carry_out(host)
        self.sim.settle()
        assert answers == [None]

    def say(self, *numbers: int, **more: Any) -> None:
        for n in numbers:
            self.till.send([{"n": n, **more}])
        self.sim.settle()

    def leave(self, *names: str) -> None:
        for name in names:
            self.workers[name].close(self.inboxes[name])
        self.sim.advance()

    @property
    def given(self) -> dict[str, list[int]]:
        """What each worker was given."""
        found: dict[str, list[int]] = {}
        for name, inbox in self.inboxes.items():
            logs = {host.log.stream: host.log for host in self.sim.hosts.values()}
            items = [logs[stream].entries[at - 1][0] for stream, at, _ in inbox.given]
            found[name] = [decode_header(data).facts["n"] for data in items]
        return found


@CHOSEN
@pytest.mark.parametrize("options", [{}, {"advertisements": "covering"}])
def test_workers_at_any_broker_take_turns(options: dict[str, Any]) -> None:
    world = World(**options)
    world.deploy(workshop("round_robin"))
    world.say(0, 1, 2, 3)
    assert world.given == {"w0": [0, 3], "w1": [1], "w2": [2]}


@CHOSEN
def test_nobody_is_chosen_who_has_not_subscribed_to_it() -> None:
    world = World()
    world.worker("w3", "b", "n > 100")
    world.deploy(workshop("round_robin"))
    world.say(0, 1, 2, 3)
    assert world.given == {"w0": [0, 3], "w1": [1], "w2": [2], "w3": []}
    world.leave("w1")
    world.say(4, 5)
    assert (world.given["w0"], world.given["w1"], world.given["w2"]) == ([0, 3, 5], [1], [2, 4])


@CHOSEN
@pytest.mark.spec("R-04.67")
def test_keys_keep_their_worker_and_the_least_loaded_come_first() -> None:
    world = World()
    world.deploy(workshop("key_affine", "key"))
    for n in range(6):
        world.say(n, key="ab"[n % 2])
    assert sorted(map(len, world.given.values())) in ([0, 0, 6], [0, 3, 3])
    world = World()
    world.deploy(workshop("top_k", "load", 2, "asc"))
    world.say(0, 1)
    assert world.given == {"w0": [0, 1], "w1": [0, 1], "w2": []}


@CHOSEN
def test_each_worker_has_a_rate_of_its_own() -> None:
    world = World(2)
    world.deploy(workshop("rate_limit", "10s"))
    world.say(0, 1)
    world.sim.tick(11)
    world.say(2)
    assert world.given == {"w0": [0, 2], "w1": [0, 2]}


@CHOSEN
def test_whoever_publishes_is_not_chosen_and_other_ways_are_open_to_all() -> None:
    world = World()
    world.deploy(workshop("round_robin", kind=Kind.INTERNAL))
    world.say(0)  # from outside: the policy is for what workers say among themselves
    world.workers["w0"].send([{"n": 1}])
    world.workers["w0"].send([{"n": 2}])
    world.sim.settle()
    assert world.given == {"w0": [0, 1, 2], "w1": [0, 1], "w2": [0, 2]}, "and it hears itself"


@CHOSEN
@pytest.mark.spec("R-04.64", "04/T24")
def test_a_search_stops_where_somebody_is() -> None:
    graph = workshop(None)
    graph.create_scope("experts", interface=Interface.of(True, True))
    graph.join("experts", "workers")
    graph.add_rule(MembershipRule("experts", Filter("role = 'expert'"), "r"))
    graph.set_policy("workers", Kind.TRAVERSE, policy_of("bottom_up", ()))
    world = World()
    world.deploy(graph)
    world.say(0)
    world.inboxes["x"] = world.client("x", "b", role="expert").open("n < 2")
    world.sim.settle()
    world.say(1, 2)
    assert world.given == {"w0": [0, 2], "w1": [0, 2], "w2": [0, 2], "x": [1]}


@CHOSEN
def test_members_are_known_to_a_broker_that_comes_back() -> None:
    world = World()
    world.deploy(workshop("round_robin"))
    world.sim.crash("a")
    world.sim.advance()
    world.sim.restart("a")
    world.sim.heal()
    world.sim.advance()
    world.till.disconnect()
    world.till.connect(world.sim.hosts["a"])
    world.say(0, 1, 2)
    assert {name: len(given) for name, given in world.given.items()} == {"w0": 1, "w1": 1, "w2": 1}


@CHOSEN
def test_who_is_cut_off_is_chosen_only_where_there_is_nobody_else() -> None:
    world = World()
    world.deploy(workshop("round_robin"))
    world.sim.disconnect("a", "b")
    world.sim.advance()
    for n in range(3):
        world.till.send([{"n": n}])
    world.sim.advance()
    assert world.given == {"w0": [0, 2], "w1": [], "w2": [1]}
    world.leave("w0", "w2")
    world.till.send([{"n": 3}])
    world.sim.advance()
    assert world.given["w1"] == []
    world.sim.heal()
    world.sim.settle()
    assert world.given["w1"] == [3]


@CHOSEN
def test_what_was_published_while_the_policy_came_has_been_given_to_somebody() -> None:
    world = World()
    world.deploy(workshop(None))
    other = world.client("till2", "b", role="till")
    world.sim.settle()
    owner = world.sim.hosts["a"]
    owner.core.scoping.deploy(records_of(workshop("round_robin")), lambda error: None)
    world.sim.carry_out(owner)
    for n in range(20):
        world.till.send([{"n": n}])
        other.send([{"n": 100 + n}])
        world.sim.advance(1)
    world.sim.settle()
    counts = Counter(n for given in world.given.values() for n in given)
    assert set(counts) == {*range(20), *range(100, 120)}
    assert set(counts.values()) <= {1, 3}, "by the new graph to one, or by the old one to all"
    assert counts[19] == counts[119] == 1


@CHOSEN
def test_members_of_a_group_share_it_wherever_policies_choose() -> None:
    world = World(0)
    inboxes = []
    for i in range(2):
        client = world.client(f"g{i}", "ab"[i], role="worker")
        inboxes.append(client.open("exists n", group="g"))
        world.sim.settle()
    world.deploy(workshop("round_robin", kind=Kind.INTERNAL))
    world.say(0, 1, 2)
    assert sum(len(each.given) for each in inboxes) == 3, "from outside, once each"


@pytest.mark.spec("R-05.18")
def test_a_change_concerns_those_who_may_see_something_else() -> None:
    world = World()
    scopes = world.sim.hosts["a"].core.scopes
    world.deploy(workshop(None))
    before = scopes.entry.epoch
    graph = workshop(None)
    graph.create_scope("guild")
    graph.add_rule(MembershipRule("guild", Filter("role = 'till'"), "r"))
    world.deploy(graph)
    names = [scopes.components[id].name for id in scopes.concerned(before) or ()]
    assert names == ["till"]
    before = scopes.entry.epoch
    graph.add_rule(MembershipRule("guild", Filter("load > 1"), "more"))
    world.deploy(graph)
    assert scopes.concerned(before) is None, "who has how much is not looked up"
    late = world.client("late", "a", role="till")
    world.sim.settle()
    graph.remove_rule("guild", "r")
    before = scopes.entry.epoch
    world.deploy(graph)
    assert len(scopes.concerned(before) or ()) == 2
    late.disconnect()
    world.sim.advance()
    assert len(scopes.concerned(before) or ()) == 1


@CHOSEN
def test_nobody_is_chosen_who_is_gone_though_not_all_that_it_had_is() -> None:
    world = World(2)
    world.deploy(workshop("round_robin"))
    host = world.sim.hosts["a"]
    core = host.core
    (id,) = core.scopes.saying("name", "w0")
    for number in range(100, 100 + 3 * TAKEN_DOWN):
        core.heard(id, m.Subscribe(number, f"n > {number}", 1))
    world.sim.settle()
    assert set(core.scopes.entry.roster.of(core.stream)) == {"w0"}
    core.leave(id)
    assert id in core.sessions
    core.take()
    assert not core.scopes.entry.roster.of(core.stream)


def test_who_listens_for_words_of_brokers_can_end_when_others_were_looked_up() -> None:
    sessions = Sessions()
    scopes = Scopes(sessions, Clock(0.0, 0.0))
    ann, words = (Session(i, n, n, Line((-1, -1))) for i, n in ((1, "ann"), (-1, "words")))
    for each in (ann, words):
        sessions.begin(each)
    scopes.join(ann, "ann", {"role": "till"})
    assert set(scopes.saying("role", "till")) == {1}
    scopes.listen(words)
    sessions.leave(-1)
    sessions.leave(1)
    assert not scopes.saying("role", "till")
    assert not scopes.components
