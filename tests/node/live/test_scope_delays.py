"""What a policy of a scope delays waits at the broker where it entered (04/T13, R-04.63)."""

from __future__ import annotations

from typing import Any

import pytest
from overlay import Overlay

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.model.codec import decode_header
from stentor.scopes import Interface, MembershipRule, ScopeGraph
from stentor.scopes.definition import records_of
from stentor.scopes.policies import Custom, Delay, Kind, Policy
from stentor.simulation.client import Client, SimulatedInbox

DELAYED = pytest.mark.spec("R-04.63", "04/T13", "04/P14", "R-04.61")


def rooms(policy: Policy | Custom | None, *, edge: bool = True, outer: bool = True) -> ScopeGraph:
    """What `inner` says leaves for `outer` as its publishing policy says."""
    graph = ScopeGraph()
    for scope in ("outer", "inner"):
        graph.create_scope(scope, interface=Interface.of(True, True))
        if outer or scope == "inner":
            graph.add_rule(MembershipRule(scope, Filter(f"room = '{scope}'"), "r"))
    if edge:
        graph.join("inner", "outer")
    if policy is not None:
        graph.set_policy("inner", Kind.PUBLISHING, policy)
    return graph


class World:
    """Two brokers, a publisher and a listener in `inner` at one, one in `outer` at the other."""

    def __init__(self, **options: Any) -> None:
        self.sim = Overlay([("a", "b")], **options)
        self.sayer, self.sibling = self.client("sayer", "inner"), self.client("sibling", "inner")
        self.far = self.client("far", "outer", at="b")
        self.inside, self.inbox = self.sibling.open("exists x"), self.far.open("exists x")
        if options:
            self.sayer.offer(Filter("exists x"))
        self.sim.settle()

    def client(self, id: str, room: str, at: str = "a") -> Client:
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

    def say(self, *events: dict[str, Any]) -> None:
        self.sayer.send(list(events) or [{"x": 1}])
        self.sim.settle()

    def later(self, seconds: float) -> None:
        self.sim.tick(seconds)
        self.sim.settle()

    def given(self, inbox: SimulatedInbox | None = None) -> int:
        return len((inbox or self.inbox).given)

    @property
    def waiting(self) -> int:
        return len(self.sim.hosts["a"].core.scheduling.schedule)


@DELAYED
@pytest.mark.parametrize("options", [{}, {"advertisements": "covering"}])
def test_a_delay_lets_something_leave_when_its_time_has_come(options: dict[str, Any]) -> None:
    world = World(**options)
    world.deploy(rooms(Delay(600)))
    world.say()
    assert (world.given(world.inside), world.given(), world.waiting) == (1, 0, 1)
    world.later(300)
    assert world.given() == 0
    world.later(300)
    assert (world.given(world.inside), world.given(), world.waiting) == (1, 1, 0)


@DELAYED
def test_only_what_the_delay_is_for_waits() -> None:
    world = World()
    world.deploy(rooms(Delay(600, Filter("x > 1"))))
    world.say({"x": 1}, {"x": 2})
    assert (world.given(world.inside), world.given(), world.waiting) == (2, 1, 1)
    world.later(601)
    assert world.given() == 2


@DELAYED
@pytest.mark.parametrize("after", [rooms(Delay(600), edge=False), rooms(Delay(600), outer=False)])
def test_the_graph_of_the_moment_at_which_it_goes_on_decides(after: ScopeGraph) -> None:
    world = World()
    world.deploy(rooms(Delay(600)))
    world.say()
    world.deploy(after)
    world.later(601)
    assert (world.given(world.inside), world.given(), world.waiting) == (1, 0, 0)


@DELAYED
def test_what_waits_goes_on_although_the_policy_is_gone() -> None:
    world = World()
    world.deploy(rooms(Delay(600)))
    world.say()
    world.deploy(rooms(None))
    world.later(601)
    assert world.given() == 1


@DELAYED
def test_it_can_be_asked_where_something_waits() -> None:
    world = World()
    world.deploy(rooms(Delay(600)))
    world.say()
    core, (data, _) = world.sim.hosts["a"].core, world.sim.hosts["a"].log.entries[-1]
    assert "inner → outer: put off for 600 s by a policy" in core.scopes.stops(decode_header(data))


@DELAYED
def test_whoever_subscribes_no_longer_is_given_nothing() -> None:
    world = World()
    world.deploy(rooms(Delay(600)))
    world.say()
    world.far.close(world.inbox)
    world.later(601)
    assert (world.given(), world.waiting) == (0, 0)


@DELAYED
@pytest.mark.parametrize("moment", ["while it waits", "when it is due"])
def test_what_waits_outlives_its_broker_and_comes_once(moment: str) -> None:
    world = World()
    world.deploy(rooms(Delay(600)))
    world.say()
    if moment == "when it is due":  # it is on its way to the journal, and does not come there
        world.sim.tick(601)
    world.sim.crash("a")
    world.sim.tick(5)
    world.sim.restart("a")
    world.sim.heal()
    world.later(601)
    world.later(601)
    assert (world.given(), world.waiting) == (1, 0)


@DELAYED
def test_the_publisher_need_not_be_there_when_it_goes_on() -> None:
    world = World()
    world.deploy(rooms(Delay(600)))
    world.say()
    world.sim.hosts["a"].core.leave(world.sayer.session)
    world.later(601)
    assert world.given() == 1


@DELAYED
def test_a_durable_subscriber_who_is_away_has_it_when_it_comes_back() -> None:
    world = World()
    world.deploy(rooms(Delay(600)))
    kept = world.far.open("exists x", durable="kept")
    world.sim.settle()
    world.say()
    world.far.disconnect()
    world.sim.tick(601)
    while found := [each for each in world.sim.choices() if each[0] != "up"]:
        world.sim.happen(*found[0])
    assert world.given(kept) == 0
    world.sim.settle()
    assert world.given(kept) == 1


@DELAYED
def test_two_delays_on_one_way_take_both_times() -> None:
    world = World()
    graph = rooms(Delay(600))
    graph.set_policy("outer", Kind.INTERNAL, Delay(300))
    world.deploy(graph)
    world.say()
    world.later(601)
    assert (world.given(), world.waiting) == (0, 1)
    world.later(301)
    assert (world.given(), world.waiting) == (1, 0)


@DELAYED
def test_where_there_is_no_room_what_may_have_to_wait_is_refused() -> None:
    world = World()
    world.deploy(rooms(Delay(600)))
    world.sim.hosts["a"].core.scheduling.schedule.resize(2, 10_000, ())
    world.say()
    world.say()
    with pytest.raises(AssertionError, match="may delay this"):  # as the publisher is told
        world.say()
    core = world.sim.hosts["a"].core
    assert (world.waiting, core.counters["refused"]) == (2, 1)
    world.later(601)
    assert world.given() == 2
