"""What a policy of a scope holds until something is said, at whatever broker (04/E13, R-04.68)."""

from __future__ import annotations

from typing import Any

import pytest
from overlay import Overlay

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.model.codec import decode_header
from stentor.scopes import Interface, Kind, MembershipRule, ScopeGraph, policy_of
from stentor.scopes.definition import records_of
from stentor.simulation.client import Client

HELD = pytest.mark.spec("04/E13", "04/T13", "04/P14", "R-04.61")


def spheres(*, holds: bool = True) -> ScopeGraph:
    """What is said of a transaction leaves `inner` when that commits."""
    graph = ScopeGraph()
    for scope in ("outer", "inner"):
        graph.create_scope(scope, interface=Interface.of(True, True))
        graph.add_rule(MembershipRule(scope, Filter(f"room = '{scope}'"), "r"))
    graph.join("inner", "outer")
    if holds:
        policy = policy_of("hold", ("tx", "done = 'commit'", "done = 'abort'"))
        graph.set_policy("inner", Kind.PUBLISHING, policy)
    return graph


class World:
    """Brokers a, b and c in a row: somebody in `inner` at each, and a listener in `outer` at c."""

    def __init__(self, **options: Any) -> None:
        self.sim = Overlay([("a", "b"), ("b", "c")], **options)
        self.says = {name: self.client(f"says {name}", "inner", name) for name in "abc"}
        self.far = self.client("far", "outer", "c")
        self.inbox = self.far.open("exists x")
        if options:
            for client in self.says.values():
                client.offer(Filter("exists x or exists tx"))
        self.sim.settle()
        self.deploy(spheres())

    def client(self, id: str, room: str, at: str) -> Client:
        client = self.sim.client(id=id)
        client.attributes = {"room": room}
        client.connect(self.sim.hosts[at])
        return client

    def deploy(self, graph: ScopeGraph) -> None:
        answers: list[StentorError | None] = []
        host = self.sim.hosts["a"]
        host.core.scoping.deploy(records_of(graph), answers.append)
        self.sim.carry_out(host)
        self.sim.settle()
        assert answers == [None]

    def say(self, at: str, *numbers: int, tx: int | None = 1, done: str = "") -> None:
        """Something of a transaction, one after the other; or that it is done."""
        about = {} if tx is None else {"tx": tx}
        for x in numbers:
            self.says[at].send([{"x": x, **about}])
        if done:
            self.says[at].send([{"done": done, **about}])
        self.sim.advance()

    def settle(self) -> None:
        self.sim.settle()
        self.sim.tick(2)
        self.sim.settle()

    @property
    def given(self) -> list[int]:
        logs = {host.log.stream: host.log for host in self.sim.hosts.values()}
        entries = [logs[stream].entries[at - 1][0] for stream, at, _ in self.inbox.given]
        return [decode_header(data).facts["x"] for data in entries]

    @property
    def waiting(self) -> int:
        return sum(len(h.core.scheduling.schedule) for h in self.sim.hosts.values())

    def restart(self, name: str) -> None:
        self.sim.crash(name)
        self.sim.advance()
        self.sim.restart(name)


@HELD
@pytest.mark.parametrize("options", [{}, {"advertisements": "covering"}])
def test_a_commit_at_one_broker_lets_go_of_what_others_hold(options: dict[str, Any]) -> None:
    world = World(**options)
    world.say("a", 1, 2, 3)
    world.say("b", 4, tx=2)
    world.say("c", 5)
    world.say("a", 6, tx=None)
    assert (world.given, world.waiting) == ([6], 5)
    world.say("b", done="commit")
    world.settle()
    assert (sorted(world.given), world.waiting) == ([1, 2, 3, 5, 6], 1)
    assert [x for x in world.given if x < 4] == [1, 2, 3], "in the order of their publication"
    world.say("c", done="commit", tx=2)
    world.settle()
    assert (sorted(world.given), world.waiting) == ([1, 2, 3, 4, 5, 6], 0)


@HELD
def test_an_abort_drops_it() -> None:
    world = World()
    world.say("a", 1, 2, 3)
    world.say("c", done="abort")
    world.settle()
    world.say("a", done="commit")
    world.settle()
    assert (world.given, world.waiting) == ([], 0)


@HELD
def test_what_is_said_later_waits_for_the_next_commit() -> None:
    world = World()
    world.says["a"].send([{"x": 1, "tx": 1}])
    world.says["a"].send([{"done": "commit", "tx": 1}])
    world.says["a"].send([{"x": 2, "tx": 1}])
    world.settle()
    assert (world.given, world.waiting) == ([1], 1)
    world.say("b", done="commit")
    world.settle()
    assert world.given == [1, 2]


@HELD
def test_words_that_are_heard_again_do_what_they_did() -> None:
    world = World()
    world.say("a", 1)
    world.say("b", done="commit")
    world.settle()
    world.say("a", 2)
    world.restart("a")
    world.settle()
    assert (world.given, world.waiting) == ([1], 1), "the commit is older than what waits"
    world.say("c", done="commit")
    world.settle()
    assert (world.given, world.waiting) == ([1, 2], 0)


@HELD
def test_a_commit_reaches_a_broker_that_was_down_or_cut_off() -> None:
    world = World()
    world.say("a", 1)
    world.sim.crash("a")
    world.say("b", done="commit")
    world.sim.restart("a")
    world.settle()
    assert (world.given, world.waiting) == ([1], 0)
    world.say("a", 2)
    world.sim.disconnect("a", "b")
    world.say("c", done="commit")
    assert world.waiting == 1
    world.settle()
    assert (world.given, world.waiting) == ([1, 2], 0)


@HELD
def test_a_crash_between_the_commit_and_what_it_lets_go() -> None:
    for steps in range(1, 40, 3):
        world = World()
        world.say("a", 1, 2)
        world.says["b"].send([{"done": "commit", "tx": 1}])
        world.sim.advance(steps)
        world.restart("a")
        world.settle()
        assert (world.given, world.waiting) == ([1, 2], 0), steps


@HELD
def test_where_nobody_holds_it_any_more_it_goes_on() -> None:
    world = World()
    world.say("a", 1)
    world.deploy(spheres(holds=False))
    world.settle()
    assert (world.given, world.waiting) == ([1], 0)


@HELD
def test_what_is_held_has_room_on_the_schedule_and_is_shown() -> None:
    world = World()
    world.say("a", 1, 2)
    core = world.sim.hosts["a"].core
    assert core.scoping.shown()["held"] == {"inner": 2}
    core.scheduling.schedule.resize(2, 10**6, ())
    with pytest.raises(AssertionError, match=r"raise limits\.scheduled"):
        world.say("a", 3)
    world.say("a", done="commit")
    world.settle()
    assert (world.given, core.scoping.shown()["held"]) == ([1, 2], {})


@HELD
def test_whoever_takes_over_what_is_held_hears_again_what_lets_go_of_it() -> None:
    world = World()
    world.say("a", 1)
    world.sim.disconnect("a", "b")
    world.say("c", done="commit")  # b has heard that, and held nothing; a never hears it
    gone, heir = world.sim.hosts["a"], world.sim.hosts["b"]
    world.sim.crash("a")
    heir.log.schedule |= gone.log.schedule
    heir.core.restore_schedule(gone.log.scheduled())
    world.sim.carry_out(heir)
    for _ in range(3):
        world.sim.advance()
        world.sim.tick(2)
    world.sim.advance()
    assert (world.given, heir.core.scopes.held) == ([1], {})
